"""Tests of tensors in JSON and in binary form."""

import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from service.protocols.open_inference.tensors import InferRequest, Tensor, encode_answer, parse_request

parse = partial(parse_request, max_values=1000)
TEXT = {"name": "text", "shape": [1], "datatype": "BYTES"}


def body(*inputs, **fields):
    return json.dumps({"inputs": inputs, **fields}).encode()


def binary(content, shape, datatype="BYTES", size=None):
    """Return a body and its header."""
    tensor = {"name": "text", "shape": shape, "datatype": datatype}
    head = body({**tensor, "parameters": {"binary_data_size": len(content) if size is None else size}})
    return head + content, str(len(head))


def refusal(content, header):
    """Return the status of a refusal, None for a request that is accepted."""
    try:
        parse(content, header)
    except HTTPException as error:
        return error.status_code
    return None


def element(text):
    return len(text).to_bytes(4, "little") + text


def test_json():
    found = parse(body({**TEXT, "shape": [2], "data": ["a", "ä"]}, id="7", parameters={"top_k": 2}), None)
    assert (found.id, found.parameters, found.inputs["text"].texts()) == ("7", {"top_k": 2}, ["a", "ä"])
    nested = {"name": "ids", "shape": [2, 2], "datatype": "INT64", "data": [[1, 2], [3, 4]]}
    assert parse(body(nested), None).inputs["ids"].integers().tolist() == [[1, 2], [3, 4]]


def test_binary():
    found = parse(*binary(element("ä".encode()) + element(b""), [2]))
    assert found.inputs["text"].texts() == ["ä", ""]
    found = parse(*binary(np.array([5, 6], "<i4").tobytes(), [1, 2], "INT32"))
    assert found.inputs["text"].integers().tolist() == [[5, 6]]


def test_outputs_say_whether_they_are_binary():
    outputs = [{"name": "a", "parameters": {"binary_data": False}}, {"name": "b"}]
    found = parse(body(outputs=outputs, parameters={"binary_data_output": True}), None)
    assert [found.is_binary(name) for name in "abc"] == [False, True, True]


@pytest.mark.parametrize(
    ("content", "header", "message"),
    [
        (b"{", None, "Expecting property name"),
        (b"[]", None, "body"),
        (b"{}", None, "inputs: is missing"),
        (b"{}", "3", "is 3, but the body has 2 bytes"),
        (b"{}", "-1", "must be a number of bytes"),
        (b"{}", "²", "must be a number of bytes"),
        (b"{}", "x", "must be a number of bytes"),
        (b"{}", "9" * 5000, "must be a number of bytes"),
        (body(TEXT), None, "either data or binary_data_size"),
        (body({**TEXT, "data": ["a"], "parameters": {"binary_data_size": 1}}), None, "either data or binary"),
        (body({**TEXT, "data": ["a", "b"]}), None, "has 2 elements, and its shape says 1"),
        (body({**TEXT, "shape": [-1], "data": ["a"]}), None, "shape"),
        (body({**TEXT, "shape": [1 << 40] * 8, "data": ["a"]}), None, "shape"),
        (body({**TEXT, "shape": [1 << 30] * 8, "data": ["a"]}), None, "its shape says"),
        (body({**TEXT, "shape": [1] * 9, "data": ["a"]}), None, "dimensions"),
        (body({**TEXT, "data": [[[[[[[[["a"]]]]]]]]]}), None, "nested"),
        (body(id="\ud800"), None, "id: .*surrogate"),
        (body({**TEXT, "data": [1]}), None, "must be strings"),
        (body({**TEXT, "data": ["\ud800"]}), None, "surrogate"),
        (body({**TEXT, "datatype": "STRING", "data": ["a"]}), None, "unknown datatype"),
        (body({**TEXT, "datatype": "INT8", "data": [300]}), None, "does not fit"),
        (body({**TEXT, "datatype": "INT64", "data": [1.5]}), None, "do not fit"),
        (body({**TEXT, "datatype": "INT64", "data": [True]}), None, "do not fit"),
        (body({**TEXT, "data": ["a"]}, {**TEXT, "data": ["a"]}), None, "comes twice"),
        (body(parameters={"binary_data_output": 1}), None, "true or false"),
        (*binary(b"", [1], size=5), "does not fit the body"),
        (*binary(b"", [1], size=-1), "does not fit the body"),
        (*binary(b"", [1], size="4"), "does not fit the body"),
        (*binary(b"", [1], size=True), "does not fit the body"),
        (*binary(b"\xff\xff\xff\xff", [1]), "ends behind the tensor"),
        (*binary(b"\x01\x00", [1]), "ends behind the tensor"),
        (*binary(element(b"a"), [2]), "has 1 elements, and its shape says 2"),
        (*binary(b"abc", [1], "INT64"), "no whole elements"),
        (*binary(element(b"a") + b"rest", [1], size=5), "4 bytes follow"),
    ],
)
def test_what_is_malformed_is_refused(content, header, message):
    with pytest.raises(HTTPException, match=message) as caught:
        parse(content, header)
    assert caught.value.status_code == 400


def test_a_text_must_be_utf8_and_numbers_no_texts():
    tensor = parse(*binary(element(b"\xff"), [1])).inputs["text"]
    with pytest.raises(HTTPException, match="UTF-8"):
        tensor.texts()
    with pytest.raises(HTTPException, match="INT64"):
        tensor.integers()
    numbers = parse(*binary(np.array([1 << 63], "<u8").tobytes(), [1], "UINT64")).inputs["text"]
    with pytest.raises(HTTPException, match="too large"):
        numbers.integers()
    with pytest.raises(HTTPException, match="BYTES"):
        numbers.texts()


@given(st.binary(max_size=60), st.lists(st.integers(-2, 5), max_size=3), st.integers(-5, 70), st.text(max_size=5))
def test_rubbish_is_accepted_or_refused_with_400(content, shape, size, header):
    for datatype in ("BYTES", "INT64", "FP16", "BOOL"):
        whole, length = binary(content, shape, datatype, size)
        for said in (length, header, None):
            assert refusal(whole, said) in (None, 400)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=20))
def test_any_json_is_accepted_or_refused_with_400(value):
    for field in ("data", "shape", "datatype", "parameters", "name"):
        for datatype in ("BYTES", "INT16", "FP32"):
            given_input = {"name": "text", "shape": [1], "datatype": datatype, "data": [1], field: value}
            assert refusal(json.dumps({"inputs": [given_input]}).encode(), None) in (None, 400)


@pytest.mark.parametrize("all_binary", [True, False])
def test_answers(all_binary):
    tensors = [
        Tensor("text", "BYTES", (2,), [b"a", "ä".encode()]),
        Tensor("number", "FP32", (1, 2), np.array([0.5, -math.inf], np.float32)),
    ]
    found, length = encode_answer({"model_name": "m"}, tensors, InferRequest("", {}, {}, (), all_binary=all_binary))
    head = json.loads(found[:length])
    assert head["model_name"] == "m"
    assert [output["shape"] for output in head["outputs"]] == [[2], [1, 2]]
    if all_binary:
        sizes = [output["parameters"]["binary_data_size"] for output in head["outputs"]]
        assert found[length:] == element(b"a") + element("ä".encode()) + np.array([0.5, -math.inf], "<f4").tobytes()
        assert sizes == [11, 8]
    else:
        assert length is None
        assert [output["data"] for output in head["outputs"]] == [["a", "ä"], [0.5, float(np.finfo(np.float32).min)]]
