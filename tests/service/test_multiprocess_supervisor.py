"""Tests of the supervisor of several processes by itself, with fake processes."""

import signal
from types import SimpleNamespace

import pytest

from service.server.multiprocess import Supervisor
from service.settings import Settings


class FakeWorker:
    """A process that does what the test says."""

    def __init__(self, supervisor, number):
        self.index, self.ready, self.draining, self.over, self.fault = number, False, False, False, None
        self.process = SimpleNamespace(pid=1000 + number, exitcode=-9)

    def read_heartbeats(self, now):
        pass

    def drain(self, number):
        self.draining = self.over = True

    def reap(self):
        pass


@pytest.fixture
def supervisor(monkeypatch, tmp_path):
    """With fake processes, and a clock that stands still; `full` is whether the system has no room for any."""
    made = Supervisor(Settings(workers=2), [], tmp_path)
    made.full, made.now = False, 100.0

    def worker(settings, sockets, number, now):
        if made.full:
            raise BlockingIOError("no more processes")
        return FakeWorker(made, number)

    monkeypatch.setattr("service.server.multiprocess._Worker", worker)
    monkeypatch.setattr("service.server.multiprocess.time", SimpleNamespace(monotonic=lambda: made.now))
    made._check()
    return made


def numbers(supervisor):
    return [worker.index for worker in supervisor._workers]


def serve_all(supervisor):
    for worker in supervisor._workers:
        worker.ready = True
    supervisor._check()


def test_a_number_is_used_again_once_its_process_is_gone(supervisor):
    assert numbers(supervisor) == [0, 1]
    serve_all(supervisor)
    supervisor._workers[0].over = True
    supervisor._check()
    assert numbers(supervisor) == [1, 0]
    assert not supervisor.failed


def test_a_process_that_ends_before_any_serves_ends_all(supervisor):
    supervisor._workers[0].over = True
    supervisor._check()
    assert supervisor.failed
    assert numbers(supervisor) == [1], "and none is started any more"


def test_where_there_is_no_room_for_processes_it_is_tried_again_less_and_less_often(supervisor):
    serve_all(supervisor)
    supervisor.full = True
    supervisor._workers[0].over = True
    supervisor._check()
    assert numbers(supervisor) == [1]
    supervisor.full = False
    supervisor._check()
    assert numbers(supervisor) == [1], "not at once"
    supervisor.now += 1.5
    supervisor._check()
    assert numbers(supervisor) == [1, 0]
    for _ in range(10):  # each ends before it serves
        supervisor._workers[-1].over = True
        supervisor._check()
        supervisor.now += 31
        supervisor._check()
        assert len(numbers(supervisor)) == 2
    assert supervisor._pause == 30.0


def test_processes_are_renewed_one_by_one(supervisor):
    serve_all(supervisor)
    before = list(supervisor._workers)
    supervisor._note_signal(signal.SIGHUP, None)
    supervisor._check()
    assert numbers(supervisor) == [0, 1, 2]
    supervisor._check()
    assert not any(worker.draining for worker in supervisor._workers), "the new one is not ready"
    for _ in range(6):
        serve_all(supervisor)
    assert len(numbers(supervisor)) == 2
    assert not set(before) & set(supervisor._workers)
    assert supervisor._outdated == []


def test_a_stuck_process_is_drained_once_another_is_ready(supervisor):
    serve_all(supervisor)
    stuck, other = supervisor._workers
    stuck.fault = "a computation does not return"
    supervisor._check()
    assert numbers(supervisor) == [0, 1, 2]
    assert not stuck.draining, "its other models are served until the new process is ready"
    for _ in range(4):
        serve_all(supervisor)
    assert stuck not in supervisor._workers
    assert other in supervisor._workers
    assert len(numbers(supervisor)) == 2
    assert supervisor._replaced == 1


def test_a_stuck_process_whose_successor_does_not_load_is_replaced_later(supervisor):
    serve_all(supervisor)
    stuck = supervisor._workers[0]
    stuck.fault = "a computation does not return"
    supervisor._check()
    supervisor._workers[-1].over = True
    for _ in range(5):
        supervisor._check()
    assert numbers(supervisor) == [0, 1], "not at once"
    supervisor.now += 1.5
    for _ in range(5):
        serve_all(supervisor)
    assert stuck not in supervisor._workers
    assert len(numbers(supervisor)) == 2


def test_without_room_for_a_successor_processes_that_ended_come_first(supervisor):
    serve_all(supervisor)
    stuck, other = supervisor._workers
    supervisor.full, stuck.fault, other.over = True, "a computation does not return", True
    for _ in range(10):
        supervisor._check()
    assert supervisor._pause == 2.0, "one attempt"
    supervisor.full = False
    supervisor.now += 1.5
    supervisor._check()
    assert [worker is stuck for worker in supervisor._workers] == [True, False, False]
    assert supervisor._fresh is supervisor._workers[-1], "the other has replaced the one that ended"


def test_a_process_that_is_no_longer_stuck_is_kept_where_its_successor_does_not_load(supervisor):
    serve_all(supervisor)
    before = list(supervisor._workers)
    before[0].fault = "a computation does not return"
    supervisor._check()
    supervisor._workers[-1].over = True
    supervisor._check()
    before[0].fault = None
    supervisor.now += 31
    for _ in range(3):
        supervisor._check()
    assert supervisor._workers == before


def test_where_a_renewal_does_not_serve_those_before_it_go_on(supervisor):
    serve_all(supervisor)
    before = list(supervisor._workers)
    supervisor._note_signal(signal.SIGHUP, None)
    supervisor._check()
    supervisor._workers[-1].over = True
    for _ in range(3):
        supervisor._check()
        supervisor.now += 31
    assert supervisor._workers == before


def test_nothing_is_started_once_it_is_to_stop(supervisor):
    serve_all(supervisor)
    supervisor._note_signal(signal.SIGTERM, None)
    supervisor._workers[0].over = True
    supervisor._check()
    assert numbers(supervisor) == [1]
    supervisor._stop()
    assert all(worker.draining for worker in supervisor._workers)
