"""Probabilities of words under subword models, against the enumeration of all texts of toy models."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.decoding.next_words import next_words
from models.decoding.word_probabilities import (
    BatchedRows,
    log_word_begins,
    score_rows,
    score_words,
    word_probabilities,
)
from models.text.word_vocabulary import WordBoundaries, WordVocabulary
from tests.support.toy_subwords import ToyModel, word_distribution

WORDS = [b"", b"a", b"b", b"ab", b" a", b" b", b" ab"]
"""Pieces in which a word's space stands in front of it; 0 is the end."""
MARKS = [b"", b"a", b" a", b".", b"a.", b" ", b". a"]
"""Pieces with punctuation, and some that hold the end of a word and the next one."""
PARTS = [b"", b"a", b" ", b"\xe2", b"\x80", b"\x9c", b"\xe2\x80"]
"""Parts of characters: E2 80 9C is a quotation mark, E2 80 80 is none."""
QUOTES = [b"", b"a", b"\xe2\x80", b"\x9c", b"\x9ca", b" \xe2", b"a\xe2\x80\x9c"]
SETS = {
    "words": (WORDS, " ", "", [(), (1,), (4,), (1, 5)]),
    "marks": (MARKS, " ", ".", [(), (1,), (3,), (5,), (2, 6)]),
    "parts": (PARTS, " ", "“", [(), (1,), (2,), (6, 5)]),
    "quotes": (QUOTES, " ", "“", [(), (1,), (6,)]),
    "spaces": ([b"", b"a", b"\xc2", b"\xa0", b"\xc2\xa0a"], " \xa0", "", [(), (1,), (1, 2, 3)]),
}
CASES = st.sampled_from(sorted(SETS)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(SETS[name][3]), st.integers(0, 10_000))
)


def toy(name, context, seed, max_tokens=3, sharpness=1.0):
    pieces, separators, punctuation, _ = SETS[name]
    model = ToyModel(len(pieces), 0, seed, max_tokens, context, sharpness)
    expected = word_distribution(model, pieces, context, separators, punctuation)
    return model, WordVocabulary(pieces, WordBoundaries(separators, punctuation)), expected


def test_a_word_by_hand():
    """After "a", " b" is over where the text ends or a space follows; its tokens are " b" or " " and "b"."""
    pieces = [b"", b"a", b"b", b" ", b" b"]
    rows = {
        (1,): [0.1, 0.2, 0.2, 0.2, 0.3],
        (1, 4): [0.5, 0.1, 0.1, 0.1, 0.2],
        (1, 3): [0.2, 0.2, 0.4, 0.1, 0.1],
        (1, 3, 2): [0.25, 0.25, 0.25, 0.25, 0.0],
    }

    class Model:
        def log_probabilities(self, prefixes):
            with np.errstate(divide="ignore"):
                return np.log([rows[prefix] for prefix in prefixes])

    vocabulary = WordVocabulary(pieces)
    begins = 0.1 + 0.2 + 0.3
    (found,) = word_probabilities(Model(), vocabulary, (1,), [" b"])
    assert found.exact
    assert math.exp(found.log_probability) == pytest.approx((0.3 * 0.8 + 0.2 * 0.4 * 0.5) / begins, abs=1e-15)
    scored = score_words(Model(), vocabulary, (1,), (4,))
    assert math.exp(scored.words[0].log_probability) == pytest.approx(0.3 * 0.8 / begins, abs=1e-15)
    assert scored.words[0].surprisal == pytest.approx(-math.log2(0.3 * 0.8 / begins))
    assert math.exp(scored.end) == pytest.approx(0.5 / 0.8)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(CASES)
def test_words_have_the_probability_of_all_texts_that_begin_with_them(case):
    context = case[1]
    model, vocabulary, expected = toy(*case)
    words = [word for word in expected if word]
    results = word_probabilities(model, vocabulary, context, words, batch_size=7)
    assert all(each.exact for each in results)
    ours = np.exp([each.log_probability for each in results])
    np.testing.assert_allclose(ours, [expected[word] for word in words], rtol=0, atol=1e-12)
    assert math.fsum(ours) + expected.get(b"", 0.0) == pytest.approx(1, abs=1e-12)
    assert max(model.batches) <= 7


@settings(max_examples=25, deadline=None, derandomize=True)
@given(CASES, st.integers(1, 60))
def test_a_budget_leaves_bounds(case, budget):
    context = case[1]
    model, vocabulary, expected = toy(*case)
    words = sorted(expected, key=expected.__getitem__)[-5:]
    results = word_probabilities(model, vocabulary, context, [w for w in words if w], max_prefixes=budget)
    for each in results:
        assert math.exp(each.log_probability) <= expected[each.text] + 1e-12
        assert math.exp(each.upper_bound) >= expected[each.text] - 1e-12


@settings(max_examples=30, deadline=None, derandomize=True)
@given(CASES, st.sampled_from([0.0, 1e-7, 1e-3]), st.just(3))
@example(("parts", (), 0), 0.0, 4)  # E2, then E2 80, then 9C: a letter, and a mark
def test_next_words_are_those_of_the_enumeration(case, negligible, max_tokens):
    context = case[1]
    model, vocabulary, expected = toy(*case, max_tokens=max_tokens)
    found = next_words(model, vocabulary, context, 1000, max_prefixes=100_000, negligible=negligible)
    ours = {each.text: each.probability for each in found.words}
    for word, value in expected.items():
        assert ours.get(word, 0.0) <= value + 1e-12 or word == b""
    assert math.fsum(ours.values()) + found.end + found.left == pytest.approx(1, abs=1e-12)
    if negligible < 1e-3:
        assert found.left < 1e-4
    if not negligible:
        assert found.certain
        assert found.left == pytest.approx(0, abs=1e-15)
        assert found.end == pytest.approx(expected.pop(b"", 0.0), abs=1e-12)
        assert ours == pytest.approx(expected, abs=1e-12)
        assert [each.text for each in found.words] == sorted(expected, key=lambda word: (-expected[word], word))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(CASES, st.integers(1, 4), st.integers(1, 200), st.sampled_from([0.0, 1e-4, 1e-2]), st.sampled_from([1, 3, 32]))
def test_bounds_and_certainty_hold_wherever_the_search_ends(case, k, budget, negligible, batch):
    context = case[1]
    model, vocabulary, expected = toy(*case, sharpness=3.0)
    found = next_words(model, vocabulary, context, k, max_prefixes=budget, negligible=negligible, batch_size=batch)
    end = expected.pop(b"", 0.0)
    assert found.end <= end + 1e-12
    total = math.fsum(each.probability for each in found.words) + found.others + found.end + found.left
    assert total == pytest.approx(1, abs=1e-12)
    for each in found.words:
        assert each.probability - 1e-12 <= expected[each.text] <= each.upper_bound + 1e-12
        assert each.upper_bound <= each.probability + found.left + 1e-12
    if found.certain:
        best = sorted(expected, key=expected.__getitem__, reverse=True)[:k]
        assert [each.text for each in found.words] == best


def test_the_search_ends_early_where_a_model_is_sure():
    pieces = SETS["words"][0]
    vocabulary = WordVocabulary(pieces)
    model = ToyModel(len(pieces), 0, seed=3, sharpness=4.0)  # no text has to end
    found = next_words(model, vocabulary, (1,), 2, batch_size=1, max_prefixes=2000)
    assert found.certain
    assert found.prefixes < 100
    assert found.left > 0
    close = next_words(model, vocabulary, (1,), 2, batch_size=16, max_prefixes=5000, max_gap=1e-3)
    assert close.certain
    assert all(each.upper_bound - each.probability <= 1e-3 for each in close.words)
    assert {each.word for each in close.words} == {each.word for each in found.words}


@settings(max_examples=80, deadline=None, derandomize=True)
@given(CASES, st.lists(st.integers(1, 6), max_size=8))
def test_the_words_of_a_text_sum_to_its_own_probability(case, tokens):
    name, context, seed = case
    pieces, separators, punctuation, _ = SETS[name]
    tokens = [1 + token % (len(pieces) - 1) for token in tokens]
    model = ToyModel(len(pieces), 0, seed, None, context)
    vocabulary = WordVocabulary(pieces, WordBoundaries(separators, punctuation))
    scored = score_words(model, vocabulary, context, tokens, batch_size=3)
    own = sum(model.row((*context, *tokens[:place]))[token] for place, token in enumerate([*tokens, 0]))
    assert scored.token_log_probability == pytest.approx(own, abs=1e-12)
    assert sum(word.log_probability for word in scored.words) + scored.end + scored.begins == pytest.approx(own)
    assert scored.end <= 1e-12
    ends = [0, *(word.tokens[1] for word in scored.words)]
    assert [word.tokens[0] for word in scored.words] == ends[:-1]
    for word in scored.words:
        assert word.log_probability <= 1e-12
        assert scored.text[slice(*word.span)] == word.text or "\ufffd" in scored.text


def test_canonical_values_are_below_the_exact_ones():
    pieces = SETS["words"][0]
    vocabulary = WordVocabulary(pieces)
    model = ToyModel(len(pieces), 0, seed=5)
    scored = score_words(model, vocabulary, (), [4, 2, 6, 1])
    assert [word.text for word in scored.words] == ["ab", "aba"]
    assert [word.span for word in scored.words] == [(1, 3), (4, 7)]
    first, second = word_probabilities(model, vocabulary, (), [" ab"]) + word_probabilities(
        model, vocabulary, (4, 2), [" aba"]
    )
    assert scored.words[0].log_probability < first.log_probability
    assert scored.words[1].log_probability < second.log_probability
    assert first.tokenizations == 2  # " a" "b" and " ab"


def test_words_of_one_token_are_scored_together():
    pieces = SETS["marks"][0]
    vocabulary = WordVocabulary(pieces, WordBoundaries(" ", "."))
    model = ToyModel(len(pieces), 0)
    scored = score_words(model, vocabulary, (), [1, 6, 4, 5])  # "a. aa. "
    assert scored.text == "a. aa. "
    assert [word.text for word in scored.words] == ["a", ". aa."]
    assert [word.span for word in scored.words] == [(0, 1), (1, 6)]
    assert [word.tokens for word in scored.words] == [(0, 1), (1, 3)]


def test_a_text_may_go_on_with_the_last_word_of_the_context():
    vocabulary = WordVocabulary(WORDS)
    model = ToyModel(len(WORDS), 0)
    scored = score_words(model, vocabulary, (1,), (2, 4))
    assert [word.text for word in scored.words] == ["b", "a"]
    assert scored.begins == 0
    assert scored.words[0].token_log_probability == pytest.approx(model.row((1,))[2])


def test_a_special_token_begins_a_new_text():
    vocabulary = WordVocabulary(WORDS)
    model = ToyModel(len(WORDS), 0)
    assert log_word_begins(BatchedRows(model, 1), vocabulary, (1, 0)) == 0
    assert not model.batches
    begins = np.exp(model.row((0, 1)))[[0, 4, 5, 6]].sum()
    assert log_word_begins(BatchedRows(model, 1), vocabulary, (0, 1)) == pytest.approx(math.log(begins))


@pytest.mark.parametrize("word", ["", " ", "a", " a b", " a ", "b"])
def test_what_is_no_next_word_is_refused(word):
    with pytest.raises(ValueError, match="not one next word"):
        word_probabilities(ToyModel(len(WORDS), 0), WordVocabulary(WORDS), (1,), [word])


def test_what_has_probability_0():
    pieces = [b"", b"a", b" b"]
    vocabulary = WordVocabulary(pieces)

    class Model:
        def log_probabilities(self, prefixes):
            return np.array([[-np.inf, 0.0, -np.inf]] * len(prefixes))

    with pytest.raises(ValueError, match="probability 1"):
        word_probabilities(Model(), vocabulary, (1,), [" b"])
    with pytest.raises(ValueError, match="probability 1"):
        next_words(Model(), vocabulary, (1,))
    scored = score_words(Model(), vocabulary, (1,), [2, 2])
    assert [word.log_probability for word in scored.words] == [-math.inf, -math.inf]
    assert scored.end == scored.token_log_probability == -math.inf
    found = next_words(Model(), vocabulary, (), max_prefixes=20)
    assert not found.words
    assert not found.certain
    assert found.left == 1


def test_wrong_arguments_are_refused():
    vocabulary, model = WordVocabulary(PARTS, WordBoundaries(" ", "“")), ToyModel(len(PARTS), 0)
    with pytest.raises(ValueError, match="within a character"):
        next_words(model, vocabulary, (1, 3))
    with pytest.raises(ValueError, match="k and max_prefixes"):
        next_words(model, vocabulary, (1,), 0)
    with pytest.raises(ValueError, match="batch_size"):
        next_words(model, vocabulary, (1,), batch_size=0)
    with pytest.raises(ValueError, match="special token"):
        score_words(model, vocabulary, (), [0])
    with pytest.raises(ValueError, match="argument"):
        score_rows(vocabulary, (), [1], [np.zeros(len(PARTS))])
    with pytest.raises(ValueError, match="single characters"):
        WordBoundaries("ab", "b")
