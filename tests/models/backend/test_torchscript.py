"""Tests of the TorchScript backend: equal to ONNX Runtime, `k` an input, clear errors."""

import shutil
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from models.backend import Array
from models.backend.onnx import OnnxBackend
from models.backend.torchscript import TorchScriptBackend
from models.bundle.manifest import Manifest
from models.errors import BundleError, UnsupportedDeviceError
from models.reading import read_manifest
from models.store import load_bundle

# torch deprecates TorchScript; it stays a backend because users asked for it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
NEXT_WORDS = ["log_probabilities", "words", "entropy", "mixture_weights", "next_hidden", "next_cell"]


@pytest.fixture(scope="module")
def manifest(tiny_bundle: Path) -> Manifest:
    return read_manifest(tiny_bundle)


@pytest.fixture
def backend(tiny_bundle: Path, manifest: Manifest) -> TorchScriptBackend:
    return TorchScriptBackend(tiny_bundle, manifest)


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    return Path(shutil.copytree(tiny_bundle, tmp_path / "toy" / "1"))


def _inputs(manifest: Manifest, lengths: list[int], seed: int = 0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    network, shape = manifest.config.network, (len(lengths), max(lengths))
    state = (network.num_layers, len(lengths), network.hidden_size)
    return {
        "tokens": generator.integers(manifest.config.vocab_size, size=shape),
        "lengths": np.array(lengths),
        "hidden": generator.uniform(-1, 1, state).astype(np.float32),
        "cell": generator.uniform(-1, 1, state).astype(np.float32),
    }


def _assert_equal_to_onnx(
    backend: TorchScriptBackend, bundle: Path, manifest: Manifest, graph: str, feed: Mapping[str, Array]
) -> None:
    outputs = NEXT_WORDS if graph == "next_words" else ["log_probabilities", "next_hidden", "next_cell"]
    expected = OnnxBackend(bundle, manifest, threads=1).run(graph, feed, outputs)
    for name, ours, theirs in zip(outputs, backend.run(graph, feed, outputs), expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if graph == "score" and name == "log_probabilities":
            valid = np.arange(ours.shape[1]) < feed["lengths"][:, None]
            ours, theirs = ours[valid], theirs[valid]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("lengths", [[1], [9], [1, 1], [4, 9, 2]], ids=str)
@pytest.mark.parametrize("k", [1, 2, "V"])
def test_next_words_equals_onnx(
    lengths: list[int], k: int | str, backend: TorchScriptBackend, tiny_bundle: Path, manifest: Manifest
) -> None:
    count = manifest.config.vocab_size if k == "V" else k
    feed = {**_inputs(manifest, lengths), "k": np.array(count)}
    _assert_equal_to_onnx(backend, tiny_bundle, manifest, "next_words", feed)
    assert backend.run("next_words", feed, ["words"])[0].shape == (len(lengths), count)


@pytest.mark.parametrize("lengths", [[1], [9], [4, 9, 2]], ids=str)
def test_score_equals_onnx(
    lengths: list[int], backend: TorchScriptBackend, tiny_bundle: Path, manifest: Manifest
) -> None:
    feed = _inputs(manifest, lengths)
    _assert_equal_to_onnx(backend, tiny_bundle, manifest, "score", {**feed, "targets": feed["tokens"][:, ::-1].copy()})


def test_outputs_come_as_asked_for(backend: TorchScriptBackend, manifest: Manifest) -> None:
    feed = {**_inputs(manifest, [3, 2]), "k": np.array(4)}
    everything = dict(zip(NEXT_WORDS, backend.run("next_words", feed, NEXT_WORDS), strict=True))
    some = ["entropy", "words"]
    for name, value in zip(some, backend.run("next_words", feed, some), strict=True):
        np.testing.assert_array_equal(value, everything[name])


def test_a_whole_model_runs_on_it(tiny_bundle: Path) -> None:
    ours, theirs = (load_bundle(tiny_bundle, backend=name, threads=1) for name in ("torchscript", "onnx"))
    texts = ["Two cats know one dog.", "", "One unheard-of ox"]
    assert ours.backend.name == "torchscript"
    for a, b in zip(ours.score(texts), theirs.score(texts), strict=True):
        assert a.log_probability == pytest.approx(b.log_probability, abs=1e-3)
    for a, b in zip(ours.next_words(texts, 3), theirs.next_words(texts, 3), strict=True):
        assert [word.word for word in a.words] == [word.word for word in b.words]


def test_threads_may_share_it(backend: TorchScriptBackend, manifest: Manifest) -> None:
    feeds = [{**_inputs(manifest, [3, 1 + seed % 3], seed), "k": np.array(1 + seed)} for seed in range(12)]
    expected = [backend.run("next_words", feed, NEXT_WORDS) for feed in feeds]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda feed: backend.run("next_words", feed, NEXT_WORDS), feeds))
    for result, alone in zip(results, expected, strict=True):
        for a, b in zip(result, alone, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_results_need_no_gradient(backend: TorchScriptBackend, manifest: Manifest) -> None:
    """A result with a history could not become an array, and would keep every tensor before it alive."""
    feed = {**_inputs(manifest, [3]), "k": np.array(1)}
    with torch.enable_grad():
        assert all(isinstance(value, np.ndarray) for value in backend.run("next_words", feed, NEXT_WORDS))


def test_threads_are_set(tiny_bundle: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    TorchScriptBackend(tiny_bundle, manifest)
    TorchScriptBackend(tiny_bundle, manifest, threads=3)
    assert asked == [3]


# ---- errors -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_device_that_is_not_there_is_said(device: str, tiny_bundle: Path, manifest: Manifest) -> None:
    with pytest.raises(UnsupportedDeviceError, match="cuda"):
        TorchScriptBackend(tiny_bundle, manifest, device=device)


def test_a_device_that_torch_does_not_know_is_said(tiny_bundle: Path, manifest: Manifest) -> None:
    with pytest.raises(UnsupportedDeviceError, match="toaster"):
        TorchScriptBackend(tiny_bundle, manifest, device="toaster")


def test_a_bundle_without_torchscript_is_said_to_be(tiny_bundle: Path, manifest: Manifest) -> None:
    graphs = {name: graph.model_copy(update={"torchscript": None}) for name, graph in manifest.graphs.items()}
    with pytest.raises(BundleError) as caught:
        TorchScriptBackend(tiny_bundle, manifest.model_copy(update={"graphs": graphs}))
    assert set(caught.value.problems) == {f"graph {name!r} has no TorchScript file" for name in graphs}


@pytest.mark.parametrize("content", [b"", b"no TorchScript", None], ids=["empty", "other", "missing"])
def test_a_wrong_file_is_a_bundle_error(content: bytes | None, bundle: Path, manifest: Manifest) -> None:
    path = bundle / "language_model.pt"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BundleError, match=r"language_model\.pt"):
        TorchScriptBackend(bundle, manifest)


def test_another_number_of_inputs_or_outputs_is_a_bundle_error(tiny_bundle: Path, manifest: Manifest) -> None:
    score, next_words = manifest.graphs["score"], manifest.graphs["next_words"]
    graphs = {
        "score": score.model_copy(update={"inputs": score.inputs[1:]}),
        "next_words": next_words.model_copy(update={"outputs": next_words.outputs[1:]}),
        "other": score,
    }
    with pytest.raises(BundleError) as caught:
        TorchScriptBackend(tiny_bundle, manifest.model_copy(update={"graphs": graphs}))
    inputs, outputs = len(score.inputs), len(next_words.outputs)
    assert caught.value.problems == (
        f"graphs.score.inputs are {inputs - 1}, those of its method {inputs}",
        f"graphs.next_words.outputs are {outputs - 1}, those of its method {outputs}",
        "language_model.pt has no method other",
    )


def test_a_method_that_returns_no_tuple_is_a_bundle_error(bundle: Path, manifest: Manifest) -> None:
    class Single(torch.nn.Module):
        @torch.jit.export
        def score(self, tokens: torch.Tensor) -> torch.Tensor:
            return tokens

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(Single()), str(bundle / "language_model.pt"))
    score = manifest.graphs["score"].model_copy(update={"inputs": manifest.graphs["score"].inputs[:1]})
    with pytest.raises(BundleError, match="its method returns Tensor, not a tuple of tensors"):
        TorchScriptBackend(bundle, manifest.model_copy(update={"graphs": {"score": score}}))
