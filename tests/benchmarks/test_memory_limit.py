"""Tests of memory cgroups and of the memory that processes hold."""

import subprocess
import sys
import time

import pytest

from tests.support.memory_limit import MEGABYTE, MemoryGroup, MemoryWatch, reset_peak, resident, resident_peak

HOLDER = "import sys; held = bytearray({} << 20); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def group():
    group = MemoryGroup.create(64)
    if group is None:
        pytest.skip("no memory cgroup can be made here")
    yield group
    group.close()


@pytest.fixture
def hold():
    """Starts a process that holds so many megabytes until its input ends."""
    started = []

    def start(megabytes, join=list):
        command = join([sys.executable, "-c", HOLDER.format(megabytes)])
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        with process:  # closes its pipes
            pass


def test_a_process_in_a_group_is_charged_and_one_above_the_limit_is_killed(group, hold):
    small = hold(20, group.joining)
    assert small.stdout.readline() == "held\n"
    assert 20 * MEGABYTE < group.usage < 64 * MEGABYTE
    assert group.kills == 0
    large = hold(100, group.joining)
    assert large.stdout.readline() == ""
    assert large.wait(10) != 0
    assert group.kills > 0


def test_the_memory_of_a_process_and_its_peak(hold):
    process = hold(50)
    assert process.stdout.readline() == "held\n"
    assert 50 < resident(process.pid) <= resident_peak(process.pid) < 90
    reset_peak(process.pid)
    assert resident_peak(process.pid) == pytest.approx(resident(process.pid), abs=2)
    process.stdin.close()
    process.wait(10)
    assert resident(process.pid) == 0


def test_a_watch_keeps_the_most_of_a_process_that_ended(hold):
    process = hold(50)
    watch = MemoryWatch(process.pid)
    assert process.stdout.readline() == "held\n"
    time.sleep(0.1)
    process.kill()
    process.wait(10)
    watch.close()
    assert 50 < watch.peak < 90
