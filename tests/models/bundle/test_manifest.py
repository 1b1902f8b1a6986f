"""Tests of the schema of manifests; tests of reading them are in test_reading.py."""

import pytest
from pydantic import ValidationError

from models.bundle.contract import Contract, PositiveInt
from models.bundle.manifest import Graph, upgraded

SPEC = {"inputs": (), "outputs": ()}


def test_the_files_of_a_graph():
    graph = Graph(onnx="a.onnx", torchscript="a.pt", devices={"cuda": "a.cuda.onnx"}, **SPEC)
    assert graph.files() == {"a.onnx", "a.pt", "a.cuda.onnx"}
    assert Graph(**SPEC).files() == set()


@pytest.mark.parametrize("devices", [{"tpu": "a.onnx"}, {"cuda": "../a.onnx"}, {"cuda": None}])
def test_kinds_of_device_are_known_and_files_plain(devices):
    with pytest.raises(ValidationError, match="devices"):
        Graph(onnx="a.onnx", devices=devices, **SPEC)


def test_fields_of_format_1_become_the_section_of_the_task():
    old = {"format_version": 1, "task": "t", "network": {"kind": "n"}, "classes": None, "limits": {"a": 1, "b": None}}
    assert upgraded(old) == {
        "format_version": 2,
        "task": "t",
        "config": {"network": {"kind": "n"}, "limits": {"a": 1}},
    }


@pytest.mark.parametrize("content", [{"format_version": 2, "network": 1}, {"network": 1}, {}])
def test_other_content_stays_as_it_is(content):
    assert upgraded(content) == content


class Part(Contract):
    count: PositiveInt
    share: float = 0.5


@pytest.mark.parametrize(
    "content", [{}, {"count": 0}, {"count": "1"}, {"count": 1, "size": 2}, {"count": 1, "share": float("nan")}], ids=str
)
def test_what_does_not_fit_is_refused(content):
    with pytest.raises(ValidationError):
        Part.model_validate(content)


def test_a_part_does_not_change():
    part = Part(count=1)
    with pytest.raises(ValidationError, match="frozen"):
        part.count = 2
