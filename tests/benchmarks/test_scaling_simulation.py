"""The simulation of nodes behind a router: exact where the answer is known."""

import random
import statistics

import pytest

from benchmarks.scaling_simulation import NodeCost, Text, first_of_two, latencies, poisson_arrivals, random_node
from service.engine.cost_model import Terms

STEP = NodeCost(Terms(0.010, 0.0, 0.0), Terms(0.0, 0.0, 0.0))


def run(arrivals, costs=(STEP,), router=random_node, seed=0):
    return latencies(arrivals, costs, router, random.Random(seed))


def test_a_text_alone_takes_its_steps_its_encoding_and_its_request():
    cost = NodeCost(Terms(0.010, 0.002, 0.0), Terms(0.003, 0.0, 0.001), request=0.005)
    assert run([(1.0, Text(7, 4))], [cost]) == [pytest.approx(4 * 0.012 + 0.003 + 7 * 0.001 + 0.005)]


def test_texts_that_wait_together_share_the_steps():
    assert run([(0.0, Text(5, 3))] * 2) == pytest.approx([0.03, 0.04]), "the second joins after the first step"


def test_no_text_is_lost_and_the_run_is_reproducible():
    texts = [Text(random.Random(number).randrange(3, 40), 1 + number % 9) for number in range(500)]
    arrivals = poisson_arrivals(80, texts, random.Random(1))
    for router in (random_node, first_of_two):
        found = run(arrivals, [STEP] * 3, router)
        assert len(found) == len(texts)
        assert min(found) >= 0.01 - 1e-9
        assert found == run(arrivals, [STEP] * 3, router)


def test_the_less_loaded_of_two_nodes_answers_sooner():
    cost = NodeCost(Terms(0.0, 0.010, 0.0), Terms(0.0, 0.0, 0.0))
    arrivals = poisson_arrivals(8 * 8.0, [Text(5, 10)] * 4000, random.Random(2))
    chosen, shared = (statistics.fmean(run(arrivals, [cost] * 8, router)) for router in (first_of_two, random_node))
    assert chosen < 0.7 * shared
