"""A computation is interrupted from another thread: within a loop of a graph, and before the next graph."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from models import ModelStore
from models.backend.interruption import Interrupted, Interruption, interruptible
from tests.fixtures.looping import WORD, looping_models


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return ModelStore(looping_models(tmp_path_factory.mktemp("looping"))).load("intents", threads=1)


def interrupted_by(interruption, function, *arguments):
    with interruption:
        return function(*arguments)


def test_a_graph_that_loops_for_ever_ends_and_the_model_goes_on(classifier, wait_until_in_run):
    with ThreadPoolExecutor(1) as pool:
        interruption = Interruption()
        running = pool.submit(interrupted_by, interruption, classifier.classify, [f"buy a {WORD}"])
        wait_until_in_run(interruption)
        interruption.interrupt()
        with pytest.raises(Interrupted):
            running.result(30)
        (answer,) = pool.submit(classifier.classify, ["hello"]).result(30)
    assert answer.labels[0].label == "greeting"


@pytest.fixture
def wait_until_in_run():
    """Waits until a run has begun, so that it is interrupted while the graph computes."""

    def wait(interruption):
        begun = threading.Event()
        while interruption._stop is None:
            begun.wait(0.01)
        begun.wait(0.1)

    return wait


def test_no_run_begins_after_an_interruption(classifier):
    interruption = Interruption()
    interruption.interrupt()
    with pytest.raises(Interrupted):
        interrupted_by(interruption, classifier.classify, ["hello"])
    assert classifier.classify(["hello"]), "outside of the interrupted computation it computes"


def error_of_a_run_that_is_told_to_stop(interruption):
    interruption.interrupt()
    return ArithmeticError("bad luck")


def test_runs_in_sequence_have_each_their_own_means_to_stop():
    interruption, stopped = Interruption(), []
    with interruption:
        with interruptible(lambda: stopped.append("first")):
            pass
        second = interruptible(lambda: stopped.append("second"))
        with pytest.raises(Interrupted), second:
            raise error_of_a_run_that_is_told_to_stop(interruption)
    assert stopped == ["second"]


def test_a_run_that_ends_before_it_notices_has_its_result():
    interruption = Interruption()
    with interruption, interruptible():
        interruption.interrupt()
    assert interruption.requested


def test_other_errors_are_those_of_the_run():
    with Interruption(), pytest.raises(ArithmeticError), interruptible():
        raise ArithmeticError
    with pytest.raises(ArithmeticError), interruptible():
        raise ArithmeticError


def test_other_threads_are_not_interrupted():
    interruption = Interruption()
    interruption.interrupt()
    with interruption, ThreadPoolExecutor(1) as pool:

        def run():
            with interruptible():
                return "computed"

        assert pool.submit(run).result(30) == "computed"
