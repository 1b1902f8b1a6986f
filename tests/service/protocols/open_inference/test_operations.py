"""Tests of results as tensors."""

import math
from types import SimpleNamespace

import pytest

from models.tasks.labels import Label
from models.tasks.registry import TASKS
from models.tasks.text_classification import Classification, Classifier
from service.engine.caller import Account, Caller
from service.protocols.open_inference.operations import Call, of_texts, of_tokens
from service.protocols.open_inference.tensors import parse_request

RAGGED = [
    Classification("a", (Label("x", math.log(0.75)), Label("y", math.log(0.25))), None),
    Classification("b", (Label("y", 0.0),), True),
]


@pytest.mark.anyio
async def test_rows_without_all_classes_are_filled_up():
    async def run(job):
        return SimpleNamespace(results=RAGGED)

    inputs = parse_request(
        b'{"inputs":[{"name":"text","shape":[2],"datatype":"BYTES","data":["a","b"]}]}', None, 1000
    ).inputs
    model = SimpleNamespace(operations=Classifier.operations, tells_out_of_scope=True)
    served = SimpleNamespace(key=("it", 1), model=model)
    call = Call(engine=SimpleNamespace(run=run), caller=Caller(Account()), served=served, inputs=inputs, parameters={})
    label, probability, outside = await of_texts(model)["classify"].run(call)
    assert (label.shape, label.values) == ((2, 2), [b"x", b"y", b"y", b""])
    assert probability.values.tolist() == pytest.approx([0.75, 0.25, 1.0, 0.0])
    assert outside.values.tolist() == [False, True]


def test_outputs_are_named_once():
    model = SimpleNamespace(
        operations=[each for task in TASKS.values() for each in task.operations], tells_out_of_scope=True
    )
    for operation in (*of_texts(model).values(), *of_tokens(model).values()):
        names = [spec.name for spec in operation.outputs]
        assert len(set(names)) == len(names)
