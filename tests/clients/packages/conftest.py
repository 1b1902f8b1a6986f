"""Servers for clients in an environment of their own; `SERVER_PYTHON` is the interpreter of the service's."""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from tests.service.process import Process  # noqa: E402

PROTOCOLS = "native,oip,openai,deepl,libretranslate,tei,hf,mcp"
KEY = "key-of-the-tests-0123456789"


def _served(log, *arguments):
    process = Process(log, *arguments, python=os.environ.get("SERVER_PYTHON", str(ROOT / ".venv/bin/python")))
    try:
        while not process.ready():
            time.sleep(0.05)
        yield process
    finally:
        process.end()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server of all protocols that needs no key."""
    yield from _served(tmp_path_factory.mktemp("open") / "log.txt", "--grpc-port", 0, "--protocols", PROTOCOLS)


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
