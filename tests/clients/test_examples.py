"""The examples of docs/clients.md, as they stand there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
EXAMPLES = [
    found
    for found in re.findall(r"```(python|sh)\n(.*?)```", DOCUMENT, re.DOTALL)
    if not any(name in found[1] for name in ("tritonclient.grpc", "lm_eval", "mcp"))
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
