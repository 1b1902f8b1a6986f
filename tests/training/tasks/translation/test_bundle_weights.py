"""Tests of reading the weights of translation bundles."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from models.bundle.manifest import MANIFEST
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.reading import load_manifest
from models.store import load_bundle
from models.tasks.translation import Translator
from tests.fixtures.bundled import DE_EN, NEXT_WORD
from tests.support.float32_bundle import export_float32
from training.data.pair_batching import pad
from training.networks.translation_model import TranslationModel
from training.tasks.translation.bundle_weights import bundle_model

TEXTS = ["Guten Morgen!", "Wo ist der Bahnhof?", "Ich habe keine Zeit.", "Das Haus ist alt.", "Er liest ein Buch."]


def bundle_greedy(translator: Translator, sources: Sequence[Sequence[int]], limit: int) -> list[list[int]]:
    queries = [SourceSequence(tuple(source), 1, SearchOptions(), limit) for source in sources]
    return [list(hypotheses[0].tokens) for hypotheses in translator.decoder.search(queries)]


def eager_greedy(model: TranslationModel, sources: Sequence[Sequence[int]], end: int, limit: int) -> list[list[int]]:
    lengths = torch.tensor([len(source) + 1 for source in sources])
    return model.greedy(pad([[*source, end] for source in sources], end), lengths, end_id=end, max_tokens=limit)


def test_the_model_of_the_bundled_translator_translates_like_it() -> None:
    translator = load_bundle(DE_EN, threads=1)
    sources = [part.tokens for text in TEXTS for part in translator.query(text, 1).parts()]
    model = bundle_model(DE_EN)
    ours, eager = bundle_greedy(translator, sources, 20), eager_greedy(model, sources, 1, 20)
    assert all(3 <= len(tokens) < 20 for tokens in ours)
    assert sum(a == b for a, b in zip(ours, eager, strict=True)) >= len(sources) - 1, "int8 rounds activations"


def test_int8_weights_are_dequantized(random_bundle: Path) -> None:
    translator, model = load_bundle(random_bundle, threads=1), bundle_model(random_bundle)
    assert model.output_layer.weight.shape == (300, 64)
    assert model.network.decoder_layers()[0].cross_attention.key_value.weight.shape == (128, 64)
    sources = [[number, 2 * number, 17] for number in range(2, 34)]
    ours, eager = bundle_greedy(translator, sources, 3), eager_greedy(model, sources, 1, 3)
    assert sum(a == b for a, b in zip(ours, eager, strict=True)) > len(sources) // 2


def test_a_float32_bundle_holds_the_same_weights(random_bundle: Path, tmp_path: Path) -> None:
    model = bundle_model(random_bundle)
    exported = export_float32(model, random_bundle, tmp_path / "random-tiny" / "1")
    assert load_manifest(exported).quantization is None
    read = bundle_model(exported).state_dict()
    assert read.keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(read[name], weight, rtol=1e-6, atol=0)
    sources = [[7, 8, 9], [10, 11]]
    assert bundle_greedy(load_bundle(exported, threads=1), sources, 6) == eager_greedy(model, sources, 1, 6)


def test_weights_that_are_stored_once_are_refused(babbler_bundle: Path) -> None:
    with pytest.raises(ValueError, match=r"does not store under their names: .*norms"):
        bundle_model(babbler_bundle)


def test_an_output_layer_with_a_bias_is_refused(babbler_bundle: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(babbler_bundle, tmp_path / babbler_bundle.parent.name / babbler_bundle.name))
    content = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    content["softmax"]["bias"] = True
    (bundle / MANIFEST).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match="has an output layer with a bias"):
        bundle_model(bundle)


def test_bundles_of_other_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="no translation model but a language-model model"):
        bundle_model(NEXT_WORD)
