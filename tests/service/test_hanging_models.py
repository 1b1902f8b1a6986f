"""Models whose computations take for ever: the model, the others, the process and its end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.server.forced_exit import EXIT_STUCK
from tests.fixtures.looping import WORD, looping_models
from tests.service.process import workers

NEVER = f"buy a {WORD}"
STUCK = "a computation of the model does not return, so that the model answers nothing"

STICK = """
import os, time
from models.backend.memory import HostMemory

_run = HostMemory.run

def run(self, session, inputs, outputs):
    while "classes" in outputs and os.path.exists({flag!r}):  # which classifiers compute; no interruption ends it
        time.sleep(0.05)
    return _run(self, session, inputs, outputs)

HostMemory.run = run
"""


def post(process, path, body, timeout_ms=60_000):
    """Return status, problem or answer, and seconds of a request."""
    headers = {"Content-Type": "application/json", "X-Request-Timeout-Ms": str(timeout_ms)}
    request = urllib.request.Request(process.address + path, json.dumps(body).encode(), headers)
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=90) as response:
            status, text = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    parsed = json.loads(text) if text.startswith(b"{") else text  # uvicorn's answer to a request that it cancels
    return status, parsed, time.monotonic() - began


def classify(process, text="hello", **options):
    return post(process, "/v1/classify", {"text": text}, **options)


def metric(process, name, model="intents"):
    lines = process.get("/metrics").splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f'softserve_{name}{{model="{model}"'))


@pytest.fixture(scope="module")
def looping(tmp_path_factory):
    return looping_models(tmp_path_factory.mktemp("looping"))


@pytest.fixture
def flag(tmp_path):
    """A file while which exists no classification returns."""
    return tmp_path / "never"


@pytest.fixture
def sticking(start, wait_until, flag):
    """Starts a server with a classifier that computes for ever while the flag exists, and another model."""

    def call(*arguments):
        process = start(
            *(
                "--models",
                "intents",
                "next-word:4",
                "--computation-timeout",
                "1",
                "--shutdown-timeout",
                "3",
                *arguments,
            ),
            before=STICK.format(flag=str(flag)),
        )
        wait_until(process.ready, 120)
        return process

    return call


def stick(process, flag, wait_until):
    """Let a classification never return, and wait until its model is given up."""
    flag.touch()
    with ThreadPoolExecutor(1) as pool:
        never = pool.submit(classify, process)
        wait_until(lambda: not process.ready(), 60)
        status, problem, _ = never.result(60)
    assert (status, problem["detail"]) == (503, STUCK)


def test_a_graph_that_loops_for_ever_ends_with_its_requests_and_the_model_goes_on(start, looping, wait_until):
    process = start("--model-dirs", looping)
    wait_until(process.ready, 120)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: classify(process, NEVER, timeout_ms=1000), range(6)))
    assert {status for status, *_ in answers} == {504}
    status, answer, _ = classify(process)
    assert (status, answer["results"][0]["labels"][0]["label"]) == (200, "greeting")
    assert process.ready()
    assert metric(process, "stuck_computations") == metric(process, "computation_timeouts_total") == 0
    assert process.end() == 0


def test_a_graph_that_loops_for_ever_ends_at_the_computation_timeout(start, looping, wait_until):
    process = start("--model-dirs", looping, "--computation-timeout", "1")
    wait_until(process.ready, 120)
    status, problem, _ = classify(process, NEVER)
    assert status == 503
    assert "more than 1 seconds (--computation-timeout)" in problem["detail"]
    assert metric(process, "computation_timeouts_total") == 1
    assert "a computation of intents:1 has taken 1 seconds" in process.text
    assert classify(process)[0] == 200


def test_a_graph_that_loops_for_ever_does_not_keep_the_process_from_ending(start, looping, wait_until):
    process = start("--model-dirs", looping, "--shutdown-timeout", "2")
    wait_until(process.ready, 120)
    with ThreadPoolExecutor(1) as pool:
        never = pool.submit(classify, process, NEVER)
        before = busy_seconds(process.process.pid)
        wait_until(lambda: busy_seconds(process.process.pid) > before + 1)
        began = time.monotonic()
        assert process.end() == 0
        assert time.monotonic() - began < 20
        with contextlib.suppress(OSError):  # its connection is closed where it was not answered
            assert never.result(60)[0] in (500, 503)


def busy_seconds(pid):
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_model_that_is_stuck_is_not_ready_and_others_go_on_until_it_returns(sticking, flag, wait_until):
    process = sticking()
    stick(process, flag, wait_until)
    with pytest.raises(urllib.error.HTTPError) as refused:
        process.get("/readyz")
    assert refused.value.code == 503
    assert "a computation does not return of intents:" in json.load(refused.value)["detail"]
    for path in ("/v1/classify", "/v2/models/intents/infer"):
        body = {"text": "hello"} if "v1" in path else {"inputs": [text_tensor("hello")]}
        status, problem, seconds = post(process, path, body)
        assert (status, STUCK in json.dumps(problem)) == (503, True)
        assert seconds < 30, "it does not wait for its deadline"
    with pytest.raises(urllib.error.HTTPError):
        process.get("/v2/models/intents/ready")
    assert process.post("thank you very") == "much"
    assert "softserve_models_ready 1.0" in process.get("/metrics")
    assert metric(process, "stuck_computations") == 1
    flag.unlink()
    wait_until(process.ready, 60)
    assert classify(process)[0] == 200
    assert metric(process, "stuck_computations") == 0
    assert process.end() == 0


def text_tensor(text):
    return {"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}


def test_grpc_clients_are_refused_too(sticking, flag, wait_until):
    grpc = pytest.importorskip("grpc")
    from service.protocols.open_inference.grpc import open_inference_pb2 as messages

    process = sticking("--grpc-port", "0")
    stick(process, flag, wait_until)
    with grpc.insecure_channel(process.grpc_address) as channel:

        def call(name, response, message):
            method = channel.stream_unary(
                f"/inference.GRPCInferenceService/{name}",
                request_serializer=lambda each: each.SerializeToString(),
                response_deserializer=response.FromString,
            )
            return method(iter([message]), timeout=60)

        assert not call("ServerReady", messages.ServerReadyResponse, messages.ServerReadyRequest()).ready
        named = messages.ModelReadyRequest(name="intents")
        assert not call("ModelReady", messages.ModelReadyResponse, named).ready
        named = messages.ModelReadyRequest(name="next-word")
        assert call("ModelReady", messages.ModelReadyResponse, named).ready
        infer = messages.ModelInferRequest(model_name="intents")
        tensor = infer.inputs.add(name="text", datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(b"hello")
        with pytest.raises(grpc.RpcError) as refused:
            call("ModelInfer", messages.ModelInferResponse, infer)
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNAVAILABLE, STUCK)


def test_a_process_ends_without_a_computation_that_does_not_return(sticking, flag, wait_until):
    process = sticking()
    stick(process, flag, wait_until)
    began = time.monotonic()
    assert process.end() == EXIT_STUCK
    assert time.monotonic() - began < 20
    assert "without waiting for threads: softserve-model_" in process.text


def test_a_process_ends_while_a_computation_is_not_given_up_yet(sticking, flag, wait_until):
    process = sticking("--computation-timeout", "600")
    flag.touch()
    with ThreadPoolExecutor(1) as pool:
        never = pool.submit(classify, process)
        wait_until(lambda: metric(process, "queue_items") == 0)
        time.sleep(0.5)
        began = time.monotonic()
        assert process.end() == EXIT_STUCK
        assert time.monotonic() - began < 25
        with contextlib.suppress(OSError):
            never.result(60)


def test_a_single_process_ends_itself_where_a_model_stays_stuck(sticking, flag, wait_until):
    process = sticking("--hang-timeout", "2")
    flag.touch()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(classify, process)
        assert process.process.wait(120) == EXIT_STUCK
    assert "a computation of intents:" in process.text
    assert "does not return: the process stops" in process.text


def test_one_of_several_processes_is_replaced(start, flag, wait_until, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(LATE_STICK.format(stick=STICK.format(flag=str(flag))))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = start(
        *("--workers", "2", "--models", "intents", "next-word:4", "--computation-timeout", "1"),
        *("--shutdown-timeout", "3"),
    )
    wait_until(lambda: process.ready() and len(workers(process)) == 2, 180)
    before = workers(process)
    flag.touch()
    with ThreadPoolExecutor(1) as pool:
        never = pool.submit(classify, process)
        wait_until(lambda: "a computation does not return in process" in process.text, 60)
        assert never.result(60)[0] == 503
    flag_of_new_ones = flag.with_name("gone")
    flag.rename(flag_of_new_ones)  # so that its successor can warm up
    wait_until(lambda: len(workers(process) - before) >= 1 and len(workers(process)) == 2, 180)
    wait_until(lambda: classify(process)[0] == 200, 60)
    assert "softserve_workers_replaced_total 1.0" in process.get("/metrics")
    assert process.end() == 0


LATE_STICK = """
import sys
from importlib.abc import MetaPathFinder

class Late(MetaPathFinder):
    # Models are imported when a process needs them, and not by every Python that starts with this directory.
    def find_spec(self, name, path=None, target=None):
        if name == "service.engine.loading" and self in sys.meta_path:
            sys.meta_path.remove(self)
            exec({stick!r}, {{}})
        return None

sys.meta_path.insert(0, Late())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_commands_without_a_server_end_when_they_are_told(looping, tmp_path, number, wait_until):
    lines = tmp_path / "texts"
    lines.write_text(f"hello\n{NEVER}\n")
    command = [sys.executable, "-m", "service.cli", "classify", str(lines), "--model-dirs", str(looping)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SOFTSERVE_")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            wait_until(lambda: busy_seconds(running.pid) > 5, 60)  # more than loading takes
            running.send_signal(number)
            assert running.wait(30) == (130 if number == signal.SIGINT else -number)
        finally:
            running.kill()
