"""Exported translators that copy: the model's distributions and translations, alone and in batches, int8, weights.

The model is untrained but for its parameters, which are random: it copies and writes tokens in no order.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from models.bundle.manifest import Manifest
from models.decoding.beam_search import SearchOptions
from models.decoding.continuous import Footprint
from models.decoding.sequence_to_sequence import Decoder
from models.reading import load_manifest, validate
from models.store import load_bundle
from models.tasks.translation import Translator
from models.text.glossary import Glossary
from tests.models.reference_search import best
from tests.support.translation_bundle import make_bundle
from training.bundling.folding import FoldedSoftmax
from training.networks.translation_model import TranslationModel
from training.softmax import GeneralizedSoftmax, Source
from training.softmax.components import Copy
from training.tasks.translation.bundle_weights import bundle_model

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")

END = 1
_FIELDS = [
    "network.encoder_layers=1",
    "network.decoder_layers=1",
    "network.hidden_size=64",
    "output_layer.kernels=['pow', {'name': 'copy'}]",
]
LIMIT = 20


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("float32")
    return make_bundle(directory, "tiny", 300, [*_FIELDS, "export.quantization='none'", "export.torchscript=True"])


@pytest.fixture(scope="module")
def int8_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("int8"), "tiny", 300, _FIELDS)


@pytest.fixture(scope="module")
def manifest(bundle: Path) -> Manifest:
    return load_manifest(bundle)


@pytest.fixture(scope="module")
def model(bundle: Path) -> TranslationModel:
    return bundle_model(bundle)


def _loaded(bundle: Path, backend: Any = "onnx") -> Translator:
    translator = load_bundle(bundle, backend=backend, threads=1)
    assert isinstance(translator, Translator)
    return translator


@pytest.fixture(scope="module", params=["onnx", "torchscript"])
def decoder(request: pytest.FixtureRequest, bundle: Path, manifest: Manifest) -> Decoder:
    """A decoder whose outputs may be bytes that are no text, as those of the plain search."""
    translator = _loaded(bundle, request.param)
    footprint = Footprint.of_encoder(manifest.graphs["encode"], vocab_size=300)
    return Decoder(translator.backend, footprint, translator.config.special_tokens, reuse_slots=True)


def _source(seed: int, length: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(2, 300, length).tolist())


SOURCES = [*(_source(seed, length) for seed, length in enumerate([4, 1, 13, 7, 30, 2])), (7, 7, 9, 7, 9)]


@pytest.fixture(scope="module")
def log_prob(model: TranslationModel) -> Any:
    """Log-probabilities of eager torch after a prefix, with the whole prefix read again."""

    @functools.cache
    @torch.no_grad()
    def after(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        given = torch.tensor([[*source, END]]), torch.tensor([len(source) + 1]), torch.tensor([[END, *prefix]])
        hidden, context = model.read(*given)
        found: list[float] = model.output_layer.log_prob(hidden, history=context)[0, -1].double().tolist()
        return found

    return after


def _assert_same(hypotheses: Sequence[Any], expected: Sequence[Any]) -> None:
    assert [each.tokens for each in hypotheses] == [tokens for tokens, _, _ in expected]
    for ours, (_, log_probability, _) in zip(hypotheses, expected, strict=True):
        assert ours.log_probability == pytest.approx(log_probability, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_sources_that_join_and_leave_are_decoded_as_by_the_model_alone(
    beam_size: int, decoder: Decoder, log_prob: Any
) -> None:
    """Sources of 2 to 31 tokens in one decoding, whose buffers grow and shrink; greedy and with a beam."""
    decoding, waiting, found = decoder.start(beam_size), list(SOURCES), dict[object, Any]()
    options = SearchOptions(n_best=beam_size)
    while waiting or len(decoding):
        if waiting and len(decoding) < 3:
            group = [waiting.pop(0) for _ in range(min(2, len(waiting)))]
            decoding.add(group, [(source, options, LIMIT - len(source) // 2) for source in group])
        found |= dict(decoding.step())
    assert set(found) == set(SOURCES)
    for source, hypotheses in found.items():
        assert isinstance(source, tuple)
        search = best(functools.partial(log_prob, source), beam_size, END, LIMIT - len(source) // 2, options)
        _assert_same(hypotheses, search)


@torch.no_grad()
def test_the_model_copies(model: TranslationModel) -> None:
    """Otherwise the tests would say nothing: neither copying nor the kernel has all of the weight."""
    weights = []
    for source in SOURCES:
        given = torch.tensor([[*source, END]]), torch.tensor([len(source) + 1]), torch.tensor([[END, *source]])
        weights.append(model.output_layer.mixture_weights(*model.read(*given))[0, :, 1])
    assert 0.1 < torch.cat(weights).mean() < 0.9


@pytest.mark.parametrize("options", [{}, {"sparse_k": 20, "bias": True}], ids=str)
@pytest.mark.parametrize("kernels", ["lin, copy", "2*lin, pow, copy, copy", ["lin", {"name": "copy", "weight": 0.4}]])
@torch.no_grad()
def test_the_best_classes_are_those_of_the_whole_distribution(kernels: Any, options: dict[str, Any]) -> None:
    """Of sources with repeated tokens, and with padding by tokens that no source has."""
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(60, 8, kernels, **options)
    for parameter in layer.parameters():
        parameter.normal_()
    words = torch.tensor([[5, 9, 5, 5, 11], [7, 7, 50, 51, 52], [0, 50, 50, 50, 50]])
    visible = torch.arange(5) < torch.tensor([5, 2, 1])[:, None]
    source, hidden = Source(words, torch.randn(3, 5, 8), visible), torch.randn(3, 4, 8)
    expected = layer.log_prob(hidden, history=source).flatten(0, 1)
    assert source.first_places().tolist() == [[0, 1, 0, 0, 4], [0, 0, 2, 3, 4], [0, 1, 1, 1, 1]]
    for k in (1, 5, 60):
        values, classes = FoldedSoftmax(layer).top_k_with_source(hidden, torch.tensor(k), source, source.first_places())
        torch.testing.assert_close(values, expected.topk(k).values)
        kept = values > -torch.inf
        torch.testing.assert_close(expected.gather(1, classes)[kept], values[kept])
        assert all(len(set(row[own].tolist())) == int(own.sum()) for row, own in zip(classes, kept, strict=True))


def test_the_bundle_names_the_component(bundle: Path, manifest: Manifest) -> None:
    assert validate(bundle) == []
    assert manifest.output_layer.names == ("pow", "copy")
    (copy,) = manifest.output_layer.components
    assert (copy.window, copy.weight, copy.hyperparameters) == (None, None, {})
    outputs = {each.name: each.shape for each in manifest.graphs["encode"].outputs}
    assert outputs["memory_states"] == ("batch", 1, "source", 64)
    assert outputs["memory_words"] == ("batch", 1, "source")
    assert "mixture of `pow` (p = 2), `copy` of learnt weight" in (bundle / "MODEL_CARD.md").read_text()


def test_translations_do_not_depend_on_the_batch(int8_bundle: Path) -> None:
    """With int8 weights, protected parts and terms of a glossary, for which the beam is larger."""
    translator = _loaded(int8_bundle)
    texts = ["mubo tifa {name} lesa.", "gopi", "Nora 4711 " * 6, "dato vime zulo, pako rife."]
    glossary = Glossary.of({"tifa": "Sonne", "vime": "Mond"})
    together = translator.translate(texts, glossary=glossary)
    for text, ours in zip(texts, together, strict=True):
        (alone,) = translator.translate([text], glossary=glossary)
        assert ours.translations[0].text == alone.translations[0].text
        assert ours.translations[0].score == pytest.approx(alone.translations[0].score, abs=1e-4)
    assert "{name}" in together[0].translations[0].text


def test_int8_graphs_have_the_products_of_copying_too(int8_bundle: Path, bundle: Path) -> None:
    weights = {each.name for each in onnx.load(int8_bundle / "step.onnx", load_external_data=False).graph.initializer}
    assert "output_layer._layer.others.0.query_int8" in weights
    ours, exact = bundle_model(int8_bundle), bundle_model(bundle)
    for name, weight in exact.state_dict().items():
        if name.startswith(("output_layer.others", "output_layer.prior")):
            spread = float(weight.abs().max()) / 63
            torch.testing.assert_close(ours.state_dict()[name], weight, rtol=0, atol=spread)


def test_a_source_counts_for_the_memory_of_a_decoding(manifest: Manifest) -> None:
    """Each source token has 64 float32 and two int64, which are counted twice."""
    copying = Footprint.of_encoder(manifest.graphs["encode"], vocab_size=300)
    assert copying.source_tensors == {"memory_states": 4 * 64, "memory_words": 8, "memory_places": 8}
    plain = Footprint(layers=1, heads=4, hidden_size=64, vocab_size=300)
    sizes = {"beam_size": 5, "rows": 3, "steps": 4, "width": 7}
    assert copying.bytes(**sizes) - plain.bytes(**sizes) == 3 * 2 * 7 * (4 * 64 + 2 * 8)


def test_a_bundle_that_copies_can_be_trained_on(model: TranslationModel) -> None:
    (copy,) = model.output_layer.other_components()
    assert isinstance(copy, Copy)
    assert copy.query.shape == (64, 64)
