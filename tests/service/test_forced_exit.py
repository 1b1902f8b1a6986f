"""A process ends although its threads do not return."""

import subprocess
import sys
import time

import pytest

from service.server.forced_exit import EXIT_STUCK
from service.server.native_timer import EXIT_STATUS_AFTER

_PROCESS = """
import logging, time
from concurrent.futures import ThreadPoolExecutor
from service.server.forced_exit import ForcedExit

logging.basicConfig()
forced = ForcedExit()
pool = ThreadPoolExecutor(1, {name!r})
pool.submit(time.sleep, {seconds})
pool.shutdown(wait=False)
{end}
print("orderly", flush=True)
"""


def run(end, *, name="softserve-model", seconds=600):
    code = _PROCESS.format(name=name, seconds=seconds, end=end)
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert time.monotonic() - began < 50
    return ended


def test_at_the_end_of_its_time_the_process_ends():
    ended = run("forced.arm(0.5); time.sleep(600)")
    assert ended.returncode == EXIT_STUCK == 4
    assert "the process ends with status 4, without waiting for threads: softserve-model_0" in ended.stderr


def test_where_nothing_is_left_to_do_the_process_does_not_wait_for_threads():
    ended = run("import sys; sys.exit(forced.leave(0))")
    assert ended.returncode == EXIT_STUCK
    assert "softserve-model_0" in ended.stderr


@pytest.mark.parametrize("name", ["softserve-load", "ThreadPoolExecutor-0"])  # the latter is that of the warm-up
def test_a_load_is_not_waited_for_and_changes_no_status(name):
    assert run("import sys; sys.exit(forced.leave(1))", name=name).returncode == 1


@pytest.mark.parametrize("end", ["forced.leave(0)", "forced.arm(0); time.sleep(0.2); forced.leave(0)"])
def test_threads_that_return_change_nothing(end):
    ended = run(end, seconds=0.1)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "orderly\n", "")


_FULL = """
import os, threading
reader, writer = os.pipe()
os.dup2(writer, 2)
threading.Thread(target=lambda: os.write(2, bytes(1 << 20)), daemon=True).start()
threading.Thread(target=lambda: logging.error("x" * (1 << 20)), daemon=True).start()
"""
"""Standard error whose reader takes nothing; a thread waits for it with the lock of the log."""


def test_the_end_does_not_wait_for_the_reader_of_the_log():
    ended = run(f"{_FULL}forced.arm(0); time.sleep(600)")
    assert ended.returncode == EXIT_STUCK


@pytest.mark.skipif(sys.platform != "linux", reason="the timer of the operating system is that of Linux")
def test_native_code_that_keeps_the_lock_of_the_interpreter_does_not_keep_the_process():
    ended = run("import re; forced.arm(0); re.match('(a+)+$', 'a' * 60 + 'b')")
    assert ended.returncode == EXIT_STATUS_AFTER
