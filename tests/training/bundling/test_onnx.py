"""Tests of the ONNX graphs: equal to the module at any size, weights stored once, nothing of this machine inside.

Shapes: `N` positions, `V` classes, `d` hidden size.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor, nn

from models.backend.onnx import OnnxBackend
from models.bundle.manifest import Graph
from training.bundling.bundle import WrittenBundle
from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph, contract
from training.bundling.onnx import WEIGHTS, save_graphs, to_onnx
from training.networks.causal_transformer import CausalHead, CausalSettings, CausalTransformer, LayerSettings
from training.networks.language_model import RecurrentLanguageModel
from training.softmax import GeneralizedSoftmax
from training.softmax.kernels import KERNELS
from training.softmax.mixture import KernelSpec
from training.tasks.causal_language_model.graphs import causal_graphs
from training.tasks.language_model.graphs import example_inputs, language_model_graphs

Trace = Callable[[ExportGraph], onnx.ModelProto]


@pytest.fixture(scope="module")
def backend(tiny_export: WrittenBundle) -> OnnxBackend:
    return OnnxBackend(tiny_export.path, tiny_export.manifest, threads=1)


@pytest.fixture
def graphs(tiny_model: RecurrentLanguageModel) -> Mapping[str, ExportGraph]:
    return language_model_graphs(tiny_model)


@pytest.fixture
def models(graphs: Mapping[str, ExportGraph], traced_once: Trace) -> dict[str, onnx.ModelProto]:
    return {name: traced_once(graph) for name, graph in graphs.items()}


# ---- equal to the module ----------------------------------------------------------------------------------


def _assert_equal(backend: OnnxBackend, name: str, graph: ExportGraph, inputs: tuple[Tensor, ...]) -> None:
    names = [spec.name for spec in graph.contract.outputs]
    feed = {spec.name: value.numpy() for spec, value in zip(graph.contract.inputs, inputs, strict=True)}
    got, expected = backend.run(name, feed, names), graph.module(*inputs)
    valid = torch.arange(inputs[0].shape[1]) < inputs[1][:, None]
    for output, result, value in zip(names, got, expected, strict=True):
        assert result.shape == value.shape
        if output == "log_probabilities" and name == "score":
            result, value = result[valid.numpy()], value[valid]
        if output != "words":  # words of equal probability may change places
            np.testing.assert_allclose(result, value.numpy(), rtol=0, atol=1e-4)


class _Targets(nn.Module):
    """The exported output layer of language models of words."""

    def __init__(self, layer: GeneralizedSoftmax) -> None:
        super().__init__()
        self._folded = FoldedSoftmax(layer)

    def forward(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor]:
        return (self._folded.target_log_prob(hidden, targets),)


def _outputs(graph: ExportGraph, *inputs: Tensor) -> dict[str, NDArray[np.float32]]:
    session = onnxruntime.InferenceSession(to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    names = [spec.name for spec in graph.contract.outputs]
    feed = {spec.name: value.numpy() for spec, value in zip(graph.contract.inputs, inputs, strict=True)}
    return dict(zip(names, session.run(names, feed), strict=True))


def test_normalizers_of_large_vocabularies_are_exact() -> None:
    """ONNX Runtime's ReduceLogSumExp is off by 2.5e-4 here, since it adds classes one by one in float32.

    How many it adds side by side otherwise is the processor's: without AVX-512 the largest error is 2.6e-5.
    """
    count, size = 150_000, 4
    torch.manual_seed(0)
    hidden, targets = 3.0 * torch.randn(5, size), torch.randint(count, (5,))
    settings = CausalSettings(
        vocab_size=count, hidden_size=size, inner_size=4, heads=1, key_value_heads=1, head_size=4, positions=8,
        layers=(LayerSettings(),), activation="relu", norm="rms", epsilon=1e-5
    )  # fmt: skip
    head = CausalHead(settings)
    torch.nn.init.normal_(head.linear.weight)
    expected = (hidden.double() @ head.linear.weight.detach().double().T).log_softmax(-1)
    chosen = expected.gather(1, targets[:, None])[:, 0].numpy()
    groups = (torch.rand(count, 2) < 0.5).float()

    predict = causal_graphs(CausalTransformer(settings), head)["predict"]
    found = _outputs(predict, hidden, torch.arange(5), targets, groups, torch.tensor(3))
    np.testing.assert_allclose(found["log_probabilities"], chosen, rtol=0, atol=2e-5)
    np.testing.assert_allclose(found["all_log_probabilities"], expected.numpy(), rtol=0, atol=4e-5)
    np.testing.assert_allclose(found["entropy"], -(expected.exp() * expected).sum(-1).numpy(), rtol=0, atol=1e-4)
    masses = (expected.exp() @ groups.double()).log().numpy()
    np.testing.assert_allclose(found["group_log_probabilities"], masses, rtol=0, atol=2e-5)

    layer = GeneralizedSoftmax(count, size, "lin")
    layer.weight.data.copy_(head.linear.weight.detach())
    scored = contract(
        {"hidden": ("float32", ("positions", size)), "targets": ("int64", ("positions",))},
        {"scores": ("float32", ("positions",))},
    )
    found = _outputs(ExportGraph(_Targets(layer), scored, (hidden, targets)), hidden, targets)
    np.testing.assert_allclose(found["scores"], chosen, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("batch_size", "steps"), [(1, 1), (1, 40), (6, 1), (5, 11)])
@pytest.mark.parametrize("k", [1, 3, "V"])
def test_next_words_equals_the_module(
    batch_size: int,
    steps: int,
    k: int | str,
    backend: OnnxBackend,
    graphs: Mapping[str, ExportGraph],
    tiny_model: RecurrentLanguageModel,
) -> None:
    count = tiny_model.output_layer.weight.shape[0] if k == "V" else int(k)
    inputs = example_inputs(tiny_model, batch_size=batch_size, steps=steps, seed=20)
    _assert_equal(backend, "next_words", graphs["next_words"], (*inputs, torch.tensor(count)))


@pytest.mark.parametrize(("batch_size", "steps"), [(1, 1), (1, 40), (6, 1), (5, 11)])
def test_score_equals_the_module(
    batch_size: int,
    steps: int,
    backend: OnnxBackend,
    graphs: Mapping[str, ExportGraph],
    tiny_model: RecurrentLanguageModel,
) -> None:
    inputs = example_inputs(tiny_model, batch_size=batch_size, steps=steps, seed=21)
    _assert_equal(backend, "score", graphs["score"], (*inputs, inputs[0].flip(1)))


def test_words_are_the_most_probable(
    backend: OnnxBackend, graphs: Mapping[str, ExportGraph], tiny_model: RecurrentLanguageModel
) -> None:
    inputs = (*example_inputs(tiny_model, batch_size=5, steps=4, seed=22), torch.tensor(3))
    contract = graphs["next_words"].contract
    feed = {spec.name: value.numpy() for spec, value in zip(contract.inputs, inputs, strict=True)}
    (words,) = backend.run("next_words", feed, ["words"])
    np.testing.assert_array_equal(words, graphs["next_words"].module(*inputs)[1].numpy())


class _Distributions(nn.Module):
    """Output layers of one size: `[N, d]` -> one `[N, V]` each."""

    def __init__(self, layers: list[GeneralizedSoftmax]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, hidden: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer.log_prob(hidden) for layer in self.layers)


def test_every_kernel_can_be_exported() -> None:
    """V d 4 bytes is above the size from which transposed copies of weights are undone. One graph, to trace once."""
    torch.manual_seed(0)
    layers: list[list[KernelSpec]] = [*([name] for name in KERNELS), [{"name": "pow", "p": 1.5}, "lin"]]
    module = _Distributions([GeneralizedSoftmax(150, 8, kernels) for kernels in layers]).eval().requires_grad_(False)
    outputs = [f"log_probabilities_{number}" for number in range(len(layers))]
    contract = Graph.model_validate(
        {
            "inputs": [{"name": "hidden", "dtype": "float32", "shape": ["positions", 8]}],
            "outputs": [{"name": name, "dtype": "float32", "shape": ["positions", 150]} for name in outputs],
        },
        strict=False,
    )
    model = to_onnx(ExportGraph(module, contract, (torch.randn(3, 8),)))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 3, 10):
        hidden = torch.randn(count, 8)
        results = session.run(outputs, {"hidden": hidden.numpy()})
        for kernels, result, expected in zip(layers, results, module(hidden), strict=True):
            np.testing.assert_allclose(result, expected.numpy(), rtol=0, atol=1e-5, err_msg=str(kernels))


# ---- content of the files ---------------------------------------------------------------------------------


def test_inputs_and_outputs_are_those_of_the_contract(
    models: dict[str, onnx.ModelProto], graphs: Mapping[str, ExportGraph]
) -> None:
    for name, model in models.items():
        contract = graphs[name].contract
        for values, specs in ((model.graph.input, contract.inputs), (model.graph.output, contract.outputs)):
            assert [value.name for value in values] == [spec.name for spec in specs]
            for value, spec in zip(values, specs, strict=True):
                shape = value.type.tensor_type.shape.dim
                assert tuple(dim.dim_param or dim.dim_value for dim in shape) == spec.shape


def test_each_layer_is_one_lstm_operator(models: dict[str, onnx.ModelProto]) -> None:
    for model in models.values():
        operators = Counter(node.op_type for node in model.graph.node)
        assert operators["LSTM"] == 2
        assert not operators.keys() & {"Loop", "Scan", "If"}
        assert {opset.domain for opset in model.opset_import} <= {"", "ai.onnx"}


def test_no_weight_is_stored_transposed_as_well(models: dict[str, onnx.ModelProto]) -> None:
    for model in models.values():
        matrices = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if len(tensor.dims) == 2]
        large = [matrix for matrix in matrices if matrix.nbytes >= 4096]
        assert large
        for i, matrix in enumerate(large):
            for other in large[:i]:
                assert not np.array_equal(matrix, other.T)


def test_weights_of_all_graphs_are_stored_once(tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel) -> None:
    size = sum(parameter.numel() * parameter.element_size() for parameter in tiny_model.parameters())
    assert 0.8 * size < (tiny_export.path / WEIGHTS).stat().st_size < 1.2 * size
    assert all((tiny_export.path / f"{name}.onnx").stat().st_size < 0.3 * size for name in ("score", "next_words"))


def test_files_hold_nothing_of_the_machine_that_wrote_them(tiny_bundle: Path) -> None:
    for name in ("next_words.onnx", "score.onnx"):
        content = (tiny_bundle / name).read_bytes()
        here = str(Path(__file__).parents[3]).encode()
        for trace in (here, b".py", b"site-packages", b"/home/", b"/tmp/", b"Traceback", b'File "', b"stack_trace"):
            assert trace not in content


# ---- save_graphs ------------------------------------------------------------------------------------------


def _adds(name: str, *weights: np.ndarray) -> onnx.ModelProto:
    """A graph that adds weights of equal shape to its input."""
    shape = weights[0].shape
    values = [onnx.helper.make_tensor_value_info(which, onnx.TensorProto.FLOAT, shape) for which in ("x", "y")]
    nodes, last = [], "x"
    for index in range(len(weights)):
        result = "y" if index == len(weights) - 1 else f"sum{index}"
        nodes.append(onnx.helper.make_node("Add", [last, f"w{index}"], [result]))
        last = result
    tensors = [numpy_helper.from_array(weight, f"w{index}") for index, weight in enumerate(weights)]
    graph = onnx.helper.make_graph(nodes, name, values[:1], values[1:], tensors)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)


def _result(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], {"x": x})[0])


def test_equal_weights_are_stored_once_across_graphs(tmp_path: Path) -> None:
    """1024 floats are 4096 bytes, the size of a page, and large enough to share: a and b once, a + b = two pages."""
    a, b = (np.full(1024, value, np.float32) for value in (1.0, 2.0))
    files = save_graphs({"one": _adds("one", a, b), "two": _adds("two", a)}, tmp_path)
    assert files == ["one.onnx", "two.onnx", WEIGHTS]
    assert (tmp_path / WEIGHTS).read_bytes() == a.tobytes() + b.tobytes()
    zeros = np.zeros(1024, np.float32)
    np.testing.assert_array_equal(_result(tmp_path / "one.onnx", zeros), a + b)
    np.testing.assert_array_equal(_result(tmp_path / "two.onnx", zeros), a)


def test_weights_start_at_pages(tmp_path: Path) -> None:
    """1025 floats are 4100 bytes: the second weight starts at 8192."""
    a, b = (np.full(1025, value, np.float32) for value in (1.0, 2.0))
    save_graphs({"one": _adds("one", a, b)}, tmp_path)
    content = (tmp_path / WEIGHTS).read_bytes()
    assert len(content) == 8192 + 4100
    assert content[:4100] == a.tobytes()
    assert content[8192:] == b.tobytes()
    np.testing.assert_array_equal(_result(tmp_path / "one.onnx", a), a + a + b)


def test_small_weights_stay_in_their_graph(tmp_path: Path) -> None:
    small = np.arange(1023, dtype=np.float32)
    save_graphs({"one": _adds("one", small)}, tmp_path)
    assert (tmp_path / WEIGHTS).read_bytes() == b""
    np.testing.assert_array_equal(_result(tmp_path / "one.onnx", small), 2 * small)


def test_saving_leaves_the_models_as_they_were(tmp_path: Path) -> None:
    """They are used again: quantization starts from the same models."""
    model = _adds("one", np.ones(1024, np.float32))
    before = model.SerializeToString(deterministic=True)
    save_graphs({"one": model}, tmp_path)
    assert model.SerializeToString(deterministic=True) == before
