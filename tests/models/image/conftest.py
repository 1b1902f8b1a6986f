"""The memory and time that decoding a file takes."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

_CHILD = """
import json, os, sys, time
from models import QueryError
from models.image.decoding import decoded

def memory(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) / 1024

def measure(data):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forget the peak so far (proc(5))
    before, started = memory("VmRSS"), time.process_time()
    try:
        decoded(data, 224, 16_000_000)
        problem = ""
    except QueryError as error:
        problem = str(error)
    print(json.dumps([problem, memory("VmHWM") - before, time.process_time() - started]), flush=True)

for path in sys.stdin:
    if not os.fork():
        with open(path.rstrip("\\n"), "rb") as file:
            measure(file.read())
        os._exit(0)
    if os.wait()[1]:
        sys.exit("a file ended the process that decoded it")
"""


@pytest.fixture(scope="module")
def cost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bytes], tuple[str, float, float]]]:
    """Decode a file in its own process; return the error, and the MiB and seconds of processor time it took.

    The processes are forked from one that has imported the decoder, so that each starts with the same memory.
    """
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("peak memory can be read on Linux only")
    path = tmp_path_factory.mktemp("cost") / "file"
    command = [sys.executable, "-c", _CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def measure(file: bytes) -> tuple[str, float, float]:
            path.write_bytes(file)
            process.stdin.write(f"{path}\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            ready, _, _ = select.select([process.stdout], [], [], 120)
            assert ready, "a file was not decoded in two minutes"
            problem, memory, seconds = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            return problem, memory, seconds

        yield measure
        process.kill()
