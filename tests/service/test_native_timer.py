"""A timer of the operating system ends the process; nothing of Python has to run for that."""

import subprocess
import sys
import time

import pytest

from service.server.native_timer import EXIT_STATUS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it has no effect elsewhere")

_PROCESS = """
import time
from service.server.native_timer import NativeTimer

def hang(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:  # signals end a sleep
        time.sleep(0.1)

timer = NativeTimer(0.2)
timer.restart()
{code}
print("over", flush=True)
"""


def run(code):
    command = [sys.executable, "-c", _PROCESS.format(code=code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_process_ends_with_its_stacks_unless_the_timer_is_restarted():
    began = time.monotonic()
    ended = run("hang(100)")
    assert (ended.returncode, ended.stdout) == (EXIT_STATUS, "")
    assert " in hang\n" in ended.stderr
    assert 16 < time.monotonic() - began < 90


def test_a_restart_in_time_after_it_has_expired_is_in_time():
    """So that a process that was paused goes on: the second signal comes some seconds after the first."""
    ended = run("hang(5); timer.restart(); timer.stop(); hang(14)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "over\n", "")
