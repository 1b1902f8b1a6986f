"""A process whose event loop hangs ends."""

import signal
import subprocess
import sys
import time

import pytest

from service.server.native_timer import EXIT_STATUS
from service.server.watchdog import HangDetector

_HANG = """
import asyncio, ctypes, time
from service.server.watchdog import exit_on_hang

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


def test_a_hang_ends_the_process_with_the_stacks_of_its_threads():
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", _HANG.format(hang="time.sleep(60)")],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == "served\n"
    assert "Timeout (0:00:00.4" in ended.stderr
    assert " in hang\n" in ended.stderr
    assert time.monotonic() - began < 40


_FULL = """import os, sys
    os.dup2(os.pipe()[1], 2)
    print("x" * (1 << 20), file=sys.stderr)"""
"""The event loop waits for a reader of standard error that takes nothing."""


def test_a_log_that_is_not_read_does_not_keep_the_process():
    ended = subprocess.run(
        [sys.executable, "-c", _HANG.format(hang=_FULL)], capture_output=True, text=True, timeout=50, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "served\n")


_DEADLOCK = """libc = ctypes.PyDLL(None)  # whose functions keep the lock of the interpreter
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)"""


@pytest.mark.skipif(sys.platform != "linux", reason="the timer of the operating system is that of Linux")
def test_native_code_that_keeps_the_lock_of_the_interpreter_ends_the_process_too():
    ended = subprocess.run(
        [sys.executable, "-c", _HANG.format(hang=_DEADLOCK)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == EXIT_STATUS == 14
    assert ended.stdout == "served\n"
    assert " in hang\n" in ended.stderr


class Clock:
    now = 50.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def watched(detector, clock, seconds, *, beating=False):
    """Let time pass, in which the process runs; return whether a hang was found."""
    for _ in range(round(seconds / detector.period)):
        clock.now += detector.period
        if beating:
            detector.beat()
        if detector.hangs():
            return True
    return False


def test_a_hang_is_found_after_the_timeout(clock):
    detector = HangDetector(8.0, clock)
    assert not watched(detector, clock, 100, beating=True)
    assert not watched(detector, clock, 7)
    assert watched(detector, clock, 1)


def test_a_pause_is_no_hang(clock):
    detector = HangDetector(8.0, clock)
    assert not watched(detector, clock, 5, beating=True)
    for _ in range(3):
        clock.now += 24 * 3600
        assert not detector.hangs(), "the thread that watches was paused too"
        assert not watched(detector, clock, 2)
        detector.beat()
        assert not detector.hangs()


def test_a_hang_after_a_pause_is_found(clock):
    detector = HangDetector(8.0, clock)
    clock.now += 24 * 3600
    assert not detector.hangs()
    assert watched(detector, clock, 8)


@pytest.mark.parametrize("seconds", [10.0, 25.0])  # the timer of the operating system waits 16 s longer
def test_a_service_that_was_paused_for_longer_than_the_timeout_goes_on(start, wait_until, seconds):
    process = start("--models", "next-word:4", "--hang-timeout", "4")
    wait_until(process.ready)
    process.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.process.send_signal(signal.SIGCONT)
    wait_until(process.ready)
    time.sleep(2)
    assert process.ready()
    assert process.end() == 0


def test_a_service_whose_event_loop_does_not_run_ends(start, wait_until):
    process = start("--models", "next-word:4", "--hang-timeout", "5", before=_HANG_AT_SIGNAL)
    wait_until(process.ready)
    process.process.send_signal(signal.SIGUSR1)
    assert process.process.wait(30) == 1
    assert "Timeout (0:00:05" in process.text
    assert " in hang\n" in process.text


def test_a_service_that_runs_does_not_end_before_it_is_told(start, wait_until):
    process = start("--models", "next-word:4", "--hang-timeout", "4", "--drain-delay", "5")
    wait_until(process.ready)
    assert process.end() == 0, "draining takes longer than the timeout"
