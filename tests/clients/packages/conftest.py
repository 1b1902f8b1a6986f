"""Servers for clients in an environment of their own; `SERVER_PYTHON` is the interpreter of the service's."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from tests.service.process import Process  # noqa: E402

TASKS = Path(__file__).parent / "tasks"
PYTHON = os.environ.get("SERVER_PYTHON", str(ROOT / ".venv/bin/python"))
PROTOCOLS = "native,oip,openai,deepl,libretranslate,tei,hf,mcp"
KEY = "key-of-the-tests-0123456789"


def _served(log, *arguments):
    process = Process(log, *arguments, python=PYTHON)
    try:
        while not process.ready():
            time.sleep(0.05)
        yield process
    finally:
        process.end()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server of all protocols that needs no key, whose language model is that of words."""
    models = ["--models", "next-word:4", "de-en", "intents"]
    yield from _served(tmp_path_factory.mktemp("open") / "log.txt", "--grpc-port", 0, "--protocols", PROTOCOLS, *models)


@pytest.fixture(scope="session")
def address(server):
    return server.address


@pytest.fixture(scope="session")
def grpc_address(server):
    return server.grpc_address


@pytest.fixture(scope="session")
def key():
    return KEY


@pytest.fixture(scope="session")
def closed(tmp_path_factory):
    """A server that needs `KEY`."""
    directory = tmp_path_factory.mktemp("closed")
    keys = directory / "keys.txt"
    keys.write_text(KEY)
    yield from _served(directory / "log.txt", "--grpc-port", 0, "--protocols", PROTOCOLS, "--api-keys", keys)


@pytest.fixture(scope="session")
def post(address):
    """Return the answer to a request with a body of JSON."""

    def answer(path, **body):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(address + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    return answer


@pytest.fixture(scope="session")
def run_python():
    """Return a function that runs code with the interpreter of the service, and returns its output."""

    def run(code, argument, content=""):
        command = [PYTHON, "-c", code, str(argument)]
        done = subprocess.run(command, cwd=ROOT, input=content, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.fixture(scope="session")
def serving():
    """Return a context manager of a server with other arguments."""
    return contextlib.contextmanager(_served)


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    """Return a function that returns what the command `lm_eval` logs of each task's samples, by the task's name."""

    def evaluate(address, name, tasks, max_length):
        output = tmp_path_factory.mktemp("lm_eval")
        model = f"model={name},base_url={address}/v1/completions,tokenizer_backend=remote,max_length={max_length}"
        command = [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", model]
        command += ["--batch_size", "2", "--tasks", ",".join(f"softserve_{task}" for task in tasks)]
        command += ["--include_path", TASKS, "--output_path", output, "--log_samples"]
        environment = {**os.environ, "OPENAI_API_KEY": "none is needed", "HF_HOME": str(output), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, cwd=TASKS, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return {task: _logged(next(output.rglob(f"samples_softserve_{task}_*.jsonl"))) for task in tasks}

    return evaluate


def _logged(path):
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [each["filtered_resps"] for each in sorted(found, key=lambda each: each["doc_id"])]
