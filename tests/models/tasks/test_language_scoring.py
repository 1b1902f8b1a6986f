"""Scores from the cache equal those without, and explanations those of the next-word distribution."""

import math

import numpy as np
import pytest

from models import ModelStore
from models.errors import QueryError
from models.tasks import language_scoring
from models.tasks.language_state import StateLayout
from service.settings import BUNDLED

CLOSE = 1e-5
LONG = "we had a very good time at the end of last week and then i went home to read a book about the war in the " * 4


def fresh():
    return ModelStore(BUNDLED).load("next-word:4", threads=1)


@pytest.fixture(scope="module")
def plain():
    return fresh()


@pytest.fixture
def lookups():
    return []


@pytest.fixture
def cached(lookups):
    model = fresh()
    model.use_cache(8 << 20, lookups.append)
    return model


def scores(model, texts):
    return [[token.log_probability for token in each.tokens] for each in model.score(texts)]


def assert_close(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=CLOSE)


def positions(monkeypatch, model):
    """Return a list that grows by the positions of each run of the score graph."""
    read, run = [], model.backend.run

    def counting(graph, inputs, outputs):
        read.append(int(inputs["lengths"].sum()))
        return run(graph, inputs, outputs)

    monkeypatch.setattr(model.backend, "run", counting)
    return read


def test_a_long_text_that_goes_on_is_read_from_where_a_window_ended(plain, cached, lookups, monkeypatch):
    texts = [LONG + "afternoon", LONG + "evening and slept"]
    expected = scores(plain, texts)
    read = positions(monkeypatch, cached)
    assert_close(scores(cached, texts[:1]), expected[:1])
    whole = sum(read)
    read.clear()
    assert_close(scores(cached, texts[1:]), expected[1:])
    assert sum(read) < whole / 3
    assert lookups == [False, True]


def test_the_beginnings_of_an_n_best_list_are_shared_across_batches(plain, cached, monkeypatch):
    begin = "we had a very good time at the end of last week and then"
    hypotheses = [f"{begin} {end}" for end in ("i went home", "we went home", "she came back", "he read a book")]
    expected = scores(plain, hypotheses)
    assert_close(scores(cached, hypotheses[:2]), expected[:2])
    read = positions(monkeypatch, cached)
    assert_close(scores(cached, hypotheses[2:]), expected[2:])
    assert sum(read) < 2 * 6


def test_texts_of_different_beginnings_share_a_batch(plain, cached):
    texts = [LONG + "a", "hello", LONG[4:] + "b", LONG + "c d", "", LONG[4:] + "e"]
    expected = scores(plain, texts)
    for _ in range(2):
        assert_close(scores(cached, texts), expected)
    assert_close(scores(cached, texts[::-1]), expected[::-1])


def test_prefixes_that_differ_in_one_word_are_not_mixed_up(plain, cached):
    other = "they" + LONG[2:]
    scores(cached, [LONG])
    assert_close(scores(cached, [other]), scores(plain, [other]))


@pytest.mark.parametrize("text", ["", "we had a very good time", "we had a zyxwv time"])
def test_an_explanation_is_that_of_the_next_word(plain, text):
    (result,) = plain.score([text], explain=3)
    (expected,) = plain.score([text])
    assert [token.word for token in result.tokens] == [token.word for token in expected.tokens]
    for ours, theirs in zip(result.tokens, expected.tokens, strict=True):
        assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)  # another graph
    words = text.split()
    for place, token in enumerate(result.tokens):
        (known,) = plain.next_words([" ".join(words[:place])], plain.vocab_size)
        assert token.entropy == pytest.approx(known.entropy, abs=1e-4)
        assert [each.word for each in token.alternatives] == [each.word for each in known.words[:3]]
        # Ranks are those of the whole distribution, in which `<unk>` is one outcome.
        above = sum(each.log_probability > token.log_probability + 1e-6 for each in known.words)
        unknown = not token.unknown and known.unknown_log_probability > token.log_probability
        assert token.rank == pytest.approx(above + unknown + 1, abs=1)
        assert "<unk>" not in [each.word for each in token.alternatives]


def test_explanations_do_not_depend_on_other_texts(plain, monkeypatch):
    monkeypatch.setattr(language_scoring, "_EXPLAINED", 2)
    texts = ["a", "we had a very good time", "", "books can be outdated", "the end"]
    together = plain.score(texts, explain=2)
    for text, ours in zip(texts, together, strict=True):
        (alone,) = plain.score([text], explain=2)
        assert [token.rank for token in ours.tokens] == [token.rank for token in alone.tokens]
        assert ours.log_probability == pytest.approx(alone.log_probability, abs=CLOSE)


def test_queries_of_one_batch_may_ask_for_different_numbers_of_words(plain):
    few, many = plain.run_explain([plain.score_query("a", explain=1), plain.score_query("a", explain=4)])
    assert [len(token.alternatives) for token in few.tokens] == [1, 1]
    assert [len(token.alternatives) for token in many.tokens] == [4, 4]
    assert plain.score_query("a b", explain=4).result_items == 3 * 5


def test_a_word_of_probability_0_has_no_rank():
    class Sparse:
        def run(self, graph, inputs, outputs):
            rows = len(inputs["tokens"])
            values = np.tile([0.0, -math.inf, -math.inf], (rows, 1)).astype(np.float32)
            state = np.zeros((1, rows, 2), np.float32)
            return [values, np.tile([2, 0, 1], (rows, 1)), np.zeros(rows, np.float32), state, state]

    ((first, second),) = language_scoring.Scorer(Sparse(), StateLayout(1, 2), 3).explanations([(0, 2, 1)], 2)
    assert first == (0.0, 1, 0.0, ((2, 0.0),))
    assert second == (-math.inf, None, 0.0, ((2, 0.0),))


def test_a_bad_number_of_alternatives_is_refused(plain):
    with pytest.raises(QueryError, match="explain must be at least 0, not -1"):
        plain.score(["a"], explain=-1)


def test_scored_prefixes_are_found_with_their_salt_only(cached, lookups):
    for salt, found in (("one", False), ("one", True), ("other", False), ("", False), ("one", True)):
        model = cached.with_cache_salt(salt)
        lookups.clear()
        model.score([LONG])
        assert lookups == [found], salt


def test_texts_of_one_batch_share_prefixes_only_with_the_same_salt(plain, monkeypatch):
    """So that the time of a batch does not tell what others of it begin with."""
    text = " ".join(LONG.split()[:20])
    read = positions(monkeypatch, plain)

    def positions_of(*salts):
        read.clear()
        queries = [
            plain.with_cache_salt(salt).score_query(f"{text} {end}") for salt, end in zip(salts, "ab", strict=True)
        ]
        values = [[token.log_probability for token in each.tokens] for each in plain.run_score(queries)]
        return sum(read), values

    (same, together), (different, apart) = positions_of("one", "one"), positions_of("one", "other")
    assert different == 2 * (20 + 1 + 1)
    assert same < 0.7 * different
    assert_close(together, apart)
