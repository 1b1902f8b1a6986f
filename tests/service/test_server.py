"""Tests of `softserve serve` as processes of its own: one, and several beside each other."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Process:
    """`softserve serve` on a free port of this machine."""

    def __init__(self, log, *arguments):
        self.log = log
        command = [sys.executable, "-m", "service.cli", "serve", "--port", "0", "--threads", "1", *map(str, arguments)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SOFTSERVE_")}
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)

    @property
    def text(self):
        return self.log.read_text()

    @property
    def address(self):
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", self.text)
        return found and found[1]

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=30) as response:
            return response.read().decode()

    def ready(self):
        assert self.process.poll() is None, self.text
        with contextlib.suppress(OSError):
            return bool(self.address and self.get("/readyz"))
        return False

    def post(self, context):
        request = urllib.request.Request(
            self.address + "/v1/next-word",
            json.dumps({"context": context, "top_k": 1}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)["results"][0]["words"][0]["word"]

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def start(tmp_path):
    started = []

    def call(*arguments):
        started.append(Process(tmp_path / f"log-{len(started)}", *arguments))
        return started[-1]

    yield call
    for process in started:
        if process.process.poll() is None:
            process.process.kill()
        process.process.wait(30)


def test_serving_until_sigterm(start, wait_until):
    process = start()
    wait_until(process.ready)
    assert process.post("thank you very") == "much"
    assert process.end() == 0


def test_a_request_in_flight_at_sigterm_is_answered(start, wait_until):
    process = start("--max-delay-ms", "800")
    wait_until(process.ready)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(process.post, "thank you very")
        wait_until(lambda: 'softserve_queue_items{model="next-word"} 1.0' in process.get("/metrics"))
        status = process.end()
        assert answer.result() == "much"
    assert status == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_an_open_connection_is_told_to_close_before_it_is(start, wait_until, workers):
    """Nobody who asks again and again meets a connection that ends without an answer."""
    process = start("--models", "next-word", "--workers", workers)
    wait_until(process.ready, 120)
    connection = http.client.HTTPConnection(*process.address.removeprefix("http://").split(":"), timeout=30)
    told = None
    while told is None:
        connection.request("GET", "/livez")
        response = connection.getresponse()
        assert response.status == 200
        response.read()
        told = response.headers["connection"]
        process.process.terminate()
    assert told == "close"
    assert process.process.wait(30) == 0


def test_sigint_is_an_orderly_end_too(start, wait_until):
    process = start()
    wait_until(lambda: process.address)
    assert process.end(signal.SIGINT) == 0


def test_a_broken_bundle_ends_the_process_with_a_message(start, broken_models):
    process = start("--model-dirs", broken_models)
    assert process.process.wait(30) == 1
    assert "tokenizer.json does not match its checksum" in process.text
    assert "Traceback" not in process.text


def test_a_taken_port_ends_the_process_with_a_message(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--port", taken.getsockname()[1])
        assert process.process.wait(30) == 1
    assert "address already in use" in process.text


# ---- several processes ----


def workers(process):
    """Ids of the processes that serve."""
    children = Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return {pid for pid, command in commands.items() if b"resource_tracker" not in command}


def count_of(process, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in process.get("/metrics").splitlines() if line.startswith(name))


def loaded(process):
    """How often a model was loaded, all processes together."""
    time.sleep(0.2)
    assert process.process.poll() is None, process.text
    with contextlib.suppress(OSError):
        return process.address and count_of(process, "softserve_model_load_duration_seconds_count")
    return 0


@pytest.fixture
def two(start, wait_until):
    """Two processes that both serve."""
    process = start("--workers", "2", "--models", "next-word")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    return process


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
            except OSError as error:
                self.errors.append(error)

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
    wait_until(lambda: loaded(two) == 3, 120)
    assert len(workers(two)) == 2
    assert killed not in workers(two)
    load.end()
    assert set(load.answers) == {"much"}
    assert len(load.errors) <= 2, "only what the killed process had accepted is lost, one request a client"
    assert f"process {killed} ended with status -9" in two.text
    assert two.end() == 0


def test_metrics_are_those_of_all_processes(two, wait_until):
    for _ in range(30):
        two.post("thank you very")
    answered = 'softserve_requests_total{endpoint="/v1/next-word",model="next-word",status="200"}'
    assert count_of(two, answered) == 30
    (killed, kept) = workers(two)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: loaded(two) == 3, 120)
    assert count_of(two, answered) == 30, "what a process counted stays when it ends"
    assert count_of(two, "softserve_queue_limit_items") == 2 * 1024
    assert count_of(two, "softserve_model_info") == 1
    one = int(Path(f"/proc/{kept}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert count_of(two, "process_resident_memory_bytes") > 1.5 * one


def test_requests_in_flight_at_sigterm_are_answered_by_all_processes(start, wait_until):
    process = start("--workers", "2", "--models", "next-word", "--max-delay-ms", "800")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(process.post, "thank you very") for _ in range(8)]
        wait_until(lambda: count_of(process, "softserve_queue_items") > 0)
        status = process.end()
        assert [answer.result() for answer in answers] == ["much"] * 8
    assert status == 0


def test_sighup_replaces_the_processes_one_after_the_other(two, wait_until):
    before, load = workers(two), Load(two)
    two.process.send_signal(signal.SIGHUP)
    wait_until(lambda: loaded(two) == 4 and len(workers(two)) == 2 and not before & workers(two), 120)
    load.end()
    assert (set(load.answers), load.errors) == ({"much"}, [])
    wait_until(lambda: count_of(two, "softserve_queue_limit_items") == 2 * 1024)
    assert two.end() == 0


def test_sigterm_while_processes_are_being_replaced(two, wait_until):
    two.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(workers(two)) == 3)
    assert two.end() == 0


def test_processes_end_with_their_supervisor(two, wait_until):
    left = workers(two)
    two.process.kill()
    two.process.wait(30)
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
