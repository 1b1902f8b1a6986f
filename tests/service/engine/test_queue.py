import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.queue import DEFAULT_URGENCY, BatchQueue, Entry, Limits, QueueFull


def limits(**changes):
    values = {
        "max_batch_items": 4,
        "max_batch_tokens": 20,
        "batch_cost": 100,
        "max_delay": 0.0,
        "starvation_limit": math.inf,
        "max_wait": math.inf,
        "max_queue_items": 10,
        "max_queue_tokens": 100,
    }
    return Limits(**(values | changes))


def entry(length=1, batch_key="score", arrived=0.0, deadline=math.inf, urgency=DEFAULT_URGENCY, payload=None):
    return Entry(
        batch_key=batch_key, length=length, arrived=arrived, deadline=deadline, urgency=urgency, payload=payload
    )


def queue(*entries, **changes):
    waiting = BatchQueue(limits(**changes))
    waiting.push(entries)
    return waiting


def lengths(batch):
    return [waiting.length for waiting in batch]


# ---- hand-written cases ----


def test_nothing_waits_in_a_new_queue():
    waiting = BatchQueue(limits())
    assert (len(waiting), waiting.tokens, waiting.ready_at()) == (0, 0, None)
    assert waiting.next_batch(0.0) == waiting.expired(math.inf) == []


def test_length_and_tokens_count_what_waits():
    waiting = queue(entry(3), entry(4))
    assert (len(waiting), waiting.tokens) == (2, 7)
    waiting.next_batch(0.0)
    assert (len(waiting), waiting.tokens) == (0, 0)


def test_equal_lengths_share_a_batch_in_order_of_arrival():
    entries = [entry(2) for _ in range(3)]
    assert queue(*entries).next_batch(0.0) == entries


def test_a_batch_holds_no_more_items_than_allowed():
    waiting = queue(*[entry() for _ in range(6)])
    assert [len(waiting.next_batch(0.0)) for _ in range(3)] == [4, 2, 0]


def test_tokens_are_counted_with_padding():
    """Three times 9 are 27 > 20, so that there are two batches: 9 alone and 2 x 3 cost less than 2 x 9 and 3."""
    waiting = queue(entry(9), entry(3), entry(3))
    assert lengths(waiting.next_batch(0.0)) == [9]
    assert lengths(waiting.next_batch(0.0)) == [3, 3]


def test_a_longer_companion_counts_too():
    """A batch of lengths 1 and 11 costs 2 x 11 = 22, which is more than 20."""
    assert lengths(queue(entry(1), entry(11)).next_batch(0.0)) == [1]


def test_the_closest_lengths_join():
    waiting = queue(entry(5), entry(1), entry(6), entry(10), entry(5), max_batch_tokens=18)
    assert lengths(waiting.next_batch(0.0)) == [5, 6, 5]
    assert lengths(waiting.next_batch(0.0)) == [1]
    assert lengths(waiting.next_batch(0.0)) == [10]


def test_batch_keys_never_mix():
    first, second, third = entry(batch_key="a"), entry(batch_key="b"), entry(batch_key="a")
    waiting = queue(first, second, third)
    assert waiting.next_batch(0.0) == [first, third]
    assert waiting.next_batch(0.0) == [second]


def test_an_overlong_entry_runs_alone():
    waiting = queue(entry(21), entry(1), entry(21))
    assert [lengths(waiting.next_batch(0.0)) for _ in range(3)] == [[21], [1], [21]]


def test_the_oldest_entry_leads_even_if_no_other_fits():
    waiting = queue(entry(20), *[entry(1) for _ in range(5)])
    assert lengths(waiting.next_batch(0.0)) == [20]


@pytest.mark.parametrize("pushed", [[1] * 11, [50, 51]])
def test_what_never_fits_is_said_to(pushed):
    waiting = queue(entry())
    with pytest.raises(QueueFull) as caught:
        waiting.push([entry(length) for length in pushed])
    assert caught.value.never
    assert (len(waiting), waiting.tokens) == (1, 1)


@pytest.mark.parametrize("pushed", [[1] * 9, [100]])
def test_what_does_not_fit_now_is_refused_whole(pushed):
    waiting = queue(entry(), entry())
    with pytest.raises(QueueFull) as caught:
        waiting.push([entry(length) for length in pushed])
    assert not caught.value.never
    assert (len(waiting), waiting.tokens) == (2, 2)


@pytest.mark.parametrize("pushed", [[1] * 8, [98]])
def test_the_queue_can_be_filled_to_the_brim(pushed):
    waiting = queue(entry(), entry())
    waiting.push([entry(length) for length in pushed])
    with pytest.raises(QueueFull):
        waiting.push([entry(98)])


def test_pushing_nothing_is_fine_even_when_full():
    waiting = queue(*[entry() for _ in range(10)])
    waiting.push([])
    assert len(waiting) == 10


def test_removed_entries_never_run():
    gone, stays = entry(), entry()
    waiting = queue(gone, stays)
    waiting.remove([gone])
    assert (len(waiting), waiting.tokens) == (1, 1)
    assert waiting.next_batch(0.0) == [stays]


def test_removing_what_does_not_wait_changes_nothing():
    waiting = queue(entry(2))
    waiting.remove([entry(2)])
    assert (len(waiting), waiting.tokens) == (1, 2)


def test_entries_expire_at_their_deadline():
    early, late = entry(1, deadline=5.0), entry(2, deadline=6.0)
    waiting = queue(early, late)
    assert waiting.expired(4.9) == []
    assert waiting.expired(5.0) == [early]
    assert waiting.expired(5.0) == []
    assert waiting.next_batch(0.0) == [late]


def test_without_delay_a_batch_is_ready_when_it_arrives():
    assert queue(entry(arrived=3.0), entry(arrived=4.0)).ready_at() == 3.0


def test_the_oldest_entry_waits_up_to_the_delay():
    assert queue(entry(arrived=3.0), entry(arrived=4.0), max_delay=0.5).ready_at() == 3.5


@pytest.mark.parametrize("full", [[1, 1, 1, 1], [10, 10]])
def test_a_full_batch_starts_at_once(full):
    waiting = queue(*[entry(length, arrived=3.0) for length in full], max_delay=0.5)
    assert waiting.ready_at() == 3.0


def test_entries_of_equal_content_are_not_the_same():
    assert entry() != entry()


# ---- groups of requests, for which a batch waits for up to half of its fixed cost ----


def test_the_first_of_a_group_waits_for_as_many_as_groups_had():
    assert queue(entry(arrived=3.0), batch_seconds=2.0).ready_at() == 3.0
    waiting = queue(batch_seconds=2.0, max_queue_items=32, max_batch_items=16, max_batch_tokens=16)
    for start in (10.0, 20.0):
        waiting.push([entry(arrived=start)])
        waiting.push([entry(arrived=start + 0.5) for _ in range(9)])
        waiting.completed(start + 3.0, waiting.next_batch(start + 0.5))
    waiting.push([entry(arrived=30.0)])
    assert waiting.ready_at() == 31.0
    waiting.push([entry(arrived=30.5) for _ in range(9)])
    assert waiting.ready_at() == 30.0


def test_a_batch_waits_for_the_group_that_follows_the_results_of_the_last_one():
    waiting = queue(entry(), entry(), batch_seconds=2.0)
    batch = waiting.next_batch(1.0)
    waiting.push([entry(arrived=4.0)])
    assert waiting.ready_at() == 4.0
    waiting.completed(5.0, batch)
    assert waiting.ready_at() == 6.0
    waiting.push([entry(arrived=5.5), entry(arrived=5.5)])  # as many as the results
    assert waiting.ready_at() == 4.0


# ---- padding ----


def test_entries_that_cause_more_padding_than_a_batch_costs_do_not_join():
    """With 3, 5, 5 and 8 in one batch there would be 11 tokens of padding, with 8 alone 2 and another batch for 5."""
    waiting = queue(entry(5), entry(5), entry(8), entry(3), batch_cost=5)
    assert lengths(waiting.next_batch(0.0)) == [5, 5, 3]
    assert lengths(waiting.next_batch(0.0)) == [8]


def test_all_that_waits_is_looked_at_to_find_the_cheapest_batches():
    """9 is as close to 8 as to 10, and joins 10, which has no other neighbour; 8 has 7."""
    waiting = queue(entry(9), entry(10), entry(10), entry(8), entry(7), entry(7), max_batch_tokens=30, batch_cost=2)
    assert lengths(waiting.next_batch(0.0)) == [9, 10, 10]
    assert lengths(waiting.next_batch(0.0)) == [8, 7, 7]


def test_without_a_cost_only_equal_lengths_share_a_batch():
    waiting = queue(entry(2), entry(3), entry(2), entry(1), batch_cost=0)
    assert [lengths(waiting.next_batch(0.0)) for _ in range(3)] == [[2, 2], [3], [1]]


# ---- urgency ----


def test_the_most_urgent_go_first_in_order_of_arrival():
    low, first, second = entry(urgency=5), entry(urgency=1), entry(urgency=1)
    waiting = queue(low, first, second, max_batch_items=1)
    assert [waiting.next_batch(0.0) for _ in range(3)] == [[first], [second], [low]]


def test_the_most_urgent_join_first_whatever_their_length():
    urgent, low, other = entry(5, urgency=0), entry(5, urgency=7), entry(9, urgency=0)
    assert queue(low, urgent, other, max_batch_items=2).next_batch(0.0) == [urgent, other]
    assert queue(low, urgent, other, max_batch_items=2).next_joining(0.0, 4) == [urgent, other]


def test_less_urgent_ones_take_the_room_that_is_left():
    urgent, low, wide = entry(5, urgency=0), entry(4, urgency=7), entry(9, urgency=7)
    assert queue(low, urgent, wide, batch_cost=3).next_batch(0.0) == [urgent, low]


# ---- joining a batch that runs ----


def test_entries_join_where_there_is_room_and_they_fit():
    waiting = queue(entry(2), entry(9), entry(1), entry(2), batch_cost=0)
    assert waiting.next_joining(0.0, 0) == []
    assert lengths(waiting.next_joining(0.0, 2)) == [2, 2]
    assert lengths(waiting.next_joining(0.0, 9)) == [9, 1]
    assert waiting.next_joining(0.0, 9) == []


def test_the_most_urgent_entries_that_fit_are_the_first_to_overtake_a_head_that_does_not_fit():
    head, low, high = entry(urgency=0), entry(urgency=5), entry(urgency=1)
    waiting = queue(head, low, high)
    assert waiting.next_joining(0.0, 1, lambda some: head not in some) == [high]
    assert waiting.next_joining(0.0, 1, lambda some: head not in some) == [low]
    assert waiting.next_joining(0.0, 1, lambda some: head not in some) == []


def test_who_has_waited_too_long_goes_first_whatever_its_urgency():
    low = entry(arrived=1.0, urgency=7)
    waiting = queue(low, *[entry(arrived=2.0, urgency=0) for _ in range(3)], max_batch_items=1, starvation_limit=5.0)
    assert waiting.next_batch(5.9)[0].urgency == 0
    assert waiting.next_batch(6.0) == [low]


# ---- properties ----

LIMITS = st.builds(
    Limits,
    max_batch_items=st.integers(1, 5),
    max_batch_tokens=st.integers(1, 30),
    batch_cost=st.integers(0, 20),
    max_delay=st.floats(0, 2),
    starvation_limit=st.integers(0, 12).map(float),
    max_wait=st.just(math.inf),
    max_queue_items=st.integers(1, 12),
    max_queue_tokens=st.integers(1, 60),
    batch_seconds=st.sampled_from([0.0, 1.0, 4.0]),
)
ENTRIES = st.builds(
    entry,
    length=st.integers(1, 20),
    batch_key=st.sampled_from("ab"),
    deadline=st.integers(0, 10).map(float),
    urgency=st.integers(0, 7),
)


def assert_fits(batch, bounds):
    assert 1 <= len(batch) <= bounds.max_batch_items
    assert len({waiting.batch_key for waiting in batch}) == 1
    assert len(batch) == 1 or len(batch) * max(lengths(batch)) <= bounds.max_batch_tokens
    padding = len(batch) * max(lengths(batch)) - sum(lengths(batch))
    assert padding <= bounds.batch_cost * (len(batch) - 1)


def leader(waiting, bounds, now):
    """Return the entry that must be computed first; entries are in order of arrival."""
    if now - waiting[0].arrived >= bounds.starvation_limit:
        return waiting[0]
    return next(item for item in waiting if item.urgency == min(each.urgency for each in waiting))


def cost(batches, bounds):
    return sum(bounds.batch_cost + len(batch) * max(batch) for batch in batches)


def splits(items):
    """All ways to split a list into neighbours."""
    if not items:
        yield []
    for count in range(1, len(items) + 1):
        for rest in splits(items[count:]):
            yield [items[:count], *rest]


@given(bounds=LIMITS, chosen=st.lists(st.integers(1, 20), min_size=1, max_size=7), oldest=st.integers(0, 6))
def test_the_first_batch_is_one_of_the_cheapest_split(bounds, chosen, oldest):
    """Against trying every split of the lengths in order."""
    bounds = replace(bounds, max_queue_items=10, max_queue_tokens=1000)
    lead = chosen[oldest % len(chosen)]
    waiting = BatchQueue(bounds)
    waiting.push([entry(lead)])
    waiting.push([entry(length) for place, length in enumerate(chosen) if place != oldest % len(chosen)])
    possible = [
        split
        for split in splits(sorted(chosen))
        if all(len(batch) <= bounds.max_batch_items for batch in split)
        and all(len(batch) == 1 or len(batch) * max(batch) <= bounds.max_batch_tokens for batch in split)
    ]
    least = min(cost(split, bounds) for split in possible)
    batch = sorted(lengths(waiting.next_batch(0.0)))
    assert any(cost(split, bounds) == least and batch in split and lead in batch for split in possible)


@given(bounds=LIMITS, entries=st.lists(ENTRIES, max_size=20))
def test_draining_takes_everything_once_and_leaders_first(bounds, entries):
    waiting = BatchQueue(bounds)
    taken = []
    try:
        waiting.push(entries)
    except QueueFull:
        entries = []
    while len(waiting):
        first = leader([item for item in entries if item not in taken], bounds, 3.0)
        batch = waiting.next_batch(3.0)
        assert batch[0] is first
        assert_fits(batch, bounds)
        taken += batch
    assert len(taken) == len(set(taken)) == len(entries)
    assert set(taken) == set(entries)
