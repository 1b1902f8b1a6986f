"""The Python examples of docs/clients.md whose clients are here, as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = (Path(__file__).parents[3] / "docs/clients.md").read_text(encoding="utf-8")
EXAMPLES = [
    code
    for code in re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    if "tritonclient.grpc" in code or "mcp" in code
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_works(address, grpc_address, code):
    code = code.replace("127.0.0.1:8000", address.removeprefix("http://")).replace("127.0.0.1:8001", grpc_address)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip()
