"""Tests of bundles of translation models with random weights."""

from pathlib import Path

import pytest

from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.store import load_bundle


def test_a_bundle_with_random_weights_never_ends_a_translation(
    random_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = load_bundle(random_bundle, threads=1)
    # Random bytes may leave nothing but the end to complete a character: how often depends on the processor.
    monkeypatch.setattr(translator.decoder, "_utf8", None)
    assert translator.manifest.name == "random-tiny"
    assert translator.manifest.quantization.kind == "int8-static"
    assert translator.config.vocab_size == 300
    for beam in (1, 5):
        queries = [SourceSequence((number, 9, 7), beam, SearchOptions(stop="full"), 12) for number in range(2, 40)]
        found = [hypotheses[0].tokens for hypotheses in translator.decoder.search(queries)]
        assert {len(tokens) for tokens in found} == {12}
        assert len(set(found)) > 20, "translations depend on their sources"
