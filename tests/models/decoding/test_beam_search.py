"""Beam search against cases computed by hand and against a plain search, over made-up distributions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.decoding.beam_search import BeamSearch, SearchOptions
from models.text.utf8 import Utf8Tokens
from tests.models.reference_search import best, made_up

END, A, B = 0, 1, 2


class Bench:
    """Computes the steps of a search, hypothesis by hypothesis; sentences join and leave between steps."""

    def __init__(self, beam_size, vocab_size, utf8=None):
        self.search = BeamSearch(beam_size, END, utf8=utf8)
        self.vocab_size = vocab_size
        self.results, self.tokens, self.steps = {}, {}, 0
        self._distributions, self._prefixes = {}, {}

    def add(self, key, distribution, max_tokens, **options):
        self.search.add(key, SearchOptions(**options), max_tokens)
        self._distributions[key] = distribution
        self._prefixes[key] = [()] * self.search.beam_size

    def step(self, keep=False):
        """Takes a step; with `keep` finished sentences stay in the search."""
        keys, self.steps = self.search.keys, self.steps + 1
        values = np.array([[self._distributions[key](prefix) for prefix in self._prefixes[key]] for key in keys])
        order = np.argsort(-values, axis=2, kind="stable")[:, :, : self.search.num_candidates(self.vocab_size)]
        origins, over = self.search.advance(np.take_along_axis(values, order, axis=2), order)
        for key, row, last in zip(keys, origins, self.search.last_tokens, strict=True):
            before = self._prefixes[key]
            pairs = zip(row.tolist(), last.tolist(), strict=True)
            self._prefixes[key] = [(*before[origin], token) for origin, token in pairs]
        for row in over:
            found = self.search.best(row)
            assert all(each.token_log_probabilities.sum() == pytest.approx(each.log_probability) for each in found)
            self.tokens.setdefault(keys[row], [each.token_log_probabilities.tolist() for each in found])
            self.results.setdefault(keys[row], [_plain(each) for each in found])
        if not keep:
            self.search.remove(over)

    def run(self):
        while len(self.search):
            self.step()
        return self.results


def _plain(hypothesis):
    return hypothesis.tokens, hypothesis.log_probability, hypothesis.score


def table(**probabilities):
    """Distributions by hand: `a_b=[...]` follows A, B; `start` is the first step; all other prefixes end."""
    names = {"end": END, "a": A, "b": B}
    rows = {
        () if name == "start" else tuple(names[part] for part in name.split("_")): row
        for name, row in probabilities.items()
    }

    def distribution(prefix):
        row = rows.get(prefix, [1.0, 0.0, 0.0])
        return [math.log(value) if value else -math.inf for value in row]

    return distribution


def found(distribution, beam_size, max_tokens=5, **options):
    bench = Bench(beam_size, len(distribution(())))
    bench.add("only", distribution, max_tokens, **options)
    return bench.run()["only"]


def assert_same(ours, theirs):
    assert [tokens for tokens, _, _ in ours] == [tokens for tokens, _, _ in theirs]
    for (_, *numbers), (_, *expected) in zip(ours, theirs, strict=True):
        assert numbers == pytest.approx(expected, rel=1e-12, abs=1e-12)


# ---- by hand ----

GARDEN_PATH = table(start=[0.0, 0.6, 0.4], a=[0.4, 0.3, 0.3], b=[0.9, 0.05, 0.05])


def test_greedy_search_takes_the_most_probable_token_each_time():
    assert_same(found(GARDEN_PATH, 1), [((A,), math.log(0.6 * 0.4), math.log(0.6 * 0.4) / 2)])


def test_a_beam_of_two_finds_what_greedy_search_misses():
    expected = [((B,), math.log(0.36), math.log(0.36)), ((A,), math.log(0.24), math.log(0.24))]
    assert_same(found(GARDEN_PATH, 2, n_best=2, length_penalty=0), expected)


def test_an_end_that_is_not_among_the_first_k_finishes_nothing():
    assert_same(found(table(start=[0.4, 0.6, 0.0]), 1), [((A,), math.log(0.6), math.log(0.6) / 2)])
    ((tokens, _, _),) = found(table(start=[0.4, 0.6, 0.0]), 2, length_penalty=0)
    assert tokens == (A,)
    assert [tokens for tokens, _, _ in found(table(start=[0.4, 0.6, 0.0]), 2, n_best=2)] == [(A,), ()]


def test_the_length_penalty_counts_the_end():
    distribution = table(start=[0.5, 0.5, 0.0], a=[0.6, 0.4, 0.0])
    for alpha, first in ((0.0, ()), (1.0, (A,))):
        results = found(distribution, 2, n_best=2, max_tokens=2, length_penalty=alpha)
        assert results[0][0] == first
        scores = {tokens: score for tokens, _, score in results}
        assert scores[()] == pytest.approx(math.log(0.5))
        assert scores[(A,)] == pytest.approx(math.log(0.3) / 2**alpha)


def test_what_the_limit_cuts_off_has_no_end():
    distribution = table(start=[0.1, 0.9, 0.0], a=[0.1, 0.9, 0.0])
    assert_same(found(distribution, 1, max_tokens=2), [((A, A), math.log(0.81), math.log(0.81) / 2)])
    assert_same(found(distribution, 1, max_tokens=1), [((A,), math.log(0.9), math.log(0.9))])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_each_token_has_its_log_probability(beam_size):
    bench, distributions = Bench(beam_size, 7), [made_up(seed, 7) for seed in range(6)]
    for key, distribution in enumerate(distributions):
        bench.add(key, distribution, 4 + 7 * key, n_best=beam_size)
        bench.step()
    bench.run()
    for key, distribution in enumerate(distributions):
        for (tokens, _, _), found in zip(bench.results[key], bench.tokens[key], strict=True):
            spelled = (*tokens, END)[: len(found)]
            assert len(found) >= len(tokens)
            expected = [distribution(spelled[:place])[token] for place, token in enumerate(spelled)]
            assert found == pytest.approx(expected, abs=1e-9)


def test_a_prefix_is_forced_and_counts_for_nothing():
    distribution = table(start=[0.9, 0.1, 0.0], a=[0.1, 0.2, 0.7], a_b=[0.8, 0.1, 0.1])
    (result,) = found(distribution, 2, prefix=(A, B))
    assert_same([result], [((A, B), math.log(0.8), math.log(0.8) / 3)])
    assert_same(found(distribution, 2, prefix=(A, B), max_tokens=2), [((A, B), 0.0, 0.0)])


def test_the_sparse_mask_renormalizes_the_k_best():
    distribution = table(start=[0.2, 0.5, 0.3], a=[0.6, 0.3, 0.1])
    results = found(distribution, 2, sparse=True, n_best=2, length_penalty=0)
    assert_same(results[:1], [((A,), math.log(0.5 / 0.8 * 0.6 / 0.9), math.log(0.5 / 0.8 * 0.6 / 0.9))])
    assert results[1][0] == (B,)
    assert results[1][1] == pytest.approx(math.log(0.3 / 0.8))
    ((tokens, log_probability, _),) = found(distribution, 1, sparse=True)
    assert (tokens, log_probability) == ((A,), 0.0)


def test_equal_scores_are_ranked_by_the_order_of_the_caller():
    results = found(lambda _: [math.log(0.25)] * 4, 3, n_best=3, max_tokens=1)
    assert [tokens for tokens, _, _ in results] == [(), (1,), (2,)]


def test_an_exact_search_stops_as_soon_as_nothing_better_can_come():
    bench = Bench(2, 3)
    bench.add("sure", table(start=[0.98, 0.01, 0.01]), 100)
    bench.run()
    assert bench.steps == 1


def test_the_first_steps_read_the_end_token():
    search = BeamSearch(2, 7)
    search.add("a", SearchOptions(), 4)
    assert search.last_tokens.tolist() == [[7, 7]]
    assert (len(search), search.keys, search.lengths.tolist()) == (1, ["a"], [0])


# ---- errors ----


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n_best", [0, -1]),
        ("length_penalty", [-0.1, 10.1, math.nan, math.inf]),
        ("stop", ["", "Exact", None]),
        ("temperature", [0, -1.0, 101, math.nan, math.inf]),
        ("sample_from", [0, 1001]),
        ("seed", [-1]),
    ],
)
def test_options_out_of_range_are_named(name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} must .*{value}"):
            SearchOptions(**{name: value})


@pytest.mark.parametrize("beam_size", [0, -1])
def test_a_beam_without_hypotheses_is_refused(beam_size):
    with pytest.raises(ValueError, match="beam_size must be at least 1"):
        BeamSearch(beam_size, END)


@pytest.mark.parametrize(
    ("options", "max_tokens", "message"),
    [({"n_best": 3}, 5, "n_best must be at most"), ({}, 0, "max_tokens"), ({"prefix": (1, 2)}, 1, "max_tokens")],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(options, max_tokens, message):
    search = BeamSearch(2, END)
    with pytest.raises(ValueError, match=message):
        search.add("a", SearchOptions(**options), max_tokens)
    assert len(search) == 0


# ---- against a plain search ----

SEARCHES = st.fixed_dictionaries(
    {
        "length_penalty": st.sampled_from([0, 0.6, 1, 2]),
        "stop": st.sampled_from(["exact", "full"]),
        "sparse": st.booleans(),
    }
)
SENTENCES = st.tuples(
    st.integers(0, 10_000), st.integers(1, 10), st.integers(1, 6), st.lists(st.integers(1, 100), max_size=3), SEARCHES
)


def sentences_of(drawn, beam_size, vocab_size, zeros):
    """Distribution, length limit and options of each drawn sentence."""
    for seed, max_tokens, n_best, prefix, options in drawn:
        prefix = tuple(1 + token % (vocab_size - 1) for token in prefix)[:max_tokens] if vocab_size > 1 else ()
        options = {**options, "n_best": min(n_best, beam_size), "prefix": prefix}
        yield made_up(seed, vocab_size, zeros=zeros), max_tokens, options


@settings(max_examples=150)
@given(
    beam_size=st.integers(1, 6),
    vocab_size=st.integers(1, 14),
    zeros=st.sampled_from([0.0, 0.3]),
    drawn=st.lists(SENTENCES, min_size=1, max_size=5),
)
def test_it_finds_what_a_plain_search_finds(beam_size, vocab_size, zeros, drawn):
    """Which lets an exact search run to the length limit: ending early loses nothing."""
    sentences = list(sentences_of(drawn, beam_size, vocab_size, zeros))
    bench = Bench(beam_size, vocab_size)
    for key, (distribution, max_tokens, options) in enumerate(sentences):
        bench.add(key, distribution, max_tokens, **options)
    results = bench.run()
    for key, (distribution, max_tokens, options) in enumerate(sentences):
        expected = best(distribution, beam_size, END, max_tokens, SearchOptions(**options))
        assert_same(results[key], expected)


@settings(max_examples=60)
@given(
    beam_size=st.integers(1, 4),
    drawn=st.lists(SENTENCES, min_size=2, max_size=6),
    joins=st.lists(st.integers(0, 4), min_size=6, max_size=6),
    keep=st.booleans(),
)
def test_joining_late_and_idle_neighbours_change_nothing(beam_size, drawn, joins, keep):
    waiting = [(key, *each) for key, each in enumerate(sentences_of(drawn, beam_size, 9, 0.0))]
    expected = {
        key: best(distribution, beam_size, END, max_tokens, SearchOptions(**options))
        for key, distribution, max_tokens, options in waiting
    }
    bench = Bench(beam_size, 9)
    while waiting or len(bench.results) < len(expected):
        for _ in range(joins.pop() if joins else 2):
            if waiting:
                key, distribution, max_tokens, options = waiting.pop()
                bench.add(key, distribution, max_tokens, **options)
        if len(bench.search):
            bench.step(keep=keep)
    for key, result in bench.results.items():
        assert_same(result, expected[key])


def test_sentences_that_are_over_do_not_grow():
    """Their caller may keep them for a while, and has no room for more tokens than it asked for."""
    bench = Bench(2, 5)
    bench.add("short", made_up(1, 5), 2)
    bench.add("long", made_up(2, 5, scale=0.1), 60, length_penalty=0, stop="full")
    while "long" not in bench.results and bench.steps < 60:
        bench.step(keep=True)
        assert bench.search.lengths[0] <= 2
    bench.search.remove([0, 1])
    assert len(bench.search) == 0


@given(seed=st.integers(0, 1000), beam_size=st.integers(1, 5))
def test_hypotheses_are_sorted_distinct_and_say_their_probability(seed, beam_size):
    distribution = made_up(seed, 8)
    results = found(distribution, beam_size, 7, n_best=beam_size, stop="full")
    assert len({tokens for tokens, _, _ in results}) == len(results)
    ranks = [(len(tokens) == 7, -score) for tokens, _, score in results]  # hypotheses that were cut off are last
    assert ranks == sorted(ranks)
    for tokens, log_probability, _ in results:
        assert END not in tokens
        spelt = (*tokens, END) if len(tokens) < 7 else tokens
        expected = sum(distribution(spelt[:place])[token] for place, token in enumerate(spelt))
        assert log_probability == pytest.approx(expected)


# ---- sampling ----


def test_the_same_seed_draws_the_same_sample_whatever_runs_beside_it():
    def samples(neighbours, late):
        bench = Bench(3, 60)
        for index in range(neighbours):
            bench.add(index, made_up(index, 60), 4 + index, temperature=2.0, sample_from=50, seed=index)
        for _ in range(late):
            bench.step()
        bench.add("mine", made_up(99, 60), 8, temperature=1.5, sample_from=7, seed=5, n_best=3)
        return bench.run()["mine"]

    alone = samples(0, 0)
    assert len({tokens for tokens, _, _ in alone}) > 1
    for neighbours, late in ((1, 0), (4, 0), (4, 3)):
        assert_same(samples(neighbours, late), alone)


def test_seeds_draw_different_samples():
    drawn = [found(made_up(1, 20), 1, 6, temperature=1.0, seed=seed)[0][0] for seed in range(10)]
    assert len(set(drawn)) > 5


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_samples_are_distributed_as_the_model_says(temperature):
    probabilities = np.array([0.0, 0.5, 0.3, 0.15, 0.05])
    with np.errstate(divide="ignore"):
        values = np.log(probabilities).tolist()
    counts, size = np.zeros(5), 3200
    for seed in range(size // 32):
        for (token,), log_probability, _ in found(
            lambda _: values, 32, 1, temperature=temperature, seed=seed, n_best=32
        ):
            assert log_probability == pytest.approx(values[token])  # of the model, not of the temperature
            counts[token] += 1
    expected = probabilities ** (1 / temperature)
    expected /= expected.sum()
    assert counts.sum() == size
    assert (np.abs(counts / size - expected) <= 4 * np.sqrt(expected * (1 - expected) / size)).all()


def test_exactly_the_most_probable_tokens_are_sampled_from():
    """Twenty tokens that are almost equally probable, the last ones most."""
    values = (np.arange(20) * 1e-3).tolist()
    drawn = {found(lambda _: values, 1, 1, temperature=1.0, sample_from=10, seed=seed)[0][0] for seed in range(300)}
    assert drawn == {(token,) for token in range(10, 20)}


def test_sampling_from_one_token_is_greedy_search():
    distribution = made_up(3, 12)
    greedy = found(distribution, 1, 9)
    for tokens, log_probability, _ in found(distribution, 4, 9, temperature=5.0, sample_from=1, n_best=4):
        assert tokens == greedy[0][0]
        assert log_probability == pytest.approx(greedy[0][1])


@pytest.mark.parametrize("temperature", [1e-30, 1e-320])
def test_a_temperature_of_almost_nothing_is_greedy_search(temperature):
    greedy = found(made_up(3, 12), 1, 9)
    for tokens, _, _ in found(made_up(3, 12), 2, 9, temperature=temperature, n_best=2):
        assert tokens == greedy[0][0]


def test_a_sample_keeps_its_prefix_and_its_neighbours_search_on():
    bench = Bench(4, 9)
    bench.add("sample", made_up(1, 9), 6, temperature=1.0, prefix=(3, 4), n_best=4)
    bench.add("search", made_up(2, 9), 6, n_best=2)
    results = bench.run()
    assert len(results["sample"]) == 4
    assert {tokens[:2] for tokens, _, _ in results["sample"]} == {(3, 4)}
    assert_same(results["search"], best(made_up(2, 9), 4, END, 6, SearchOptions(n_best=2)))


# ---- tokens that are no whole characters ----

BYTES = [b"", b"a", b"\xc3", b"\xa9", b"\xef\xbf", b"\xbd"]
"""The end, a letter, both bytes of an e with acute, and the bytes of U+FFFD."""


def spelled(hypotheses):
    return [b"".join(BYTES[token] for token in tokens).decode() for tokens, _, _ in hypotheses]


def test_half_a_character_is_no_hypothesis_by_hand():
    """The best two continuations are the end and a letter within the character: neither is text, the third is."""
    bench = Bench(2, 6, Utf8Tokens(BYTES))
    first, within, last = [0.1, 0.2, 0.7, 0, 0, 0], [0.5, 0.3, 0, 0.2, 0, 0], [1, 0, 0, 0, 0, 0]
    rows = {(): first, (2,): within, (1,): last, (2, 3): last}
    bench.add("e", lambda prefix: np.log(np.maximum(rows.get(prefix, last), 1e-12)), 4, n_best=2, length_penalty=0.0)
    found = bench.run()["e"]
    assert spelled(found) == ["a", "é"]
    assert [value for _, value, _ in found] == pytest.approx([math.log(0.2), math.log(0.14)])


def test_greedy_search_goes_on_within_a_character():
    bench = Bench(1, 6, Utf8Tokens(BYTES))
    rows = {(): [0.1, 0.2, 0.7, 0, 0, 0], (2,): [0.6, 0, 0, 0.4, 0, 0]}
    bench.add("e", lambda prefix: np.log(np.maximum(rows.get(prefix, [1, 0, 0, 0, 0, 0]), 1e-12)), 4)
    assert spelled(bench.run()["e"]) == ["é"]


@pytest.mark.parametrize("max_tokens", [3, 9])
def test_what_cannot_go_on_as_text_ends_with_the_last_whole_character(max_tokens):
    bench = Bench(1, 6, Utf8Tokens(BYTES))
    rows = {(): [0, 1, 0, 0, 0, 0], (1,): [0, 0, 1, 0, 0, 0], (1, 2): [0.6, 0.4, 0, 0, 0, 0]}
    bench.add("a", lambda prefix: np.log(np.maximum(rows.get(prefix, [1, 0, 0, 0, 0, 0]), 1e-12)), max_tokens)
    ((tokens, value, _),) = bench.run()["a"]
    assert tokens == (1,)
    assert value == pytest.approx(0, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    beam_size=st.integers(1, 4),
    max_tokens=st.integers(1, 7),
    temperature=st.sampled_from([None, 1.0]),
)
def test_every_hypothesis_is_text(seed, beam_size, max_tokens, temperature):
    bench = Bench(beam_size, 6, Utf8Tokens(BYTES))
    for key in range(3):
        distribution = made_up(seed + key, 6)
        bench.add(key, distribution, max_tokens, n_best=beam_size, temperature=temperature, sample_from=6)
    for hypotheses in bench.run().values():
        assert hypotheses
        assert all("\ufffd" not in text for text in spelled(hypotheses))
