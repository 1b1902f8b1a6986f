"""Tests of load tests of the service, from the command line to the report."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.fixtures.bundled import DE_EN_VERSION, NEXT_WORD_VERSION

ROOT = Path(__file__).parents[3]


def result_of(load, tmp_path, *arguments):
    """Return exit status, JSON, standard output and standard error."""
    path = tmp_path / "result.json"
    status, out, err = load(*arguments, "--json", path)
    return status, json.loads(path.read_text()), out, err


def test_a_closed_loop(load, address, tmp_path):
    status, result, out, err = result_of(
        load, tmp_path, address, "--model", "next-word", "--seconds", 1, "--warm-up", 0, "--connections", 4
    )
    assert status == 0
    assert err == f"testing next-word:{NEXT_WORD_VERSION} at {address}/v1/next-word\n"
    assert result["statuses"] == {"200": result["requests"]}
    assert result["connections"] == 4
    latency, server = result["latency_ms"], result["server"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    # The server has no other clients, so its counters are those of this load test.
    assert server["tokenize_ms"]["count"] == result["requests"]
    assert sum(server["prefix_cache"].values()) == result["requests"]
    items = server["batch_items"]
    assert items["count"] * items["mean"] == pytest.approx(server["queue_ms"]["count"])
    assert 1 <= items["mean"] <= 4
    assert server["queue_ms"]["mean"] < latency["max"]
    assert "closed loop, 4 connections" in out
    assert "queue time per text, ms" in out


def test_an_open_loop(load, address, tmp_path):
    status, result, out, _ = result_of(
        load, tmp_path, address, "--model", "intents:2", "--seconds", 2, "--warm-up", 0.2, "--rate", 15,
        "--texts-per-request", 2,
    )  # fmt: skip
    assert status == 0
    assert 10 <= result["requests"] <= 60
    assert result["texts_per_second"] == 2 * result["requests_per_second"]
    assert result["endpoint"] == "/v1/classify"
    assert result["server"]["queue_ms"]["count"] >= 2 * result["requests"]
    assert "open loop, 15 requests/s" in out


def test_the_first_model_is_asked_where_none_is_named(load, address, tmp_path):
    status, result, _, err = result_of(
        load, tmp_path, address + "/", "--seconds", 1, "--warm-up", 0, "--connections", 1, "--beam-size", 1
    )
    assert status == 0
    assert f"testing de-en:{DE_EN_VERSION} at " in err
    assert result["endpoint"] == "/v1/translate"
    assert result["server"]["generated_tokens_per_second"] > 0


def test_scores(load, address, tmp_path):
    status, result, _, _ = result_of(
        load, tmp_path, address, "--model", "next-word", "--endpoint", "score", "--seconds", 0.5, "--warm-up", 0
    )
    assert status == 0
    assert result["endpoint"] == "/v1/score"
    assert result["requests"] > 0


@pytest.mark.parametrize(
    ("export", "path", "inputs"),
    [("shapes_export", "/v1/classify", "2 images"), ("notes_export", "/v1/generate-text", "2 texts")],
)
def test_images_and_generators(load, serving, tmp_path, request, export, path, inputs):
    bundle = request.getfixturevalue(export).path
    with serving(model_dirs=(bundle.parents[1],), models=()) as address:
        status, result, out, _ = result_of(
            load, tmp_path, address, "--texts-per-request", 2, "--seconds", 0.5, "--warm-up", 0, "--connections", 2
        )
    assert status == 0
    assert (result["model"], result["endpoint"]) == (bundle.parent.name, path)
    assert result["answered"] == result["requests"] > 0
    assert f"{inputs} per request" in out


def test_refused_requests_are_no_errors(load, serving, tmp_path):
    with serving(max_wait_ms=1e-3, max_queue_items=4, parallel_batches=1) as address:
        status, result, out, _ = result_of(
            load, tmp_path, address, "--seconds", 1, "--warm-up", 0, "--connections", 16, "--endpoint", "score"
        )
    assert status == 0
    refused = result["statuses"]["429"]
    assert refused == result["refused"]["count"] == result["server"]["refused"]["overloaded"] > 0
    assert set(result["refused"]["retry_after"]) == {"1"}
    assert result["requests"] == sum(result["statuses"].values())
    assert "refused (429)" in out


def test_a_refused_text_is_an_error_that_says_why(load, address, tmp_path):
    texts = tmp_path / "texts"
    texts.write_text("word " * 5000)
    status, result, out, _ = result_of(
        load, tmp_path, address, "--model", "next-word", "--file", texts, "--seconds", 0.3, "--warm-up", 0
    )
    assert status == 1
    assert result["statuses"] == {"422": result["requests"]}
    assert "status 422: " in out
    assert "tokens" in result["details"]["422"]
    assert result["server"]["refused"] == {"invalid": result["requests"]}


def test_a_key(load, serving, tmp_path, monkeypatch):
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-many-characters\n")
    arguments = ("--seconds", 0.2, "--warm-up", 0)
    with serving(api_keys=keys) as address:
        status, _, err = load(address, *arguments)
        assert status == 2
        assert "requires an API key" in err
        assert load(address, *arguments, "--api-key-file", keys)[0] == 0
        monkeypatch.setenv("SOFTSERVE_BENCH_API_KEY", "a-key-of-many-characters")
        status, out, err = load(address, *arguments)
        assert status == 0
        assert "a-key-of-many-characters" not in out + err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--model", "nope"],
            f"unknown model 'nope'; the server has de-en:{DE_EN_VERSION}, intents:2, next-word:{NEXT_WORD_VERSION}",
        ),
        (["--endpoint", "score"], "--endpoint score: de-en offers translate"),
        (["--file", "/nowhere/texts"], "/nowhere/texts cannot be read: No such file or directory"),
        (["--json", "/nowhere/result.json"], "--json: there is no directory /nowhere"),
        (["--api-key-file", "/nowhere/keys"], "key file /nowhere/keys does not exist"),
    ],
)
def test_bad_usage_is_one_line(load, address, arguments, text):
    assert load(address, *arguments) == (2, "", f"benchmarks.load: {text}\n")


def test_an_address_that_does_not_answer(load):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert load(url) == (2, "", f"benchmarks.load: {url} does not answer: connection refused\n")


def right(texts):
    return 200, json.dumps({"results": [0] * texts}).encode(), {}


async def slowly(texts):
    await asyncio.sleep(0.05)
    return right(texts)


def test_without_metrics_the_clients_part_stands(load, listening, stub, tmp_path):
    with listening(stub(slowly, metrics=lambda: b"<html>Not here</html>")) as address:
        status, result, out, _ = result_of(load, tmp_path, address, "--seconds", 0.3, "--warm-up", 0)
    assert status == 0
    assert result["requests"] > 0
    assert result["server"] == {"missing": "/metrics is not in the text format of Prometheus"}
    assert "no metrics of the server: /metrics is not" in out


def test_counters_that_go_back_are_said_and_not_counted(load, listening, stub, tmp_path):
    values = iter([b"7", b"3"])
    app = stub(slowly, metrics=lambda: b'softserve_requests_total{model="stub"} ' + next(values) + b"\n")
    with listening(app) as address:
        status, result, _, _ = result_of(load, tmp_path, address, "--seconds", 0.3, "--warm-up", 0)
    assert status == 0
    assert "the server restarted during the run" in result["server"]["missing"]


@pytest.fixture
def process(tmp_path, wait_until):
    """`softserve serve` as a process of its own, and its address."""
    log = tmp_path / "log"
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0", "--threads", "1", "--models", "next-word:4"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)

    def address():
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text())
        assert process.poll() is None, log.read_text()
        return found and found[1]

    def ready():
        try:
            with urllib.request.urlopen(f"{address()}/readyz", timeout=30) as response:
                return response.status == 200
        except OSError:
            return False

    try:
        wait_until(address)
        wait_until(ready)
        yield process, address()
    finally:
        process.kill()
        process.wait(30)


def test_a_server_that_dies_in_the_middle(load, process, tmp_path):
    server, address = process
    killer = threading.Timer(1.5, server.kill)
    killer.start()
    status, result, out, _ = result_of(load, tmp_path, address, "--seconds", 3, "--warm-up", 0, "--connections", 4)
    killer.join()
    assert status == 1
    assert result["statuses"]["200"] > 0
    broken = {"server disconnected", "incomplete response", "connection reset by peer"}
    assert set(result["failures"]) <= {"connection refused", *broken}
    assert 4 <= sum(result["failures"].values()) < 200  # connections rest after a failure
    assert result["server"] == {"missing": "/metrics: connection refused"}
    assert "connection refused" in out


def test_ctrl_c_reports_what_there_is(address):
    command = [sys.executable, "-m", "benchmarks.load", address, "--model", "next-word", "--seconds", "60"]
    command += ["--warm-up", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr.readline().startswith(f"testing next-word:{NEXT_WORD_VERSION}")
        time.sleep(1)
        os.kill(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert running.returncode == 0
    assert "ended early" in out
    assert "Metrics of the server" in out
    assert "Traceback" not in out + err
