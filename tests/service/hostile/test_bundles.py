"""Tests of bundles that load for ever or take any amount of memory, and of files that change while they serve."""

import json
import os
import re
import shutil
import signal
import time

import pytest

from service.settings import BUNDLED
from tests.fixtures.bundled import NEXT_WORD_VERSION
from tests.support.hostile.bundles import HOSTILE_BUNDLES, make_bundle
from tests.support.limited_server import LimitedServer

MEMORY_MB = 1024
TIMEOUT = 20


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A watched directory, with a model that serves meanwhile."""
    directory = tmp_path_factory.mktemp("watched")
    shutil.copytree(BUNDLED / "next-word" / "4", directory / "next-word" / "4")
    return directory


@pytest.fixture(scope="module")
def server(directory, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    flags = ["--model-dirs", directory, "--watch-seconds", 0.1, "--load-timeout", TIMEOUT, "--threads", 1]
    with LimitedServer(MEMORY_MB, *flags, log=log) as server:
        yield server
        assert server.alive
        started = time.monotonic()
        assert server.stop(signal.SIGTERM) == 0
        assert time.monotonic() - started < 10


def listed(server):
    return json.loads(server.request("GET", "/v1/models").body)


def until(condition, seconds=4 * TIMEOUT):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def classify(server):
    return server.post("/v1/classify", {"text": "is my flight to rome on time", "top_k": 1})


@pytest.mark.parametrize("name", HOSTILE_BUNDLES)
def test_a_hostile_bundle_is_refused_and_named_while_others_serve(server, directory, name):
    spoil, problem = HOSTILE_BUNDLES[name]
    resident = server.resident()
    make_bundle(directory, spoil)
    until(lambda: listed(server)["problems"])
    (found,) = listed(server)["problems"]
    assert found["bundle"] == "intents/1"
    assert re.search(problem, found["problem"])
    assert server.latency() < 5
    assert server.resident() - resident < 50
    shutil.rmtree(directory / "intents")
    until(lambda: not listed(server)["problems"])


def rewritten(path):
    content = path.read_bytes()
    path.write_bytes(content)


def written_over(path):
    with path.open("r+b") as file:
        file.write(b"\x11" * file.seek(0, os.SEEK_END))


@pytest.mark.parametrize(
    "change", [rewritten, written_over, lambda path: os.truncate(path, 1000), lambda path: path.unlink()]
)
def test_weights_that_change_in_place_change_no_answer(server, directory, change):
    bundle = make_bundle(directory, lambda bundle: None, version=2)
    until(lambda: len(listed(server)["models"]) == 2)
    expected = classify(server)
    assert expected.status == 200
    change(bundle / "weights.bin")
    answers = [classify(server) for _ in range(5)]
    assert {(answer.status, answer.body) for answer in answers} == {(200, expected.body)}
    assert server.alive
    shutil.rmtree(directory / "intents")
    until(lambda: len(listed(server)["models"]) == 1)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.touch(), "it is no directory"),
        (lambda path: path.symlink_to("nothing"), "it is a link to nothing"),
        (lambda path: path.symlink_to(path.name), "it cannot be read: "),
        (lambda path: path.mkdir(), "it has no manifest.json"),
    ],
)
def test_a_version_that_cannot_be_read_is_named_while_the_older_one_serves(server, directory, make, problem):
    newer = directory / "next-word" / "99"
    make(newer)
    until(lambda: listed(server)["problems"])
    (found,) = listed(server)["problems"]
    assert found["bundle"] == "next-word/99"
    assert found["problem"].startswith(problem)
    assert [each["version"] for each in listed(server)["models"]] == [int(NEXT_WORD_VERSION)]
    assert f"{newer} is skipped: {problem}" in server.output
    newer.rmdir() if newer.is_dir() else newer.unlink()
    until(lambda: not listed(server)["problems"])


def test_a_hostile_bundle_at_the_start_ends_the_service(tmp_path):
    make_bundle(tmp_path, HOSTILE_BUNDLES["a graph that loops"][0])
    server = LimitedServer(MEMORY_MB, "--model-dirs", tmp_path, "--load-timeout", 3, log=tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"ended with status 1(.|\n)*no answer within 3 s \(--load-timeout\)"):
        server.start()


def test_sigterm_ends_a_service_that_loads(tmp_path):
    make_bundle(tmp_path, HOSTILE_BUNDLES["a graph that loops"][0])
    server = LimitedServer(MEMORY_MB, "--model-dirs", tmp_path, log=tmp_path / "log")
    server._wait_until_ready = lambda: until(lambda: "running on" in server.output)
    server.start()
    until(lambda: cpu_seconds(server.pid) > 3)  # more than a start takes: it computes
    started = time.monotonic()
    assert server.stop(signal.SIGTERM) == 0
    assert time.monotonic() - started < 10


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
