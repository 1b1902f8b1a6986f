"""Inputs and outputs of a manifest against those of a graph, by hand."""

import pytest

from models.backend.signature import FoundTensor, mismatches
from models.bundle.manifest import TensorSpec


def promised(name="tokens", dtype="int64", shape=("batch", "time")):
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def found(name="tokens", dtype="int64", shape=("B", None)):
    return FoundTensor(name, dtype, shape)


@pytest.mark.parametrize(
    ("spec", "tensor"),
    [
        (promised(), found()),
        (promised(shape=(2, "batch", 64)), found(shape=(2, "B", 64))),
        (promised(shape=(2, "batch")), found(shape=("anything", "B"))),  # the graph computes more than is promised
        (promised(shape=()), found(shape=())),
    ],
)
def test_names_of_dimensions_that_vary_do_not_matter(spec, tensor):
    assert list(mismatches("inputs", [spec], [tensor])) == []


@pytest.mark.parametrize(
    ("spec", "tensor", "problem"),
    [
        (promised(), found(dtype="float32"), "inputs.tokens is int64, in the graph float32"),
        (promised(), found(shape=("B",)), "inputs.tokens has 2 dimensions, in the graph 1"),
        (promised(shape=("b", 3)), found(shape=("B", 4)), "inputs.tokens has 3 in dimension 1, in the graph 4"),
        (promised(), found(shape=("B", 4)), "inputs.tokens has time in dimension 1, in the graph 4"),
    ],
)
def test_a_difference_is_named(spec, tensor, problem):
    assert list(mismatches("inputs", [spec], [tensor])) == [problem]


def test_every_difference_is_named_at_once_whatever_the_order():
    specs = [promised("a"), promised("b"), promised("c", "bool")]
    tensors = [found("d"), found("c"), found("a")]
    assert list(mismatches("outputs", specs, tensors)) == [
        "outputs.b is not in the graph",
        "outputs lacks d, which the graph has",
        "outputs.c is bool, in the graph int64",
    ]
