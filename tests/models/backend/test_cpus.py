"""How many processors a process may use, on machines made of files."""

import os

import pytest

from models.backend import cpus
from models.backend.cpus import usable_cpus


@pytest.fixture(autouse=True)
def sixteen(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


@pytest.fixture
def machine(tmp_path):
    """Writes the files of a machine; returns its root."""

    def make(cgroup, **limits):
        (tmp_path / "proc" / "self").mkdir(parents=True)
        (tmp_path / "proc" / "self" / "cgroup").write_text(cgroup)
        for path, text in limits.items():
            file = tmp_path / "sys" / "fs" / "cgroup" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return make


def quota(folder, quota, period="100000\n"):
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}


@pytest.mark.parametrize(("limit", "found"), [("200000 100000\n", 2), ("150000 100000", 2), ("1000 100000", 1)])
def test_a_limit_of_version_2_counts_rounded_up(machine, limit, found):
    assert usable_cpus(machine("0::/\n", **{"cpu.max": limit})) == found


@pytest.mark.parametrize("limit", ["max 100000\n", "", "rubbish", "0 0", "-1 100000"])
def test_what_is_no_limit_does_not_count(machine, limit):
    assert usable_cpus(machine("0::/\n", **{"cpu.max": limit})) == 16


def test_the_tightest_group_counts(machine):
    limits = {"a/cpu.max": "400000 100000", "a/b/cpu.max": "max 100000", "cpu.max": "800000 100000"}
    assert usable_cpus(machine("0::/a/b\n", **limits)) == 4


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct", "cpu/docker/0f", "cpu,cpuacct/docker/0f"])
def test_a_limit_of_version_1_counts(machine, folder):
    root = machine("12:pids:/docker/0f\n4:cpu,cpuacct:/docker/0f\n0::/docker/0f\n", **quota(folder, "300000\n"))
    assert usable_cpus(root) == 3


def test_version_1_without_a_quota_has_no_limit(machine):
    assert usable_cpus(machine("4:cpu,cpuacct:/\n", **quota("cpu", "-1\n"))) == 16


def test_where_there_are_no_groups_affinity_counts(tmp_path):
    assert usable_cpus(tmp_path) == 16


def test_where_there_is_no_affinity_all_processors_count(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus(tmp_path) == 1


def test_this_machine_has_some():
    assert cpus.usable_cpus() >= 1
