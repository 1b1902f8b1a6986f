"""Tests of the `softserve` command: `inspect` and refusals in this process, `serve` as a process of its own."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.cli import main
from service.settings import BUNDLED, Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs `softserve` with arguments: exit status, and what it printed on both streams."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["softserve", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        code = caught.value.code
        # The interpreter prints a message that it is left with, and exits with 1.
        return (1, code + printed.err) if isinstance(code, str) else (code or 0, printed.out + printed.err)

    return call


@pytest.fixture
def bundle(copied_models):
    (manifest,) = copied_models.glob("*/*/manifest.json")
    return manifest.parent


# ---- inspect ----


def test_inspect_shows_what_a_bundle_holds(run, library):
    manifest = library.manifest
    status, text = run("inspect", BUNDLED / manifest.name / str(manifest.version))
    assert status == 0
    for part in (
        f"{manifest.name}:{manifest.version}",
        ", ".join(kernel.name for kernel in manifest.softmax.kernels),
        f"{manifest.vocab_size} words",
        manifest.licence,
        "all checksums match",
        manifest.quality[0].metric,
    ):
        assert part in text


def test_inspect_takes_a_relative_path(run, bundle, monkeypatch):
    monkeypatch.chdir(bundle)
    assert run("inspect", ".")[0] == 0


def test_inspect_names_everything_that_is_wrong(run, bundle):
    (bundle / "weights.bin").unlink()
    (bundle / "score.onnx").write_bytes(b"")
    status, text = run("inspect", bundle)
    assert status == 1
    assert "weights.bin is missing" in text
    assert "score.onnx does not match its checksum" in text


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff", b'{"format_version": 2}'])
def test_inspect_of_what_is_no_bundle(run, tmp_path, content):
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    status, text = run("inspect", tmp_path)
    assert status == 1
    assert text.startswith("wrong: ")


# ---- flags and variables ----


def test_help_shows_every_flag(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, text = run("serve", "--help")
    assert status == 0
    assert "SOFTSERVE_MAX_QUEUE_ITEMS" in text
    missing = [name for name in Settings.model_fields if f"--{name.replace('_', '-')}" not in text]
    assert missing == []


def test_help_names_the_commands(run):
    status, text = run("--help")
    assert status == 0
    assert all(command in text for command in ("serve", "inspect", "bench"))


@pytest.mark.parametrize("arguments", [[], ["explode"], ["serve", "--no-such-flag"], ["inspect"]])
def test_unknown_commands_and_flags_are_refused(run, arguments):
    status, text = run(*arguments)
    assert status == 2
    assert text


@pytest.mark.parametrize("port", ["99999", "-1", "abc"])
def test_a_rubbish_port_is_named(run, port):
    status, text = run("serve", "--port", port)
    assert status != 0
    assert "port" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "abc"),
        ("PORT", "70000"),
        ("BACKEND", "tensorflow"),
        ("LOG_LEVEL", "loud"),
        ("MODELS", "next-word"),
        ("MODEL_DIRS", "/models"),
        ("MODEL_DIRS", "[]"),
    ],
)
def test_a_rubbish_variable_is_named(run, monkeypatch, name, value):
    monkeypatch.setenv(f"SOFTSERVE_{name}", value)
    status, text = run("serve")
    assert status == 1
    assert text.startswith("softserve: ")
    assert name.lower() in text.lower()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model-dirs", "/nowhere"], "softserve: model directory /nowhere does not exist"),
        (["--models", "nope"], "softserve: unknown model 'nope'; known models: de-en:"),
    ],
)
def test_what_cannot_be_served_is_said(run, arguments, text):
    status, said = run("serve", *arguments)
    assert status == 1
    assert text in said


def test_bench_measures_translations(run):
    status, text = run("bench", "de-en", "--rounds", "1", "--threads", "1")
    assert status == 0
    assert len(re.findall(r"^(?:greedy|beam of 5) +batch +(?:1|8|32): +[\d.]+ ms", text, re.MULTILINE)) == 6


def test_bench_measures_both_tasks(run):
    status, text = run("bench", "--rounds", "1", "--threads", "1")
    assert status == 0
    assert len(re.findall(r"^(?:next_words|score) +batch +(?:1|8|32): +[\d.]+ ms", text, re.MULTILINE)) == 6


def test_bench_of_an_unknown_model(run):
    assert run("bench", "nope") == (1, f"softserve: unknown model 'nope'; known models: {known_models()}")


def known_models():
    paths = sorted(path.parent for path in BUNDLED.glob("*/*/manifest.json"))
    return ", ".join(f"{path.parent.name}:{path.name}" for path in paths)


# ---- serve, as a process ----


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
