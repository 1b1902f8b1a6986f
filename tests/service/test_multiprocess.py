"""Tests of `softserve serve --workers 2`: several processes that serve one port."""

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

import pytest

from service.server.multiprocess import STUCK, send_heartbeat
from tests.service.process import Process, workers


def count_of(process, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in process.get("/metrics").splitlines() if line.startswith(name))


def loaded(process):
    """How often a model was loaded, all processes together."""
    time.sleep(0.2)
    assert process.process.poll() is None, process.text
    with contextlib.suppress(OSError):
        return process.address and count_of(process, "softserve_model_load_duration_seconds_count")
    return 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory, wait_until):
    """A server of two processes that several tests use, each of which leaves it with two that serve."""
    process = Process(tmp_path_factory.mktemp("two") / "log", "--workers", "2", "--models", "next-word:4")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    yield process
    assert process.end() == 0


@pytest.fixture
def two(kept, wait_until):
    """Two processes that both serve, and `loads`, which counts the loads of a model since the test began."""
    assert len(workers(kept)) == 2
    before = loaded(kept)
    kept.loads = lambda: loaded(kept) - before
    return kept


class Load:
    """Clients that open a connection for each request until they are told to stop."""

    def __init__(self, process, clients=2):
        self.answers, self.errors, self.over = [], [], threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(process,), daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self, process):
        while not self.over.is_set() and process.process.poll() is None:
            try:
                self.answers.append(process.post("thank you very"))
            except (OSError, HTTPException) as error:  # the latter where an answer breaks off
                self.errors.append(error)
            time.sleep(0.01)  # so that processes that start have a processor

    def end(self):
        self.over.set()
        for thread in self._threads:
            thread.join(30)


def test_a_killed_process_is_replaced_while_the_other_serves(two, wait_until):
    before = workers(two)
    load = Load(two)
    wait_until(lambda: len(load.answers) > 20)
    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    answered = len(load.answers)
    wait_until(lambda: len(load.answers) > answered + 20)
    wait_until(lambda: two.loads() == 1, 120)
    assert len(workers(two)) == 2
    assert killed not in workers(two)
    load.end()
    assert set(load.answers) == {"much"}
    assert len(load.errors) <= 2, "only what the killed process had accepted is lost, one request a client"
    assert f"process {killed} ended with status -9" in two.text


def test_metrics_are_those_of_all_processes(two, wait_until):
    answered = 'softserve_requests_total{deadline="",endpoint="/v1/next-word",model="next-word",status="200"}'
    before, replaced = count_of(two, answered), count_of(two, "softserve_workers_replaced_total")
    for _ in range(30):
        two.post("thank you very")
    assert count_of(two, answered) == before + 30
    (killed, other) = workers(two)
    computed = count_of(two, "process_cpu_seconds_total")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: two.loads() == 1, 120)
    assert count_of(two, "process_cpu_seconds_total") > computed
    assert count_of(two, "softserve_workers_replaced_total") == replaced + 1
    assert count_of(two, answered) == before + 30, "the counts of a process stay when it ends"
    assert count_of(two, "softserve_queue_limit_items") == 2 * 1024
    assert count_of(two, "softserve_model_info") == 1
    one = int(Path(f"/proc/{other}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert count_of(two, "process_resident_memory_bytes") > 1.5 * one


def test_sighup_replaces_the_processes_one_after_the_other(two, wait_until):
    before, load = workers(two), Load(two)
    two.process.send_signal(signal.SIGHUP)
    wait_until(lambda: two.loads() == 2 and len(workers(two)) == 2 and not before & workers(two), 120)
    load.end()
    assert (set(load.answers), load.errors) == ({"much"}, [])
    wait_until(lambda: count_of(two, "softserve_queue_limit_items") == 2 * 1024)


def test_sigterm_while_processes_are_being_replaced(start, wait_until):
    process = start("--workers", "2", "--models", "next-word:4")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    process.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(workers(process)) == 3)
    assert process.end() == 0


def test_processes_end_with_their_supervisor(start, wait_until):
    process = start("--workers", "2", "--models", "next-word:4")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    left = workers(process)
    process.process.kill()
    process.process.wait(30)
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in left))


def test_a_broken_bundle_ends_all_processes_with_a_message(start, broken_models):
    process = start("--workers", "2", "--model-dirs", broken_models)
    assert process.process.wait(30) == 1
    assert "tokenizer.json does not match its checksum" in process.text
    assert "Traceback" not in process.text


def test_a_process_that_cannot_load_is_tried_again_while_the_others_serve(start, copied_models, wait_until):
    process = start("--workers", "2", "--model-dirs", copied_models)
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    (tokenizer,) = copied_models.glob("*/*/tokenizer.json")
    shutil.move(tokenizer, copied_models / "kept")
    os.kill(min(workers(process)), signal.SIGKILL)
    wait_until(lambda: "ended with status 3" in process.text)
    assert process.post("thank you very") == "much"
    shutil.move(copied_models / "kept", tokenizer)
    wait_until(lambda: loaded(process) == 3, 120)
    assert process.end() == 0


def test_a_taken_port_ends_several_processes_too(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--workers", "2", "--port", taken.getsockname()[1])
        assert process.process.wait(30) == 1
    assert "address already in use" in process.text.lower()
    assert "Traceback" not in process.text


def test_a_missing_model_directory_is_said_once(start):
    process = start("--workers", "2", "--model-dirs", "/nowhere")
    assert process.process.wait(30) == 1
    assert process.text.count("model directory /nowhere does not exist") == 1


def test_requests_in_flight_at_sigterm_are_answered_by_all_processes_and_no_more_are_taken(start, wait_until):
    process = start("--workers", "2", "--models", "next-word:4", "--max-delay-ms", "2000")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    host, port = process.address.removeprefix("http://").split(":")
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(process.post, "thank you very") for _ in range(8)]
        wait_until(lambda: count_of(process, "softserve_queue_items") == 8)
        process.process.terminate()
        time.sleep(0.7)
        assert not any(answer.done() for answer in answers)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=10)
        assert [answer.result() for answer in answers] == ["much"] * 8
    assert process.process.wait(30) == 0


def test_the_drain_delay_applies_to_sigterm_and_not_to_replaced_processes(start, wait_until):
    process = start("--workers", "2", "--models", "next-word:4", "--drain-delay", "2")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    before = workers(process)
    process.process.send_signal(signal.SIGHUP)
    while before & workers(process):
        assert process.ready(), "a process that another has replaced answers that it is not ready"
        time.sleep(0.01)
    process.process.terminate()
    began = time.monotonic()
    wait_until(lambda: not process.ready())
    assert process.post("thank you very") == "much"
    assert process.process.wait(30) == 0
    assert time.monotonic() - began > 2


def test_a_process_that_hangs_does_not_keep_the_others_from_ending(start, wait_until):
    process = start("--workers", "2", "--models", "next-word:4", "--shutdown-timeout", "1")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    os.kill(min(workers(process)), signal.SIGSTOP)
    assert process.end() == 0


def test_processes_that_are_paused_go_on_whether_the_supervisor_is_paused_too_or_not(start, wait_until):
    process = start("--workers", "2", "--models", "next-word:4", "--heartbeat-timeout", "5", "--hang-timeout", "5")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    before = workers(process)
    for paused in ([min(before)], [process.process.pid, *before], [*before]):
        for pid in paused:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(10)
        for pid in reversed(paused):
            os.kill(pid, signal.SIGCONT)
        time.sleep(2)
        assert process.post("thank you very") == "much"
    assert workers(process) == before
    assert f"process {min(before)} is stopped" in process.text
    assert process.end() == 0


def test_while_no_process_serves_requests_are_refused(start, copied_models, wait_until):
    process = start("--workers", "2", "--model-dirs", copied_models)
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    (tokenizer,) = copied_models.glob("*/*/tokenizer.json")
    shutil.move(tokenizer, copied_models / "kept")
    for pid in workers(process):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "no process serves" in process.text)
    wait_until(lambda: "ended with status 3" in process.text, 60)
    for path in ("/readyz", "/livez"):
        with pytest.raises(HTTPError, match="503") as refused:
            process.get(path)
        assert refused.value.headers["Retry-After"] == "1"
        assert "no process serves" in json.load(refused.value)["detail"]
    assert "the next one is started in" in process.text
    assert process.process.poll() is None
    shutil.move(copied_models / "kept", tokenizer)
    wait_until(lambda: loaded(process) == 4, 180)
    assert process.post("thank you very") == "much"
    assert process.end() == 0


FREEZE = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(600))
"""


def test_a_process_whose_event_loop_is_blocked_is_replaced(start, wait_until, tmp_path, monkeypatch):
    """Its other threads go on, for a signal's handler runs in the event loop's and sleeps there."""
    (tmp_path / "sitecustomize.py").write_text(FREEZE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = start("--workers", "2", "--models", "next-word:4", "--heartbeat-timeout", "2")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    frozen = min(workers(process))
    os.kill(frozen, signal.SIGUSR1)
    wait_until(
        lambda: f"process {frozen} ended with status -9" in process.text, 40
    )  # after 2 s on an idle machine, 60 s while it loads
    wait_until(lambda: loaded(process) == 3, 120)
    assert process.end() == 0


# ---- heartbeats ----


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    yield reading, writing
    for descriptor in (reading, writing):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def test_a_heartbeat_says_whether_the_process_serves(pipe):
    reading, writing = pipe
    assert send_heartbeat(writing, False)
    assert send_heartbeat(writing, True)
    assert os.read(reading, 10) == b"ls"


def test_a_heartbeat_says_that_a_computation_does_not_return(pipe):
    reading, writing = pipe
    assert send_heartbeat(writing, True, STUCK)
    assert send_heartbeat(writing, False, STUCK)
    assert os.read(reading, 10) == b"xl"


def test_a_heartbeat_does_not_wait_for_room_in_the_pipe(pipe):
    reading, writing = pipe
    began = time.monotonic()
    assert all(send_heartbeat(writing, True) for _ in range(100_000))
    assert time.monotonic() - began < 5
    assert 0 < len(os.read(reading, 1 << 20)) < 100_000


def test_a_heartbeat_finds_out_that_the_supervisor_is_gone(pipe):
    reading, writing = pipe
    os.close(reading)
    assert not send_heartbeat(writing, True)
