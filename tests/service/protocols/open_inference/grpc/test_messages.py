"""Protobuf messages become requests, whatever they hold, or are refused."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from service.protocols.open_inference.grpc import open_inference_pb2 as messages
from service.protocols.open_inference.grpc.messages import infer_request, infer_response
from service.protocols.open_inference.tensors import Tensor

DATATYPES = ("BOOL", "INT8", "INT32", "INT64", "UINT8", "UINT64", "FP16", "FP32", "FP64", "BYTES", "STRING", "")


def message(datatype, shape, raw=None, **contents):
    found = messages.ModelInferRequest(model_name="it", id="7")
    tensor = found.inputs.add(name="x", datatype=datatype, shape=shape)
    for name, values in contents.items():
        getattr(tensor.contents, name).extend(values)
    if raw is not None:
        found.raw_input_contents.append(raw)
    return found


@pytest.mark.parametrize(
    ("datatype", "raw", "contents", "expected"),
    [
        ("INT64", np.array([1, -2]).tobytes(), {"int64_contents": [1, -2]}, [1, -2]),
        ("INT8", b"\x01\xff", {"int_contents": [1, -1]}, [1, -1]),
        ("BOOL", b"\x01\x00", {"bool_contents": [True, False]}, [True, False]),
        ("FP32", np.array([0.5, 2], np.float32).tobytes(), {"fp32_contents": [0.5, 2]}, [0.5, 2]),
        ("BYTES", b"\x01\x00\x00\x00a\x00\x00\x00\x00", {"bytes_contents": [b"a", b""]}, [b"a", b""]),
    ],
)
def test_raw_and_typed_elements_are_the_same(datatype, raw, contents, expected):
    for found in (infer_request(message(datatype, [2], raw)), infer_request(message(datatype, [2], **contents))):
        assert list(found.inputs["x"].values) == expected
        assert (found.id, found.inputs["x"].shape) == ("7", (2,))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (message("INT64", [2], b"123"), "no whole elements"),
        (message("INT64", [2], bytes(8)), "has 1 elements"),
        (message("INT64", [-1], bytes(8)), "negative"),
        (message("INT8", [1], int_contents=[300]), "does not fit"),
        (message("INT64", [1], int_contents=[3]), "has int_contents"),
        (message("FP16", [1]), "has 0 elements"),
        (message("BYTES", [1], b"\xff\xff\xff\xff"), "ends behind"),
        (message("INT64", [1], bytes(8), int64_contents=[1]), "either contents or raw"),
        (message("TEXT", [1]), "unknown datatype"),
    ],
)
def test_what_does_not_fit_is_refused(given, words):
    with pytest.raises(HTTPException, match=words) as error:
        infer_request(given)
    assert error.value.status_code == 400


def test_inputs_and_raw_contents_are_as_many_and_names_differ():
    twice = message("INT64", [1], int64_contents=[1])
    twice.inputs.append(twice.inputs[0])
    with pytest.raises(HTTPException, match="comes twice"):
        infer_request(twice)
    twice.raw_input_contents.append(bytes(8))
    with pytest.raises(HTTPException, match="2 inputs and 1 raw"):
        infer_request(twice)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(DATATYPES),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=9),
    st.none() | st.binary(max_size=40),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
)
def test_random_messages_are_read_or_refused(datatype, shape, raw, elements):
    with contextlib.suppress(HTTPException):
        found = infer_request(message(datatype, shape, raw, int_contents=elements))
        assert len(found.inputs["x"].values) == np.prod(shape, dtype=object)


def test_parameters_and_outputs():
    found = message("INT64", [1], int64_contents=[1])
    found.parameters["top_k"].int64_param = 3
    found.parameters["truncate"].bool_param = True
    found.parameters["nothing"].SetInParent()
    found.outputs.add(name="label").parameters["classification"].int64_param = 2
    read = infer_request(found)
    assert dict(read.parameters) == {"top_k": 3, "truncate": True, "nothing": None}
    assert [(each.name, each.classes) for each in read.outputs] == [("label", 2)]


def test_answers_are_raw():
    read = infer_request(message("INT64", [1], int64_contents=[1]))
    tensors = [Tensor("p", "FP32", (1,), np.array([0.5], np.float32)), Tensor("l", "BYTES", (1,), [b"ab"])]
    answer = infer_response("it", "2", read, tensors)
    assert (answer.model_name, answer.model_version, answer.id) == ("it", "2", "7")
    assert list(answer.raw_output_contents) == [np.float32(0.5).tobytes(), b"\x02\x00\x00\x00ab"]
    assert [(each.name, each.datatype, list(each.shape)) for each in answer.outputs] == [
        ("p", "FP32", [1]),
        ("l", "BYTES", [1]),
    ]
