import itertools
import random

import pytest

from benchmarks.shape_buckets import Buckets, choose, powers_of_two


def seconds(items, length):
    return 4.0 + 0.1 * items + 0.01 * items * length


def total(shapes, buckets, cost=seconds):
    return sum(weight * cost(*buckets.of(*shape)) for shape, weight in shapes.items())


def all_rows(counts, lengths, most):
    """Yield all buckets of at most `most` shapes whose last row and lengths are the largest."""
    tails = [chosen for size in range(len(lengths)) for chosen in itertools.combinations(lengths[:-1], size)]
    for size in range(len(counts)):
        for chosen in itertools.combinations(counts[:-1], size):
            for rows in itertools.product(tails, repeat=size + 1):
                if sum(len(row) + 1 for row in rows) <= most:
                    items = (*chosen, counts[-1])
                    yield Buckets([(count, [*row, lengths[-1]]) for count, row in zip(items, rows, strict=True)])


def test_one_bucket_is_the_largest_shape():
    buckets = choose({(3, 5): 1.0}, seconds, max_items=8, max_length=20, most=1)
    assert list(buckets) == [(8, 20)]


def test_buckets_are_where_the_batches_are():
    """Batches of 1 and of 30 texts; the last bucket of each row holds the longest text."""
    shapes = {(1, 9): 100.0, (30, 10): 100.0, (30, 11): 1.0}
    buckets = choose(shapes, seconds, max_items=30, max_length=11, most=3)
    assert list(buckets) == [(1, 11), (30, 10), (30, 11)]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_the_choice_is_the_best_of_all(most):
    generator = random.Random(most)
    for _ in range(10):
        shapes = {(generator.randint(1, 4), generator.randint(1, 4)): generator.random() for _ in range(6)}
        buckets = choose(shapes, seconds, max_items=4, max_length=4, most=most)
        assert len(buckets) <= most
        counts, lengths = (sorted({4, *values}) for values in zip(*shapes, strict=True))
        best = min(total(shapes, each) for each in all_rows(counts, lengths, most))
        assert total(shapes, buckets) == pytest.approx(best)


def test_every_batch_has_a_bucket_and_larger_ones_are_refused():
    generator = random.Random(0)
    shapes = {(generator.randint(1, 200), generator.randint(3, 60)): 1.0 for _ in range(500)}
    buckets = choose(shapes, seconds, max_items=256, max_length=64, most=12)
    assert len(buckets) == 12
    for items, length in itertools.product((1, 2, 100, 256), (1, 33, 64)):
        count, longest = buckets.of(items, length)
        assert count >= items
        assert longest >= length
        assert (count, longest) in set(buckets)
    for shape in ((257, 1), (1, 65)):
        with pytest.raises(ValueError, match="no bucket"):
            buckets.of(*shape)


def test_chosen_buckets_cost_less_than_as_many_powers_of_two():
    generator = random.Random(1)
    shapes = {(generator.randint(1, 256), generator.randint(20, 40)): 1.0 for _ in range(500)}
    powers = powers_of_two(256, 40)
    chosen = choose(shapes, seconds, max_items=256, max_length=40, most=len(powers))
    assert total(shapes, chosen) < 0.9 * total(shapes, powers)


@pytest.mark.parametrize(("largest", "powers"), [(1, [1]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])])
def test_powers_of_two_end_with_the_largest(largest, powers):
    assert list(powers_of_two(largest, 1)) == [(items, 1) for items in powers]


@pytest.mark.parametrize(("shapes", "most"), [({}, 1), ({(1, 1): 1.0}, 0)])
def test_nothing_to_choose_is_an_error(shapes, most):
    with pytest.raises(ValueError, match="needed"):
        choose(shapes, seconds, max_items=1, max_length=1, most=most)
