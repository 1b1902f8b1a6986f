"""The statistical aligner of words, and the links of tokens that are made of its links."""

import itertools
import random

import numpy as np
import pytest

from training.data.statistical_alignment import DiagonalModel, StatisticalAligner
from training.data.token_links import TokenLinks, linked_tokens, words_of_tokens
from training.data.tokenization import build_subword_tokenizer

NOUNS = {"Haus": "house", "Buch": "book", "Auto": "car", "Bild": "picture"}
ADJECTIVES = {"klein": "small", "groß": "big", "rot": "red", "neu": "new"}
PAIRS = [
    (source.format(noun=noun, adjective=adjective), target.format(noun=NOUNS[noun], adjective=ADJECTIVES[adjective]))
    for noun, adjective in itertools.product(NOUNS, ADJECTIVES)
    for source, target in (
        ("Das {noun} ist {adjective}.", "The {noun} is {adjective}."),
        ("{adjective} ist ein {noun}.", "A {noun} is {adjective}."),
        ("Ein {noun}", "A {noun}"),
    )
]


def _links(aligner: StatisticalAligner, source: str, target: str) -> set[tuple[int, int]]:
    (found,) = aligner.links([(source, target)])
    return {(int(ours), int(theirs)) for theirs, ours in np.argwhere(found)}


@pytest.fixture(scope="module")
def aligner() -> StatisticalAligner:
    return StatisticalAligner.fit(PAIRS, iterations=10)


def test_translations_are_linked_in_the_order_of_the_source_and_in_another(aligner: StatisticalAligner) -> None:
    assert _links(aligner, "Das Haus ist groß.", "The house is big.") == {(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)}
    assert _links(aligner, "Neu ist ein Auto.", "A car is new.") == {(2, 0), (3, 1), (1, 2), (0, 3), (4, 4)}


def test_unseen_words_are_linked_where_they_are_spelled_the_same(aligner: StatisticalAligner) -> None:
    assert (1, 0) in _links(aligner, "Das 1284 ist klein.", "1284 is small.")
    assert (1, 1) in _links(aligner, "Das HAUS", "The house")  # case folded
    assert not _links(aligner, "", "The house")
    assert not _links(aligner, "...!?", "")


def test_links_do_not_depend_on_the_other_pairs(aligner: StatisticalAligner) -> None:
    together = aligner.links([*PAIRS, ("", "A"), ("Ein 5", "5 a big book is")])
    for pair, links in zip(PAIRS, together, strict=False):
        (alone,) = aligner.links([pair])
        assert (alone == links).all()


def test_the_same_pairs_give_the_same_aligner(aligner: StatisticalAligner) -> None:
    again = StatisticalAligner.fit(PAIRS, iterations=10)
    assert all((one == other).all() for one, other in zip(aligner.links(PAIRS), again.links(PAIRS), strict=True))


def _random_pairs(count: int) -> list[tuple[list[int], list[int]]]:
    """Pairs whose target words are translations in a slightly different order, or noise."""
    generator = random.Random(1)
    pairs = []
    for _ in range(count):
        source = [generator.randint(1, 20) for _ in range(generator.randint(1, 7))]
        target = [word if generator.random() < 0.8 else generator.randint(1, 25) for word in source]
        if generator.random() < 0.3:
            target = target[1:] + target[:1]
        pairs.append((source, target + [26] * generator.randint(0, 1)))
    return pairs


def test_the_likelihood_never_falls() -> None:
    found: list[float] = []
    model = DiagonalModel.fit(
        _random_pairs(200), iterations=25, concentration=0, report=lambda number, likelihood: found.append(likelihood)
    )
    assert len(found) == 25
    assert found[-1] > found[0] + 100
    assert (np.diff(found) > -1e-7).all()
    assert 0.1 < model.tension < 40


def test_one_iteration_is_that_by_hand() -> None:
    """A pair of two words and two: at first all translations are as probable, then they are those of the prior."""
    found: list[float] = []
    DiagonalModel.fit(
        [([1, 2], [1, 2])], iterations=1, concentration=0, report=lambda number, likelihood: found.append(likelihood)
    )
    # Translations have probability 1/3 (two words and the unknown one) whatever the source word: prior sums to 1.
    assert found == [pytest.approx(2 * np.log(1 / 3))]


def test_pairs_without_words_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="no pair has words on both sides"):
        StatisticalAligner.fit([("", "a"), ("b", "")])
    with pytest.raises(ValueError, match="no pair has words on both sides"):
        StatisticalAligner.fit([])


# ---- tokens -----------------------------------------------------------------------------------------------


def test_tokens_have_the_word_of_their_characters() -> None:
    words = [(0, 4), (5, 8), (8, 9)]
    tokens = [(0, 2), (2, 4), (4, 8), (8, 9), (4, 5), (9, 9)]
    assert words_of_tokens(tokens, words).tolist() == [0, 0, 1, 2, -1, -1]


def test_tokens_share_the_links_of_their_words() -> None:
    links = np.array([[False, True], [True, False], [False, False]])
    found = linked_tokens(links, np.array([0, 1, 1, -1]), np.array([0, 0, 1, 2, -1]))
    assert found.tolist() == [[0, 0.5, 0.5, 0], [0, 0.5, 0.5, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_batches_have_distributions_over_source_positions(aligner: StatisticalAligner) -> None:
    tokenizer = build_subword_tokenizer([text for pair in PAIRS for text in pair], vocab_size=300)
    links = TokenLinks(PAIRS, aligner, tokenizer)
    lengths = [[len(ids) for ids in tokenizer.encode_batch(pair)] for pair in (PAIRS[1], PAIRS[2])]
    found = links.batch([1, 2], 40, 50)
    assert found.shape == (2, 50, 40)
    for row, (source, target), (_, text) in zip(found, lengths, PAIRS[1:3], strict=True):
        words = [float(bool(text[start:end].strip())) for start, end in tokenizer.source_spans(text)]
        assert row[:target].sum(dim=1).tolist() == pytest.approx(words)  # a space alone has no word
        assert not row[target:].any()  # the end and padding
        assert not row[:, source:].any()
    (first,) = links.batch([2], lengths[1][0] + 1, lengths[1][1] + 1)  # "Ein Haus", "A house"
    spans, rows = tokenizer.source_spans("Ein Haus"), first[first.sum(dim=1) > 0]
    assert [spans[place][1] > 3 for place in rows.argmax(dim=1)] == [
        end > 1 for start, end in tokenizer.source_spans("A house") if "A house"[start:end].strip()
    ]
