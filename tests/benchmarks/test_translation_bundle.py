"""Tests of bundles of translation models with random weights."""

from pathlib import Path

from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceQuery
from models.store import load_bundle


def test_a_bundle_with_random_weights_goes_on_to_the_limit(random_bundle: Path) -> None:
    translator = load_bundle(random_bundle, threads=1)
    assert translator.manifest.name == "random-tiny"
    assert translator.manifest.quantization.kind == "int8-static"
    assert translator.config.vocab_size == 300
    for beam in (1, 5):
        queries = [SourceQuery((number, 9, 7), beam, SearchOptions(stop="full"), 12) for number in range(2, 40)]
        found = [hypotheses[0].tokens for hypotheses in translator.decoder.search(queries)]
        lengths = [len(tokens) for tokens in found]
        assert lengths.count(max(lengths)) > len(lengths) / 2  # some end where no byte would complete a character
        assert max(lengths) == 12
        assert len(set(found)) > 20, "translations depend on their sources"
