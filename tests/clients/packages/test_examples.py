"""The Python examples of docs/clients.md whose clients are here, as they stand there."""

import subprocess
import sys

import pytest

from tests.docs.blocks import blocks

EXAMPLES = [
    block.code
    for block in blocks("docs/clients.md")
    if block.language == "python" and ("tritonclient.grpc" in block.code or "mcp" in block.code)
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_works(address, grpc_address, code):
    code = code.replace("127.0.0.1:8000", address.removeprefix("http://")).replace("127.0.0.1:8001", grpc_address)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip()
