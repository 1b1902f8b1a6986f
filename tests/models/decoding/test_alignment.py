"""Links between words by hand, and attention that belongs to the hypothesis it comes with."""

from dataclasses import replace

import numpy as np
import pytest

from models.decoding.alignment import aligned_words
from models.decoding.attention import Attention, AttentionTrace, strongest
from models.decoding.beam_search import BeamSearch, SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence

TEXTS = [
    "Maria hat 3 rote Äpfel gekauft.",
    "Ich glaube, dass Tom am Montag nach Berlin fährt.",
    "Guten Morgen!",
    "Wenn es morgen regnet, bleiben wir zu Hause und lesen ein Buch.",
]


def test_the_attention_of_a_path_is_followed_back() -> None:
    """Two hypotheses: the second one's successor is the first after step 1, and both extend it after step 2."""
    trace = AttentionTrace()
    trace.read(np.array([[0.9, 0.1, 0.0]]))
    trace.follow(np.array([0, 0]))
    trace.read(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    trace.follow(np.array([1, 0]))
    trace.read(np.array([[0.5, 0.5, 0.0], [0.0, 0.4, 0.6]]))
    assert places(trace.path(0)) == [0, 2, 0]
    trace.follow(np.array([1, 1]))
    assert places(trace.path(0)) == [0, 1, 2]


def places(attention):
    rows = np.arange(len(attention.weights))
    return attention.positions[rows, attention.weights.argmax(axis=1)].tolist()


def test_only_the_strongest_positions_are_kept() -> None:
    found = strongest(np.arange(20, dtype=np.float32)[None] / 190)
    assert sorted(found.positions[0].tolist()) == list(range(12, 20))


def test_words_of_several_tokens_are_linked_by_their_mean() -> None:
    """The source `ab c` has the tokens a, b and c, the target `x yz` the tokens x, y and z."""
    weights = np.array([[0.1, 0.1, 0.8, 0.0], [0.4, 0.5, 0.1, 0.0], [0.5, 0.1, 0.1, 0.3], [0, 0, 0, 1.0]])
    links = aligned_words(
        Attention(np.tile(np.arange(4), (4, 1)), weights),
        [(0, 1), (1, 2), (3, 4)],
        [(0, 2), (3, 4)],
        [(0, 1), (2, 3), (3, 4)],
        [(0, 1), (2, 4)],
        0,
    )
    assert links == [(1, 0), (0, 1)]


def test_a_token_that_looks_at_the_end_has_no_link() -> None:
    attention = Attention(np.array([[0, 1]]), np.array([[0.1, 0.9]]))
    assert aligned_words(attention, [(0, 1)], [(0, 1)], [(0, 1)], [(0, 1)], 0) == []


def test_a_search_without_the_option_keeps_none() -> None:
    search = BeamSearch(2, 1)
    search.add("a", SearchOptions(), 3)
    assert not search.traced
    search.add("b", SearchOptions(attention=True), 3)
    assert search.traced


@pytest.fixture(scope="module")
def translator(store):
    return store.load("de-en", threads=1)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_the_attention_of_each_hypothesis_is_that_of_reading_it_alone(translator, beam_size) -> None:
    options = SearchOptions(n_best=beam_size, attention=True)
    parts = [part for text in TEXTS for part in translator.query(text, beam_size, options=options).parts()]
    mixed = [replace(part, options=replace(part.options, attention=index != 1)) for index, part in enumerate(parts)]
    for part, hypotheses in zip(mixed, translator.decoder.search(mixed, 3), strict=True):
        for each in hypotheses:
            if not part.options.attention:
                assert each.attention is None
                continue
            alone = SearchOptions(prefix=each.tokens, attention=True)
            ((read,),) = translator.decoder.search([SourceSequence(part.tokens, 1, alone, len(each.tokens) + 1)])
            expected = dense(read.attention)[: len(each.tokens) + 1]
            np.testing.assert_allclose(dense(each.attention), expected, atol=0.04)
            assert (dense(each.attention)[:, part.length :] == 0).all()


def dense(attention):
    found = np.zeros((len(attention.positions), 64))
    np.put_along_axis(found, attention.positions, attention.weights, axis=1)
    return found
