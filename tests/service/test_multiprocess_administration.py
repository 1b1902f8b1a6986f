"""Calls of administrators to two real processes, one of which is killed and replaced."""

import json
import os
import signal
import urllib.request

from tests.service.process import workers

KEY = "admin-key-of-some-length"
SHOWN = "/v1/admin/experiments/try"


def request(process, method, path, body=None):
    headers = {"X-API-Key": KEY, "Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(process.address + path, content, headers, method=method)
    with urllib.request.urlopen(asked, timeout=180) as response:
        return json.load(response)


def answering(process, count=12):
    """Return the versions that answer requests, each on a connection of its own, which either process may accept."""
    body = {"context": "we had a very", "model": "next-word"}
    return {request(process, "POST", "/v1/next-word", body)["version"] for _ in range(count)}


def loaded(process):
    return process.text.count("loaded next-word:")


def test_an_experiment_runs_in_all_processes_and_in_those_that_start_later(start, two_versions, tmp_path, wait_until):
    (tmp_path / "admins").write_text(KEY)
    options = ("--workers", "2", "--model-dirs", two_versions, "--models", "next-word:9")
    process = start(*options, "--admin-keys", tmp_path / "admins", "--log-level", "info")
    wait_until(lambda: process.ready() and loaded(process) == 2, 120)
    plan = {"name": "try", "primary": "next-word", "candidate": "next-word:8"}
    started = request(process, "POST", "/v1/admin/experiments", plan)
    assert (started["primary"], started["candidate"]) == ("next-word:9", "next-word:8")
    assert loaded(process) == 4
    assert answering(process) == {9}
    wait_until(lambda: request(process, "GET", SHOWN)["compared"] == 12)
    assert request(process, "GET", SHOWN)["agreement"]["value"] == 1.0
    assert 'softserve_experiment_inputs_total{experiment="try",outcome="agree"} 12.0' in process.get("/metrics")

    os.kill(min(workers(process)), signal.SIGKILL)
    wait_until(lambda: loaded(process) == 6 and len(workers(process)) == 2, 120)
    wait_until(lambda: process.text.count("Application startup complete") == 3)
    assert answering(process) == {9}
    request(process, "POST", f"{SHOWN}/promote")
    assert answering(process) == {8}
    assert "softserve_experiment" not in "".join(
        line for line in process.get("/metrics").splitlines() if not line.startswith("#")
    )

    assert request(process, "POST", "/v1/admin/models/next-word:9/unload") == {"unloaded": ["next-word:9"]}
    assert {each["version"] for _ in range(6) for each in json.loads(process.get("/v1/models"))["models"]} == {8}
    assert process.end() == 0
