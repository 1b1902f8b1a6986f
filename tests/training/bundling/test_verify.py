"""Tests of the check that an export computes what the model computes."""

import copy
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from models.backend import Array, Backend
from models.backend.onnx import OnnxBackend
from models.bundle.manifest import Manifest
from models.reading import read_manifest
from training.bundling.bundle import WrittenBundle
from training.bundling.onnx import WEIGHTS
from training.bundling.verify import TOLERANCE, ExportError, verify_bundle, verify_device_graphs
from training.networks.language_model import RecurrentLanguageModel
from training.run.directory import RunDirectory
from training.run.session import load_trained
from training.tasks.language_model.graphs import language_model_graphs
from training.tasks.language_model.verification import SHAPES, largest_difference

# torch deprecates TorchScript; it stays a backend because users asked for it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    return Path(shutil.copytree(tiny_bundle, tmp_path / "toy" / "1"))


def _spoil(bundle: Path, value: float) -> None:
    """Replaces one number among the ONNX graphs' weights; nothing checks checksums here."""
    weights = np.fromfile(bundle / WEIGHTS, np.float32)
    weights[5] = value
    weights.tofile(bundle / WEIGHTS)


def _without_torchscript(manifest: Manifest) -> Manifest:
    graphs = {name: graph.model_copy(update={"torchscript": None}) for name, graph in manifest.graphs.items()}
    return manifest.model_copy(update={"graphs": graphs})


def _difference_from(model: RecurrentLanguageModel) -> Callable[[Backend], float]:
    return partial(largest_difference, model=model, graphs=language_model_graphs(model))


def test_a_sound_bundle_passes_with_both_backends(
    tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel
) -> None:
    differences = verify_bundle(tiny_export.path, tiny_export.manifest, _difference_from(tiny_model))
    assert list(differences) == ["onnx", "torchscript"]
    assert all(0 <= difference <= TOLERANCE for difference in differences.values())


def test_only_the_backends_a_bundle_has_are_compared(
    tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel
) -> None:
    manifest = _without_torchscript(tiny_export.manifest)
    assert list(verify_bundle(tiny_export.path, manifest, _difference_from(tiny_model))) == ["onnx"]


def test_graphs_for_gpus_are_held_to_what_int8_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = Path(__file__).parents[3] / "models" / "bundled" / "intents" / "2"
    manifest, differences = read_manifest(bundle), {"classify.onnx": 0.1, "classify.cuda.onnx": 0.15}

    def largest(backend: Backend) -> float:
        assert isinstance(backend, OnnxBackend)
        (session,) = backend._sessions.values()
        return differences[Path(session._model_path).name]

    verify_device_graphs(bundle, manifest, largest)
    for wrong in (0.25, math.nan):
        differences["classify.cuda.onnx"] = wrong
        with pytest.raises(ExportError, match=r"the graphs for GPUs differ from the model by .* above 2.00e-01"):
            verify_device_graphs(bundle, manifest, largest)


def test_a_bundle_without_graphs_for_gpus_is_not_compared(tiny_export: WrittenBundle) -> None:
    verify_device_graphs(tiny_export.path, tiny_export.manifest, lambda backend: math.nan)


def test_sizes_differ_from_the_traced_ones() -> None:
    assert (1, 1) in SHAPES
    assert len({batch_size for batch_size, _ in SHAPES} - {3}) >= 2
    assert len({steps for _, steps in SHAPES} - {7}) >= 2


def test_tampered_weights_are_found(
    bundle: Path, tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel
) -> None:
    _spoil(bundle, 3.0)
    with pytest.raises(ExportError, match=r"the onnx graphs differ from the model by .* above 1e-04"):
        verify_bundle(bundle, tiny_export.manifest, _difference_from(tiny_model))


def test_a_weight_that_is_no_number_is_found(
    bundle: Path, tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel
) -> None:
    _spoil(bundle, math.nan)
    with pytest.raises(ExportError, match="the onnx graphs differ from the model by nan"):
        verify_bundle(bundle, tiny_export.manifest, _difference_from(tiny_model))


def test_a_model_whose_outputs_are_no_numbers_is_found(
    tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel
) -> None:
    broken = copy.deepcopy(tiny_model)
    torch.nn.init.constant_(broken.output_layer.prior, math.nan)
    with pytest.raises(ExportError, match="nan"):
        verify_bundle(tiny_export.path, tiny_export.manifest, _difference_from(broken))


Run = Callable[..., list[Array]]


def _as_eager(model: RecurrentLanguageModel) -> Run:
    """`OnnxBackend.run` that gives what the model gives, so that only the other backend can differ."""
    graphs = language_model_graphs(model)

    def run(backend: OnnxBackend, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        contract = graphs[graph].contract
        results = graphs[graph].module(*(torch.as_tensor(inputs[spec.name]) for spec in contract.inputs))
        by_name = {spec.name: value.numpy() for spec, value in zip(contract.outputs, results, strict=True)}
        return [by_name[name] for name in outputs]

    return run


def test_the_torchscript_file_is_compared_too(
    tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copy.deepcopy(tiny_model)
    other.output_layer.projections[0] += 0.1
    monkeypatch.setattr(OnnxBackend, "run", _as_eager(other))
    with pytest.raises(ExportError, match="the torchscript graphs differ"):
        verify_bundle(tiny_export.path, tiny_export.manifest, _difference_from(other))


def test_largest_difference_is_what_was_added(
    tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend whose entropy is 0.25 too high differs by 0.25."""
    exact = _as_eager(tiny_model)

    def run(backend: OnnxBackend, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        results = exact(backend, graph, inputs, outputs)
        return [value + 0.25 if name == "entropy" else value for name, value in zip(outputs, results, strict=True)]

    monkeypatch.setattr(OnnxBackend, "run", run)
    backend = OnnxBackend(tiny_export.path, tiny_export.manifest, threads=1)
    assert largest_difference(backend, tiny_model, language_model_graphs(tiny_model)) == pytest.approx(0.25)


def test_what_lies_behind_a_length_is_not_compared(
    tiny_export: WrittenBundle, tiny_model: RecurrentLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = _as_eager(tiny_model)

    def run(backend: OnnxBackend, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        results = dict(zip(outputs, exact(backend, graph, inputs, outputs), strict=True))
        if graph == "score":
            padded = np.arange(inputs["tokens"].shape[1]) >= inputs["lengths"][:, None]
            results["log_probabilities"] = np.where(padded, np.float32(-99), results["log_probabilities"])
        return list(results.values())

    monkeypatch.setattr(OnnxBackend, "run", run)
    backend = OnnxBackend(tiny_export.path, tiny_export.manifest, threads=1)
    assert largest_difference(backend, tiny_model, language_model_graphs(tiny_model)) == 0


# ---- sparse layers ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sparse_model(sparse_run: RunDirectory) -> RecurrentLanguageModel:
    return load_trained(sparse_run, device="cpu").model


def _probable(values: Array) -> Array:
    """Return outputs in which the least probable possible word is impossible."""
    least = np.where(np.isneginf(values), np.inf, values).argmin(-1)
    result = values.copy()
    np.put_along_axis(result, least[..., None], -np.inf, -1)
    return result


def test_minus_infinity_in_the_same_places_is_no_difference(
    sparse_export: WrittenBundle, sparse_model: RecurrentLanguageModel
) -> None:
    largest = _difference_from(sparse_model)
    differences = verify_bundle(sparse_export.path, sparse_export.manifest, largest)
    assert all(0 <= difference <= TOLERANCE for difference in differences.values())


def test_another_word_that_is_impossible_is_found(
    sparse_export: WrittenBundle, sparse_model: RecurrentLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = _as_eager(sparse_model)

    def run(backend: OnnxBackend, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        results = dict(zip(outputs, exact(backend, graph, inputs, outputs), strict=True))
        if graph == "next_words":
            results["log_probabilities"] = _probable(results["log_probabilities"])
        return list(results.values())

    monkeypatch.setattr(OnnxBackend, "run", run)
    with pytest.raises(ExportError, match="differ from the model by inf"):
        verify_bundle(sparse_export.path, sparse_export.manifest, _difference_from(sparse_model))


def test_positions_that_rounding_may_decide_are_not_compared(
    sparse_export: WrittenBundle, sparse_model: RecurrentLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the words come in pairs whose vectors differ by 1e-6, so that places 4 and 5 are often a pair's.

    The backend ranks the two the other way round.
    """
    model = copy.deepcopy(sparse_model)
    model.output_layer.left.zero_()
    half = model.output_layer.weight.shape[0] // 2
    other = copy.deepcopy(model)
    for each, factor in ((model, 1 + 1e-6), (other, 1 - 1e-6)):
        pairs = each.output_layer.weight[half : half + half // 2 * 2].unflatten(0, (-1, 2))
        pairs[:, 1] = pairs[:, 0] * factor
    monkeypatch.setattr(OnnxBackend, "run", _as_eager(other))
    backend = OnnxBackend(sparse_export.path, sparse_export.manifest, threads=1)
    assert largest_difference(backend, model, language_model_graphs(model)) <= TOLERANCE
    monkeypatch.setattr("training.tasks.language_model.verification.TOLERANCE", -1.0)  # all are compared
    assert largest_difference(backend, model, language_model_graphs(model)) > 0.1


def test_where_no_position_can_be_compared_nothing_is_promised(
    sparse_export: WrittenBundle, sparse_model: RecurrentLanguageModel
) -> None:
    model = copy.deepcopy(sparse_model)
    for parameter in model.output_layer.parameters():
        parameter.zero_()
    with pytest.raises(ExportError, match="no position tells the 4 best words from the others"):
        verify_bundle(sparse_export.path, sparse_export.manifest, _difference_from(model))
