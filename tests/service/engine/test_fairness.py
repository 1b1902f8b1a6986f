"""Weighted fair queuing between the flows of API keys."""

import asyncio
import math
import time
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tenants import DECODERS, DEVICES, simulate, simulate_decoding
from service.engine.drain import DrainRate
from service.engine.fairness import FairClock, Flow
from service.engine.queue import BatchQueue, Entry, QueueFull
from tests.service.engine.doubling import Query, limits, with_bench

A, B, C = Flow("a"), Flow("b"), Flow("c", weight=2.0)
_SINGLY = {"max_batch_items": 100, "max_batch_tokens": 1}
"""Limits by which texts are computed one by one, and no backlog is long."""


def entry(flow=A, length=1, arrived=0.0, urgency=3, cost=0.0):
    return Entry(
        batch_key="x",
        length=length,
        cost=cost,
        arrived=arrived,
        deadline=math.inf,
        urgency=urgency,
        flow=flow,
        payload=None,
    )


def queue(*entries, **changes):
    values = {"max_batch_items": 1, "max_queue_items": 1000, "max_queue_tokens": 10_000, "starvation_limit": math.inf}
    waiting = BatchQueue(limits(**values | changes))
    for each in entries:
        waiting.push([each])
    return waiting


def order(waiting, now=0.0):
    names = ""
    while batch := waiting.next_batch(now):
        names += "".join(each.flow.name for each in batch)
    return names


def order_of_one(waiting, now=0.0):
    """Return the flows of the next batch."""
    return "".join(sorted((each.flow.name for each in waiting.next_batch(now)), reverse=True))


# ---- hand-computed cases ----


def test_flows_of_equal_weights_take_turns():
    entries = [*(entry(A) for _ in range(4)), *(entry(B) for _ in range(3))]
    assert order(queue(*entries, **_SINGLY)) == "abababa"


def test_a_flow_of_twice_the_weight_is_served_twice_as_often():
    """Counters after each: a 1 | c .5 | c 1 | a 2 | c 1.5 | c 2 | ..."""
    assert order(queue(*(entry(A) for _ in range(3)), *(entry(C) for _ in range(6)))) == "accaccacc"


def test_the_work_counts_and_not_the_number_of_texts():
    """Texts of 4 tokens against texts of 2: one of the first for two of the others."""
    assert order(queue(*(entry(A, 4) for _ in range(2)), *(entry(B, 2) for _ in range(4)))) == "abbabb"


def test_the_estimated_cost_counts_where_there_is_one():
    entries = [*(entry(A, cost=2.0) for _ in range(2)), *(entry(B, cost=1.0) for _ in range(4))]
    assert order(queue(*entries)) == "abbabb"


def test_time_without_requests_earns_no_credit():
    waiting = queue(*(entry(A) for _ in range(6)), entry(B), **_SINGLY)
    assert [waiting.next_batch(0.0)[0].flow.name for _ in range(4)] == ["a", "b", "a", "a"]
    for _ in range(2):
        waiting.push([entry(B)])
    assert order(waiting) == "ababa"


def test_one_flow_is_served_in_order_of_arrival():
    entries = [entry(A, length) for length in (5, 1, 3)]
    waiting = queue(*entries)
    assert [waiting.next_batch(0.0) for _ in range(3)] == [[each] for each in entries]


def test_priorities_go_before_turns():
    waiting = queue(entry(A, urgency=1), entry(A, urgency=1), entry(B, urgency=2), entry(A, urgency=2))
    assert [(each.flow.name, each.urgency) for each in (waiting.next_batch(0.0)[0] for _ in range(4))] == [
        ("a", 1),
        ("a", 1),
        ("b", 2),
        ("a", 2),
    ]


def test_a_flow_that_waits_too_long_for_its_turn_gains_none():
    """The starvation limit holds between priorities: a backlog of one flow does not overtake the turn of another."""
    waiting = queue(*(entry(A) for _ in range(5)), entry(B, arrived=9.0), starvation_limit=2.0)
    assert waiting.next_batch(10.0)[0].flow == A
    assert waiting.next_batch(10.0)[0].flow == B


def test_the_first_of_a_lower_priority_goes_after_the_starvation_limit():
    urgent = [entry(A, urgency=0, arrived=9.0), entry(B, urgency=0, arrived=9.0)]
    low = [entry(A, urgency=7, arrived=0.0), entry(B, urgency=7, arrived=1.0)]
    waiting = queue(*low, *urgent, starvation_limit=2.0)
    assert [waiting.next_batch(10.0)[0] for _ in range(4)] == [low[0], low[1], *urgent]


def test_removed_entries_are_not_charged():
    gone = [entry(A, 50) for _ in range(3)]
    waiting = queue(*gone, entry(A), entry(B), entry(B))
    waiting.remove(gone)
    assert order(waiting) == "abb"


def test_a_batch_holds_entries_of_several_flows():
    waiting = queue(*(entry(A) for _ in range(9)), entry(B), entry(C), max_batch_items=4)
    assert Counter(each.flow.name for each in waiting.next_batch(0.0)) == {"a": 2, "b": 1, "c": 1}


def test_entries_join_a_decoding_in_turns():
    waiting = queue(*(entry(A, 5) for _ in range(20)), entry(B, 9), entry(C, 9))
    assert {each.flow.name for each in waiting.next_joining(0.0, 1)} == {"a"}
    assert {each.flow.name for each in waiting.next_joining(0.0, 1)} == {"b"}
    assert {each.flow.name for each in waiting.next_joining(0.0, 1)} == {"c"}


def test_a_backlog_that_has_had_its_share_goes_last_one_by_one():
    """Where a batch costs little, a short one is a single text; batches are full again without other flows."""
    waiting = queue(*(entry(A) for _ in range(9)), max_batch_items=2, batch_cost=0.1)
    names = [order_of_one(waiting) for _ in range(2)]
    waiting.push([entry(B), entry(B)])
    names += [order_of_one(waiting) for _ in range(2)]
    assert names == ["aa", "aa", "bb", "a"]
    assert [order_of_one(waiting, now=11.0), order_of_one(waiting, now=11.0)] == ["a", "a"]
    waiting.push([entry(A, arrived=11.0)])
    assert order(waiting, now=11.0) == "aaa"


def test_batches_are_filled_by_a_backlog_as_far_as_that_costs_little():
    """A fixed cost of 2 tokens: 6 tokens are short."""
    waiting = queue(*(entry(A) for _ in range(40)), max_batch_items=16, batch_cost=2)
    assert order_of_one(waiting) == 16 * "a"
    waiting.push([entry(B), entry(B)])
    assert order_of_one(waiting) == "bbaaaa"
    assert order_of_one(waiting) in ("aaaa", "aaaaa", "aaaaaa")  # 16 texts are considered, in batches of at most 6


def test_batches_are_full_where_all_flows_have_backlogs():
    waiting = queue(*(entry(flow) for flow in (A, B) for _ in range(20)), max_batch_items=4, batch_cost=0)
    assert {len(order_of_one(waiting)) for _ in range(6)} == {4}


def test_a_backlog_has_its_share_at_once_and_then_what_is_left():
    """The others send a text a batch, by turns: it is served in the next one, or in the one after that."""
    waiting = queue(*(entry(A) for _ in range(400)), max_batch_items=4, batch_cost=0.1)
    served = Counter()
    for step in range(100):
        waiting.push([entry((B, C)[step % 2], arrived=float(step))])
        served.update(order_of_one(waiting, now=float(step)))
        assert step + 1 - served["b"] - served["c"] <= 1
    assert served["a"] >= 0.7 * served.total() * A.weight / (A.weight + B.weight + C.weight)


def test_a_backlog_joins_a_decoding_after_the_others_whatever_the_lengths():
    waiting = queue(*(entry(A, 5) for _ in range(20)), max_batch_items=4)
    waiting.next_joining(0.0, 4)
    waiting.push([entry(B, 5), entry(B, 9)])
    assert Counter(each.flow.name for each in waiting.next_joining(0.0, 3)) == {"b": 2, "a": 1}


def test_a_full_queue_drops_the_newest_entries_of_the_longest_backlog():
    flooding = [entry(A) for _ in range(4)]
    waiting = queue(*flooding, max_queue_items=4)
    assert waiting.push([entry(B), entry(B)]) == [flooding[3], flooding[2]]
    assert order(waiting) == "abab"


def test_a_flow_that_fills_as_much_as_the_others_is_refused():
    waiting = queue(entry(A), entry(A), entry(B), max_queue_items=4)
    waiting.push([entry(B)])
    for flow in (A, B):
        assert not waiting.has_room(flow, 1)
        with pytest.raises(QueueFull):
            waiting.push([entry(flow)])
    assert len(waiting) == 4


def test_a_weight_is_a_share_of_the_queue_too():
    """Flow c may have 4 of 6 entries: twice as many as a."""
    waiting = queue(*(entry(A) for _ in range(6)), max_queue_items=6)
    for _ in range(4):
        assert waiting.has_room(C, 1)
        assert len(waiting.push([entry(C)])) == 1
    assert not waiting.has_room(C, 1)


def test_tokens_fill_the_queue_as_entries_do():
    large = [entry(A, 40), entry(A, 40)]
    waiting = queue(*large, max_queue_tokens=100)
    assert waiting.push([entry(B, 30)]) == [large[1]]
    assert waiting.tokens == 70


def test_what_waits_of_others_counts_as_far_as_it_is_served_before():
    """100 of a wait: of these 10 are served while 10 of b are, 5 while 10 of c are, whose weight is 2."""
    waiting = queue(*(entry(A, cost=1.0) for _ in range(100)))
    assert waiting.cost_before(A, 10.0) == 100.0
    assert waiting.cost_before(B, 10.0) == 10.0
    assert waiting.cost_before(C, 10.0) == 5.0
    waiting.push([entry(B, cost=4.0)])
    assert waiting.cost_before(B, 10.0) == 4.0 + 14.0


# ---- properties ----


@given(
    entries=st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 9)), min_size=1, max_size=60),
    items=st.integers(1, 4),
)
def test_no_flow_is_ahead_of_another_by_more_than_a_batch(entries, items):
    """While two flows wait, their service by weight differs by at most the largest batches (SFQ, theorem 1)."""
    waiting = queue(*(entry(*each) for each in entries), max_batch_items=items, batch_cost=0)
    total, left = Counter(), Counter(flow.name for flow, _ in entries)
    weights = {flow.name: flow.weight for flow in (A, B, C)}
    while batch := waiting.next_batch(0.0):
        backlogged = [name for name in left if left[name]]
        for each in batch:
            total[each.flow.name] += each.length / each.flow.weight
        left.subtract(each.flow.name for each in batch)
        most = 9 * items
        for one in backlogged:
            for other in (name for name in backlogged if left[one] and left[name]):
                assert abs(total[one] - total[other]) <= most / weights[one] + most / weights[other]
    assert not left.total()


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.lists(st.integers(1, 9), min_size=1, max_size=4)), max_size=40
    )
)
def test_the_limits_of_the_queue_hold_and_what_is_dropped_is_of_longer_backlogs(steps):
    waiting = queue(max_queue_items=8, max_queue_tokens=30)
    held = []
    for flow, lengths in steps:
        new = [entry(flow, length) for length in lengths]
        try:
            dropped = waiting.push(new)
        except QueueFull:
            continue
        assert all(each.flow != flow for each in dropped)
        held = [each for each in held if each not in dropped] + new
        assert (len(waiting), waiting.tokens) == (len(held), sum(each.length for each in held))
        assert len(waiting) <= 8
        assert waiting.tokens <= 30
    taken = []
    while batch := waiting.next_batch(0.0):
        taken += batch
    assert sorted(map(id, taken)) == sorted(map(id, held))


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.integers(1, 9), st.integers(2, 4), st.integers(0, 6)), max_size=40
    ),
    items=st.integers(1, 4),
    cost=st.integers(0, 3),
)
def test_each_entry_is_served_once_whichever_flows_have_backlogs(steps, items, cost):
    """Each step pushes entries of a flow and an urgency, removes some and takes a batch every other time."""
    waiting = queue(max_batch_items=items, batch_cost=cost, starvation_limit=5.0)
    held = []
    for step, (flow, count, urgency, removed) in enumerate(steps):
        now = float(step)
        new = [entry(flow, 1 + place, now, urgency) for place in range(count)]
        waiting.push(new)
        held += new
        waiting.remove(held[:removed])
        held = held[removed:]
        batch = waiting.next_joining(now, items) if step % 4 == 3 else waiting.next_batch(now) if step % 2 else []
        assert len({each for each in batch if each in held}) == len(batch) <= items
        held = [each for each in held if each not in batch]
        assert (len(waiting), waiting.tokens) == (len(held), sum(each.length for each in held))
    while batch := waiting.next_batch(99.0):
        held = [each for each in held if each not in batch]
    assert not held


def test_a_flood_hardly_delays_the_others_and_gets_its_share():
    """The simulated CPU of `benchmarks.tenants`: nine keys send 0.8 of their shares, the first ten times its share."""
    device = DEVICES[0]
    alone, flooded = (simulate(device, flood=flood, fair=True, seconds=10.0) for flood in (0.0, 10.0))
    assert flooded.quantile(0.99) < 1.3 * alone.quantile(0.99)
    assert flooded.refused == 0
    assert flooded.answered_of_flood > 0.1 * (flooded.answered_of_flood + flooded.answered)


@pytest.mark.parametrize(("decoder", "share"), [(DECODERS[0], 0.05), (DECODERS[1], 0.1)], ids=("CPU", "GPU"))
def test_a_flood_of_decodings_hardly_delays_the_others(decoder, share):
    """The simulated devices of `benchmarks.tenants`; `share` is of the answered texts, a tenth being the fair one."""
    alone, flooded = (simulate_decoding(decoder, flood=flood, fair=True, seconds=15.0) for flood in (0.0, 10.0))
    assert flooded.quantile(0.99) < 1.3 * alone.quantile(0.99)
    assert flooded.refused == 0
    assert flooded.answered_of_flood > share * (flooded.answered_of_flood + flooded.answered)


def test_a_flood_has_its_share_of_the_places_or_those_that_are_cheap():
    waiting = queue(max_batch_items=8)
    waiting.push([entry(A) for _ in range(40)])
    assert waiting.most_running(A, 0) == 8, "it is alone"
    waiting.push([entry(B)])
    assert (waiting.most_running(A, 0), waiting.most_running(A, 6)) == (4, 6)
    waiting.next_joining(0.0, 8)
    assert waiting.most_running(A, 0) == 4, "others are expected"
    assert (waiting.most_running(B, 0, alone=False), waiting.most_running(B, 6, alone=False)) == (4, 6)


def test_a_flow_whose_few_entries_wait_alone_has_all_places():
    waiting = queue(max_batch_items=8)
    waiting.push([entry(B)])
    waiting.next_joining(0.0, 8)
    waiting.push([entry(A) for _ in range(8)])
    assert waiting.most_running(A, 0) == 8
    assert waiting.most_running(A, 0, alone=False) == 4


# ---- the batcher ----


def submitted(bench, flow, *values):
    queries = [Query(value) for value in values]
    return asyncio.create_task(bench.batcher.submit("double", queries, time.monotonic() + 60, flow=flow))


async def outcome(task):
    """Return the outputs, or the type of the error."""
    try:
        return (await task)[0]
    except QueueFull:
        return QueueFull


def test_a_flood_gets_only_its_own_requests_refused():
    """The queue holds 16: three requests of the flood, and the newest is dropped for the others."""

    async def scenario(bench):
        blocking = await bench.block()
        flood = [submitted(bench, A, *range(4)) for _ in range(5)]
        assert await outcome(flood.pop()) is QueueFull
        others = [submitted(bench, B, 21), submitted(bench, C, 22, 23)]
        assert await outcome(flood.pop()) is QueueFull
        bench.double.gate.set()
        await blocking
        assert [await outcome(each) for each in others] == [[42], [44, 46]]
        assert [await outcome(each) for each in flood] == [[0, 2, 4, 6]] * 3
        assert sum(items for _, items in bench.recorder.rejections) >= 4 + 3

    with_bench(scenario)


def test_a_deadline_is_compared_with_the_wait_of_the_own_flow():
    """A unit of cost takes a second: 10 of the flood are before its next request, 1 before that of another key."""

    async def scenario(bench):
        blocking = await bench.block()
        bench.batcher._drain = DrainRate(1.0)
        flood = [submitted(bench, A, value) for value in range(10)]
        await asyncio.sleep(0)
        for flow, seconds, admitted in ((A, 20.0, False), (A, 25.0, True), (B, 7.0, True), (B, 3.0, False)):
            if admitted:
                bench.batcher.admit(1, time.monotonic() + seconds, 1.0, flow=flow)
            else:
                with pytest.raises(QueueFull):
                    bench.batcher.admit(1, time.monotonic() + seconds, 1.0, flow=flow)
        bench.double.gate.set()
        await asyncio.gather(blocking, *flood)

    with_bench(scenario)


# ---- the clock against a reference without a heap ----


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xy"), st.integers(0, 3), st.integers(0, 3))))
def test_a_clock_orders_as_a_search_of_all_entries_does(steps):
    """Each step adds an entry, then serves some, of which the first is the one that a search finds."""
    clock, waiting, served, floor = FairClock(), [], {}, 0.0
    for name, key, length, serve in steps:
        added = replace(entry(Flow(name), length=length), batch_key=key)
        served[name] = (
            served.get(name, 0.0)
            if any(each.flow.name == name for each in waiting)
            else max(served.get(name, 0.0), floor)
        )
        clock.add(added)
        waiting.append(added)
        for batch_key in "xy":
            assert clock.in_order(batch_key, 3) == searched(waiting, served, batch_key)[:3]
        for _ in range(min(serve, len(waiting))):
            first = min(waiting, key=lambda each: served[each.flow.name])
            assert clock.first() is first
            names = {each.flow.name for each in waiting}
            if len(names) > 1:
                floor = max(floor, min(served[each] for each in names))
            clock.charge([first])
            clock.remove(first)
            served[first.flow.name] += first.work
            waiting.remove(first)
            if not waiting:
                served.clear()
                floor = 0.0


def searched(waiting, served, batch_key):
    """Return the entries with a key, one after the other from the flow that would have been served least by then."""
    left, counters, found = [each for each in waiting if each.batch_key == batch_key], dict(served), []
    while left:
        found.append(min(left, key=lambda each: counters[each.flow.name]))
        counters[found[-1].flow.name] += found[-1].work
        left.remove(found[-1])
    return found
