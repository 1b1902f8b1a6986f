"""A process whose event loop hangs ends."""

import signal
import subprocess
import sys
import time

import pytest

_HANG = """
import asyncio, ctypes, time
from service.watchdog import exit_on_hang

def hang():
    {hang}

async def main():
    asyncio.create_task(exit_on_hang(0.4))
    await asyncio.sleep(1)  # longer than the timeout
    print("served", flush=True)
    hang()

asyncio.run(main())
"""

_HANG_AT_SIGNAL = """
import signal, time

def hang(*_):
    time.sleep(600)

signal.signal(signal.SIGUSR1, hang)
"""


@pytest.mark.parametrize(
    "hang",
    ["time.sleep(60)", "ctypes.PyDLL(None).sleep(60)"],
    ids=["python", "native code that keeps the lock of the interpreter"],
)
def test_a_hang_ends_the_process_with_the_stacks_of_its_threads(hang):
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", _HANG.format(hang=hang)], capture_output=True, text=True, timeout=50, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == "served\n"
    assert "Timeout (0:00:00.4" in ended.stderr
    assert " in hang\n" in ended.stderr
    assert time.monotonic() - began < 40


def test_a_service_whose_event_loop_does_not_run_ends(start, wait_until):
    process = start("--models", "next-word", "--hang-timeout", "5", before=_HANG_AT_SIGNAL)
    wait_until(process.ready)
    process.process.send_signal(signal.SIGUSR1)
    assert process.process.wait(30) == 1
    assert "Timeout (0:00:05" in process.text
    assert " in hang\n" in process.text


def test_a_service_that_runs_does_not_end_before_it_is_told(start, wait_until):
    process = start("--models", "next-word", "--hang-timeout", "4", "--drain-delay", "5")
    wait_until(process.ready)
    assert process.end() == 0, "draining takes longer than the timeout"
