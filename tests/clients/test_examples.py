"""The examples of docs/clients.md, as they stand there."""

import json
import subprocess
import sys

import pytest

from tests.docs.blocks import blocks

EXAMPLES = [
    (block.language, block.code)
    for block in blocks("docs/clients.md")
    if not any(name in block.code for name in ("tritonclient.grpc", "lm_eval", "mcp"))
]
"""Those of the clients of this environment; `tests/clients/packages` has the others."""


@pytest.mark.parametrize(("kind", "code"), EXAMPLES, ids=[code.split()[1] for _, code in EXAMPLES])
def test_an_example_works(address, kind, code):
    command = [sys.executable, "-c"] if kind == "python" else ["bash", "-c"]
    code = code.replace("127.0.0.1:8000", address.removeprefix("http://"))
    found = subprocess.run([*command, code], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr
    if kind == "sh":
        assert [each[0]["label"] for each in json.loads(found.stdout)] == ["play_music", "greeting"]
    else:
        assert "error" not in found.stdout.lower()
        assert found.stdout.strip()
