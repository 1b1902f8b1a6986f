import numpy as np
import pytest

from models.decoding.slots import Slots


def slots_of(sentences, beam, **options):
    slots = Slots(beam, **options)
    slots.resize(sentences, slots.count)
    return slots


def seen(slots, sentence):
    return [np.flatnonzero(row).tolist() for row in slots.visible[sentence]]


def test_consecutive_steps_of_one_hypothesis_take_consecutive_slots():
    slots = slots_of(2, 1)
    for step in range(3):
        assert slots.take(np.array([step, step + 4]), 1).tolist() == [[step], [step + 4]]
    assert seen(slots, 0) == [[0, 1, 2]]


def test_without_reuse_each_step_has_its_own_slots():
    slots = slots_of(1, 2, reused=False)
    assert slots.count == 32
    for step in range(3):
        assert slots.take(np.array([step]), 2).tolist() == [[2 * step, 2 * step + 1]]
        slots.follow(np.array([[0, 0]]))
    assert seen(slots, 0) == [[0, 2, 4], [0, 2, 4]]


def test_slots_that_no_hypothesis_descends_from_are_taken_again():
    slots = slots_of(1, 2)
    assert slots.take(np.array([0]), 2).tolist() == [[0, 1]]
    slots.follow(np.array([[0, 0]]))
    assert slots.take(np.array([1]), 2).tolist() == [[1, 2]]
    assert seen(slots, 0) == [[0, 1], [0, 2]]
    slots.follow(np.array([[1, 0]]))
    assert seen(slots, 0) == [[0, 2], [0, 1]]


def test_random_searches_never_write_a_slot_that_is_seen_and_remember_their_ancestors():
    generator, sentences, beam = np.random.default_rng(0), 3, 4
    slots = slots_of(sentences, beam)
    written = np.full((sentences, 1000), -1)
    histories = [[[] for _ in range(beam)] for _ in range(sentences)]
    for step in range(40):
        wanted = slots.wanted(step, 100)
        slots.resize(sentences, wanted)
        before = slots.visible.any(axis=1)
        taken = slots.take(np.full(sentences, step), beam)
        for sentence in range(sentences):
            assert len(set(taken[sentence].tolist())) == beam
            assert not before[sentence, taken[sentence]].any()
            for hypothesis, slot in enumerate(taken[sentence].tolist()):
                written[sentence, slot] = step * beam + hypothesis
                histories[sentence][hypothesis].append(step * beam + hypothesis)
        origins = np.minimum(
            generator.integers(0, beam, (sentences, beam)), generator.integers(0, beam, (sentences, beam))
        )
        slots.follow(origins)
        histories = [
            [list(own[origin]) for origin in row] for own, row in zip(histories, origins.tolist(), strict=True)
        ]
        for sentence in range(sentences):
            for visible, history in zip(slots.visible[sentence], histories[sentence], strict=True):
                assert sorted(written[sentence, np.flatnonzero(visible)].tolist()) == history
    assert slots.count < 40 * beam


@pytest.mark.parametrize(("beam", "first", "next_count"), [(1, 16, 24), (5, 32, 48)])
def test_full_caches_grow_up_to_the_longest_output(beam, first, next_count):
    slots = slots_of(1, beam)
    assert slots.wanted(0, 3) == slots.count == first
    slots.visible[:] = True
    assert slots.wanted(first, 1000) == next_count
    assert slots.wanted(first, first // beam + 1) == (first // beam + 2) * beam


def test_few_used_slots_are_enough_of_large_caches():
    slots = slots_of(1, 5)
    slots.visible = np.zeros((1, 5, 200), bool)
    assert slots.enough(50) == 32
    slots.visible[0, 2, 60] = True
    assert slots.enough(50) == 72
    assert slots_of(1, 1).enough(50) == 56


def test_positions_are_those_of_the_tokens_in_the_slots():
    slots = slots_of(2, 2)
    for step in range(4):
        taken = slots.take(np.array([step, step + 3]), 2)
        assert slots.positions[0, taken[0]].tolist() == [step] * 2
        assert slots.positions[1, taken[1]].tolist() == [step + 3] * 2
        slots.follow(np.array([[1, 1], [0, 1]]))
    before, slots.visible[0, 0] = slots.positions.copy(), True
    slots.resize(3, slots.count + 8)
    assert np.array_equal(slots.positions[:2, :-8], before)
    slots.keep(np.array([1]))
    assert np.array_equal(slots.positions[0, :-8], before[1])
