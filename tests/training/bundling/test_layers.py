"""Tests of exported output layers, sparse and untied ones, in both backends: ties, other sizes, minus infinity.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

import io
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from models.bundle.manifest import Graph
from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph
from training.bundling.onnx import to_onnx
from training.softmax import GeneralizedSoftmax

V, D = 150, 8
COUNTS = (1, 2, 10)
"""Positions to compare at; 3 is the traced number."""

LAYERS: Mapping[str, dict[str, Any]] = {
    "single": {"kernels": "lin", "sparse_k": 7},
    "one word": {"kernels": "pow", "sparse_k": 1},
    "all but one": {"kernels": "log", "sparse_k": V - 1},
    "all": {"kernels": "lin", "sparse_k": V},
    "mixture": {"kernels": "2*lin,pow", "sparse_k": 7},
    "bounded": {"kernels": "rbf,wav", "sparse_k": 7},
    "entmax": {"kernels": "pow", "alpha": 1.5},
    "sparsemax": {"kernels": "lin", "alpha": 2.0, "bias": True},
    "directions": {"kernels": "cos,vmf", "bias": True},
    "biased": {"kernels": "lin", "bias": True},
    "low rank": {"kernels": "lin,pow", "untied": 2},
    "full": {"kernels": "lin,log,mog", "untied": "full"},
    "sparse low rank": {"kernels": "lin,log", "untied": 2, "sparse_k": 7},
    "sparse full": {"kernels": "pow,hpb", "untied": "full", "sparse_k": 7},
}
SPARSE = [name for name, options in LAYERS.items() if options.get("sparse_k", V) < V]
Run = Callable[[Tensor, Tensor], dict[str, tuple[np.ndarray, np.ndarray]]]


class _Layers(nn.Module):
    """Several layers in one graph, to trace once: `[N, d]`, `[N]` -> for each `[N, V]`, `[N]`."""

    def __init__(self, layers: Mapping[str, GeneralizedSoftmax]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(FoldedSoftmax(layer) for layer in layers.values())

    def forward(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            output
            for layer in self.layers
            for output in (layer.log_prob(hidden), layer.target_log_prob(hidden, target))  # type: ignore[operator]
        )


@pytest.fixture(scope="module")
def layers() -> dict[str, GeneralizedSoftmax]:
    """Weights, context vectors and h_k are small whole numbers, so that scores are exact and many of them equal."""
    generator = torch.Generator().manual_seed(0)
    made = {name: GeneralizedSoftmax(V, D, **options).eval().requires_grad_(False) for name, options in LAYERS.items()}
    for layer in made.values():
        for parameter in layer.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator).float())
        if layer.num_components > 1:
            layer.projections.mul_(50)  # tanh of it is -1, 0 or 1
    return made


def _inputs(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randint(-2, 3, (count, D), generator=generator).float()
    return hidden, torch.randint(V, (count,), generator=generator)


def _by_name(outputs: Any, names: Iterable[str] = LAYERS) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    arrays = [np.asarray(output) for output in outputs]
    return {name: (arrays[2 * i], arrays[2 * i + 1]) for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def onnx_run(layers: dict[str, GeneralizedSoftmax]) -> Run:
    names = list(layers)  # the exporter takes time that grows with the square of a graph's size
    parts = [_onnx_run({name: layers[name] for name in part}) for part in (names[::3], names[1::3], names[2::3])]
    return lambda hidden, target: {name: found for run in parts for name, found in run(hidden, target).items()}


def _onnx_run(layers: Mapping[str, GeneralizedSoftmax]) -> Run:
    outputs = [
        {"name": f"{kind}{i}", "dtype": "float32", "shape": shape}
        for i in range(len(layers))
        for kind, shape in (("all", ["positions", V]), ("one", ["positions"]))
    ]
    inputs = [
        {"name": "hidden", "dtype": "float32", "shape": ["positions", D]},
        {"name": "target", "dtype": "int64", "shape": ["positions"]},
    ]
    contract = Graph.model_validate({"inputs": inputs, "outputs": outputs}, strict=False)
    model = to_onnx(ExportGraph(_Layers(layers), contract, _inputs(3, 0)))
    assert not {"Loop", "Scan", "If"} & {node.op_type for node in model.graph.node}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda hidden, target: _by_name(
        session.run(None, {"hidden": hidden.numpy(), "target": target.numpy()}), layers
    )


@pytest.fixture(scope="module")
def torchscript_run(layers: dict[str, GeneralizedSoftmax]) -> Run:
    """Traced at positions without ties, saved and loaded."""
    file, (hidden, target) = io.BytesIO(), _inputs(3, 0)
    with warnings.catch_warnings(), torch.no_grad():
        # torch deprecates TorchScript; it stays an export format because users asked for it.
        warnings.simplefilter("ignore")
        noise = 0.1 * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1))
        torch.jit.save(torch.jit.trace(_Layers(layers), (hidden + noise, target), check_trace=False), file)
        file.seek(0)
        loaded = torch.jit.load(file)
    return lambda hidden, target: _by_name(loaded(hidden, target))


@pytest.mark.parametrize("backend", ["onnx_run", "torchscript_run"])
@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_log_probabilities_equal_the_layers(
    name: str, backend: str, layers: dict[str, GeneralizedSoftmax], request: pytest.FixtureRequest
) -> None:
    run: Run = request.getfixturevalue(backend)
    for count in COUNTS:
        hidden, target = _inputs(count, 10 + count)
        got, got_target = run(hidden, target)[name]
        expected = layers[name].log_prob(hidden)
        np.testing.assert_array_equal(np.isneginf(got), np.isneginf(expected.numpy()))
        np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=1e-4)
        expected_target = layers[name].target_log_prob(hidden, target).numpy()
        np.testing.assert_array_equal(np.isneginf(got_target), np.isneginf(expected_target))
        np.testing.assert_allclose(got_target, expected_target, rtol=0, atol=1e-4)


@pytest.mark.parametrize("backend", ["onnx_run", "torchscript_run"])
def test_of_a_single_kernel_exactly_k_classes_are_left(backend: str, request: pytest.FixtureRequest) -> None:
    results = request.getfixturevalue(backend)(*_inputs(10, 5))
    for name, k in (("single", 7), ("one word", 1), ("all but one", V - 1), ("all", V)):
        assert np.isfinite(results[name][0]).sum(-1).tolist() == [k] * 10


@pytest.mark.parametrize("backend", ["onnx_run", "torchscript_run"])
def test_where_all_scores_are_equal_the_first_classes_are_kept(backend: str, request: pytest.FixtureRequest) -> None:
    """h = 0 makes every inner product 0, and h_k too."""
    target = torch.tensor([6, 7])
    log_prob, of_target = request.getfixturevalue(backend)(torch.zeros(2, D), target)["single"]
    np.testing.assert_allclose(log_prob[:, :7], -math.log(7), rtol=1e-6)
    assert np.isneginf(log_prob[:, 7:]).all()
    assert of_target.tolist() == [pytest.approx(-math.log(7)), -math.inf]


@pytest.mark.parametrize("name", SPARSE)
@torch.no_grad()
def test_these_cases_have_ties_and_impossible_targets(name: str, layers: dict[str, GeneralizedSoftmax]) -> None:
    """Else the tests above would show little."""
    layer, (hidden, target) = layers[name], _inputs(10, 20)
    assert layer.sparse_k is not None
    best = torch.stack(layer.scores(hidden)).topk(layer.sparse_k + 1).values
    assert (best[..., -1] == best[..., -2]).any()
    if layer.sparse_k < 100:
        assert layer.target_log_prob(hidden, target).isinf().any()
