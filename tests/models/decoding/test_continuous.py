"""Decoding by ONNX Runtime and TorchScript against a plain search that reads the whole prefix again each step."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

from models.decoding.beam_search import SearchOptions
from models.decoding.continuous import Decoding, Footprint
from models.decoding.sequence_to_sequence import Decoder
from tests.models.reference_search import best

END = 1
LIMIT = 34
FOOTPRINT = Footprint(layers=2, heads=2, hidden_size=16, vocab_size=270)


def test_mask_tokens_double_the_scores_of_a_step() -> None:
    """By hand: 3 copies of 2 heads' scores of 10 instead of 5 vectors for 5 * 4 + 7 and 5 more positions, and masks."""
    sizes = {"beam_size": 5, "rows": 3, "steps": 4, "width": 7}
    more = replace(FOOTPRINT, step_vectors=2).bytes(**sizes) - FOOTPRINT.bytes(**sizes)
    assert more == 3 * (4 * 3 * 2 * (10 * 32 - 5 * 27) + 2 * 5 * 27)


def test_further_components_hold_more_log_probabilities() -> None:
    """By hand: 4 copies of the log-probabilities of 270 tokens for each hypothesis and each of 2 further components."""
    sizes = {"beam_size": 5, "rows": 3, "steps": 4, "width": 7}
    more = replace(FOOTPRINT, components=3).bytes(**sizes) - FOOTPRINT.bytes(**sizes)
    assert more == 3 * 4 * 4 * 2 * 5 * 270


def source_of(seed, length=None):
    generator = np.random.default_rng(seed)
    return tuple(generator.integers(2, 270, generator.integers(1, 13) if length is None else length).tolist())


@pytest.fixture(scope="module")
def expected(babbler):
    """What eager torch and a plain search find, computed once for each question."""

    @functools.cache
    def distribution(source):
        inputs, lengths = torch.tensor([[*source, END]]), torch.tensor([len(source) + 1])

        @functools.cache
        def after(prefix):
            hidden = babbler(inputs, lengths, torch.tensor([[END, *prefix]]))[:, -1]
            return babbler.output_layer.log_prob(hidden)[0].double().tolist()

        return after

    @functools.cache
    @torch.no_grad()
    def find(source, beam_size, options, limit=LIMIT):
        return best(distribution(source), beam_size, END, limit, options)

    return find


@pytest.fixture(params=["onnx", "torchscript"])
def decoder(request, babblers):
    return any_bytes(babblers[request.param])


def any_bytes(model):
    """A decoder whose outputs may be bytes that are no text, as those of the plain search."""
    return Decoder(model.backend, FOOTPRINT, model.config.special_tokens, reuse_slots=True)


def run(decoding):
    results = {}
    while len(decoding):
        results |= dict(decoding.step())
    return results


def assert_same(hypotheses, expected):
    assert [each.tokens for each in hypotheses] == [tokens for tokens, _, _ in expected]
    for ours, (_, log_probability, score) in zip(hypotheses, expected, strict=True):
        assert ours.log_probability == pytest.approx(log_probability, rel=1e-4, abs=1e-4)
        assert ours.score == pytest.approx(score, rel=1e-4, abs=1e-4)


def add(decoding, sources, options, limit=LIMIT):
    decoding.add(sources, [(source, options, limit) for source in sources])


@pytest.mark.parametrize(
    ("beam_size", "options"),
    [
        (1, SearchOptions()),
        (2, SearchOptions(n_best=2, length_penalty=0.6)),
        (5, SearchOptions(n_best=3)),
        (4, SearchOptions(n_best=4, stop="full", sparse=True)),
        (3, SearchOptions(n_best=3, prefix=(7, 99, 8), length_penalty=0)),
    ],
    ids=["greedy", "two", "five", "sparse", "prefix"],
)
def test_it_finds_what_a_plain_search_over_the_model_finds(beam_size, options, decoder, expected):
    sources = [source_of(seed) for seed in range(6)]
    assert len(set(map(len, sources))) > 3
    decoding = decoder.start(beam_size)
    add(decoding, sources, options)
    assert len(decoding) == 6
    for source, hypotheses in run(decoding).items():
        assert_same(hypotheses, expected(source, beam_size, options))


def test_the_tests_see_short_and_long_translations(expected):
    """Which need room for more than the first 16 steps, twice over, and leave idle rows behind."""
    lengths = [
        len(expected(source_of(seed), 2, SearchOptions(n_best=2, length_penalty=0.6))[0][0]) for seed in range(6)
    ]
    assert min(lengths) < 20
    assert max(lengths) == LIMIT


def test_sentences_that_join_in_the_middle_are_translated_as_alone(decoder, expected):
    options, decoding, results = SearchOptions(), decoder.start(2), {}
    waiting = [source_of(seed, 1 + 5 * seed % 23) for seed in range(20, 32)]
    while waiting or len(decoding):
        if waiting and len(decoding) < 6:
            add(decoding, [waiting.pop() for _ in range(2)], options)
        for _ in range(3):
            results |= dict(decoding.step())
    assert len(results) == 12
    for source, hypotheses in results.items():
        assert_same(hypotheses, expected(source, 2, options))


def test_sentences_that_take_places_of_others_are_translated_as_alone(babblers, expected):
    """Sources and translations of very different lengths in the same few places, in both directions."""
    options, decoding, results = SearchOptions(n_best=2), any_bytes(babblers["onnx"]).start(2), {}
    sources = [source_of(seed, 40 if seed % 7 == 3 else 1 + 5 * seed % 11) for seed in range(40, 70)]
    limits = {source: LIMIT if index % 3 else 3 for index, source in enumerate(sources)}
    waiting = list(sources)
    while waiting or len(decoding):
        new = [waiting.pop(0) for _ in range(min(len(waiting), 5 - len(decoding)))]
        if new:
            decoding.add(new, [(source, options, limits[source]) for source in new])
        assert len(decoding.search) <= 5
        results |= dict(decoding.step())
    assert set(results) == set(sources)
    for source, hypotheses in results.items():
        assert_same(hypotheses, expected(source, 2, options, limits[source]))


class Counting:
    """A backend that counts how often arrays were bound anew."""

    def __init__(self, backend):
        self.backend, self.bound = backend, 0

    def run(self, *arguments):
        return self.backend.run(*arguments)

    def resident(self, *arguments):
        self.bound += 1
        return self.backend.resident(*arguments)


def decoding_of(translator, **options):
    counting = Counting(translator.backend)
    return counting, Decoding(counting, footprint=FOOTPRINT, end_id=END, **options)


def test_a_sentence_that_takes_a_place_moves_no_other(babblers):
    counting, decoding = decoding_of(babblers["onnx"], beam_size=2, idle_share=0.5)
    decoding.add([(5, 6, 7)] * 4, [(row, SearchOptions(), 3 if row == 2 else 12) for row in range(4)])
    finished = {}
    while 2 not in finished:
        finished |= dict(decoding.step())
    assert (len(decoding), decoding.search.free_slots) == (3, [2])
    decoding.add([(8, 9)], [("new", SearchOptions(), 12)])
    assert decoding.search.keys == [0, 1, "new", 3]
    decoding.step()
    assert counting.bound == 1


def test_room_that_is_needed_no_more_is_given_back_when_a_sentence_joins(babblers):
    _, decoding = decoding_of(babblers["onnx"], beam_size=1, idle_share=1.0)
    long = SearchOptions(prefix=(7,) * 100)
    decoding.add([tuple(range(2, 102)), (5,)], [("long", long, 100), ("short", long, 150)])
    while len(decoding) == 2:
        decoding.step()
    assert decoding._slots.count == 144
    assert {array.shape[2] for array in decoding._memory.values()} == {101}
    decoding.cancel(["short"])
    decoding.add([(6,)], [("next", long, 100)])
    assert decoding._slots.count == 16
    assert {array.shape[2] for array in decoding._memory.values()} == {8}


def test_places_go_when_more_are_idle_than_are_kept(babblers):
    _, decoding = decoding_of(babblers["onnx"], beam_size=2, idle_share=0.5)
    decoding.add([(5, 6, 7)] * 4, [(row, SearchOptions(), 12) for row in range(4)])
    decoding.step()
    decoding.cancel([0, 3])
    assert (len(decoding), len(decoding.search)) == (2, 4)
    decoding.cancel([1])
    assert (len(decoding), decoding.search.keys) == (1, [2])


def test_cancelled_sentences_leave_and_the_others_go_on(decoder, expected):
    options, decoding = SearchOptions(), decoder.start(2)
    sources = [source_of(seed, 4 + seed % 3) for seed in range(8)]
    add(decoding, sources, options)
    for _ in range(3):
        decoding.step()
    before = len(decoding)
    gone = [key for key in decoding.search.keys if key in sources[::2]]
    decoding.cancel([*gone, object()])
    assert len(decoding) <= before - len(gone) + 4
    results = run(decoding)
    assert results
    assert not set(sources[::2]) & set(results)
    for source, hypotheses in results.items():
        assert_same(hypotheses, expected(source, 2, options))


def test_a_decoding_that_lost_all_its_sentences_starts_afresh(decoder, expected):
    options, decoding = SearchOptions(), decoder.start(2)
    sources = [source_of(seed) for seed in range(3)]
    add(decoding, sources, options)
    for _ in range(20):
        decoding.step()
    decoding.cancel(sources)
    assert (len(decoding), decoding.step()) == (0, [])
    add(decoding, sources[:2], options)
    results = run(decoding)
    assert set(results) == set(sources[:2])
    for source, hypotheses in results.items():
        assert_same(hypotheses, expected(source, 2, options))


def test_an_empty_decoding_takes_no_step(decoder):
    decoding = decoder.start(3)
    decoding.cancel([object()])
    assert (len(decoding), decoding.step()) == (0, [])


def test_each_sentence_has_its_own_limit(decoder, expected):
    source, decoding = source_of(1), decoder.start(2)
    limits = [1, 2, 5, 17, 33]
    decoding.add([source] * 5, [(limit, SearchOptions(), limit) for limit in limits])
    for limit, hypotheses in run(decoding).items():
        assert_same(hypotheses, expected(source, 2, SearchOptions(), limit))


def test_idle_sentences_never_run_out_of_positions(babblers):
    """A finished one may stay among running ones for long: its steps must stay within the model's 1024."""
    decoding = any_bytes(babblers["onnx"]).start(1)
    decoding.add([(5,)], [("idle", SearchOptions(prefix=(7,) * 60), 60)])
    for count in range(9):
        decoding.add([(5, 6)], [(count, SearchOptions(prefix=(7,) * 1000), 1000)])
    finished = {}
    for _ in range(60):
        finished |= dict(decoding.step())
    assert list(finished) == ["idle"]
    assert len(decoding.search) == 10
    decoding.step()
    first, *others = decoding.search.lengths.tolist()
    assert first < 60
    assert others == [61] * 9


def test_samples_do_not_depend_on_neighbours(decoder):
    options = SearchOptions(temperature=1.0, n_best=3, seed=4, sample_from=20)
    alone, among = decoder.start(3), decoder.start(3)
    add(alone, [source_of(1)], options, 20)
    add(among, [source_of(2), source_of(3)], SearchOptions(temperature=3.0, sample_from=90), 20)
    among.step()
    add(among, [source_of(1)], options, 20)
    ours, theirs = run(alone)[source_of(1)], run(among)[source_of(1)]
    assert_same(ours, [(each.tokens, each.log_probability, each.score) for each in theirs])
    assert len({each.tokens for each in ours}) == 3


def test_what_a_decoding_reserves_covers_its_buffers_until_the_next_sequence_joins(babblers):
    _, decoding = decoding_of(babblers["onnx"], beam_size=4, idle_share=0.5)
    joins = [[(5, 30)] * 3, [(40, 150)], [(2, 12)] * 5]
    assert decoding.reserved_bytes() == 0
    reserved, name = 0, 0
    for joining in joins:
        planned = decoding.reserved_bytes([(length, limit) for length, limit in joining])
        decoding.add(
            [source_of(length, length - 1) for length, _ in joining],
            [(name := name + 1, SearchOptions(), limit) for _, limit in joining],
        )
        assert decoding.reserved_bytes() <= planned
        reserved = planned
        for _ in range(20):
            decoding.step()
            buffers = (*decoding._caches.values(), *decoding._memory.values(), decoding._slots.visible)
            assert sum(array.nbytes for array in buffers) <= decoding.reserved_bytes() <= reserved
            reserved = decoding.reserved_bytes()
    while len(decoding):
        decoding.step()
        assert decoding.reserved_bytes() <= reserved
    assert decoding.reserved_bytes() == 0
