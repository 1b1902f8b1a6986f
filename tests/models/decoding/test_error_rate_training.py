"""Line searches against every hypothesis at positions between all crossings, and what tuning finds."""

import itertools
import math
import random

import numpy as np
import pytest

from models.decoding import error_rate_training
from models.decoding.error_rate_training import RatedList, errors_along, rated_list, tune
from models.decoding.rescoring import Hypothesis, Weights, rescored
from models.decoding.word_errors import edit_distance

Given = tuple[list[Hypothesis], list[float], str]


def random_lists(seed: int, count: int, *, integers: bool = False, impossible: float = 0.1) -> list[Given]:
    """Return lists, whose numbers are small integers where asked for, so that many totals are equal."""
    generator = random.Random(seed)

    def number() -> float:
        return -float(generator.randint(0, 4)) if integers else -generator.expovariate(0.2)

    lists = []
    for _ in range(count):
        texts = [" ".join(generator.choices("abc", k=generator.randint(1, 5))) for _ in range(generator.randint(1, 6))]
        hypotheses = [Hypothesis(text, number()) for text in texts]
        values = [-math.inf if generator.random() < impossible else number() for _ in texts]
        lists.append((hypotheses, values, " ".join(generator.choices("abc", k=4))))
    return lists


def errors_by_ranking(lists: list[Given], weights: Weights) -> int:
    best = (rescored(some, values, weights)[0].text for some, values, _ in lists)
    return sum(edit_distance(each[2].split(), text.split()) for each, text in zip(lists, best, strict=True))


def crossings(lists: list[Given], point, direction) -> list[float]:
    """Return every position at which two hypotheses of a list have the same total."""
    found = []
    for hypotheses, values, _ in lists:
        lines = []
        for each, value in zip(hypotheses, values, strict=True):
            if value > -math.inf:
                height = each.score + point[0] * value + point[1] * each.words
                lines.append((height, direction[0] * value + direction[1] * each.words))
        for (a, slope), (b, other) in itertools.combinations(lines, 2):
            if slope != other:
                found.append((a - b) / (other - slope))
    return found


@pytest.mark.parametrize("direction", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, -1.0), (0.3, 0.7)])
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_errors_along_a_line_are_those_of_the_ranking_everywhere(seed, integers, direction):
    lists = random_lists(seed, 12, integers=integers)
    point = (0.7, -0.4)
    ends, errors = errors_along([rated_list(*each) for each in lists], point, direction)
    assert len(ends) == len(errors) + 1
    assert (np.diff(ends) > 0).all()
    every = sorted(
        {ends[0], ends[-1], *(each for each in crossings(lists, point, direction) if ends[0] < each < ends[-1])}
    )
    checked = 0
    for low, high in itertools.pairwise(every):
        if high - low < 1e-9:  # rounding may move a crossing by as much
            continue
        position = (low + high) / 2
        weights = Weights(
            lm_weight=point[0] + position * direction[0], length_reward=point[1] + position * direction[1]
        )
        interval = int(np.searchsorted(ends, position)) - 1
        assert errors[interval] == errors_by_ranking(lists, weights), position
        checked += 1
    assert checked > 5


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_no_weights_of_a_grid_are_much_better_and_none_of_a_line_is(seed, integers):
    lists = random_lists(seed, 15, integers=integers)
    rated = [rated_list(*each) for each in lists]
    tuned = tune(rated)
    assert tuned.errors == errors_by_ranking(lists, tuned.weights)
    assert tuned.errors <= errors_by_ranking(lists, Weights(lm_weight=0.0))
    if tuned.weights.lm_weight:
        point = (tuned.weights.lm_weight, tuned.weights.length_reward)
        for direction in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, -1.0)):
            ends, errors = errors_along(rated, point, direction)
            assert errors[np.diff(ends) > 1e-6].min() == tuned.errors
    grid = [
        errors_by_ranking(lists, Weights(lm_weight=weight, length_reward=reward))
        for weight in (0.05, 0.2, 0.5, 1, 2, 5, 20)
        for reward in (-10, -2, -0.5, 0, 0.5, 2, 10)
    ]
    assert tuned.errors <= min(grid) + 2


def test_the_only_right_weights_are_found():
    """The language model alone would choose short hypotheses, and the first pass long ones."""
    lists = [
        (
            [Hypothesis("a b c d", -1.0), Hypothesis("a b c", -3.0), Hypothesis("a", -5.0)],
            [-20.0, -12.0, -6.0],
            "a b c",
        ),
        ([Hypothesis("a b", -1.0), Hypothesis("a b c", -1.5)], [-6.0, -7.0], "a b c"),
    ]
    tuned = tune([rated_list(*each) for each in lists])
    assert tuned.errors == 0
    assert errors_by_ranking(lists, tuned.weights) == 0


def test_the_first_pass_stays_where_nothing_is_better():
    lists = [([Hypothesis("a", -1.0), Hypothesis("b", -2.0)], [-9.0, -1.0], "a")]
    assert tune([rated_list(*each) for each in lists]) == error_rate_training.Tuned(Weights(lm_weight=0.0), 0)


def test_lists_of_different_lengths_in_several_tables(monkeypatch):
    lists = random_lists(7, 30)
    rated = [rated_list(*each) for each in lists]
    whole = errors_along(rated, (1.0, 0.0), (1.0, 0.0))
    monkeypatch.setattr(error_rate_training, "_CHUNK", 8)
    parts = errors_along(rated, (1.0, 0.0), (1.0, 0.0))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_lists_without_hypotheses_are_refused():
    empty = np.zeros(0)
    for lists in ([], [RatedList(empty, empty, empty, empty)]):
        with pytest.raises(ValueError, match="one or more"):
            tune(lists)
