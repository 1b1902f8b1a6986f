"""How many processors a process may use: fewer than the machine has where a container limits them."""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["usable_cpus"]


def usable_cpus(root: Path = Path("/")) -> int:
    """Return the number of usable processors by affinity and control groups (versions 1 and 2), rounded up.

    A group's limit is a quota of time in each period (Linux: `cpu.max`, or `cpu.cfs_quota_us` and
    `cpu.cfs_period_us`). `root` is where `/proc` and `/sys` are.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [quota / period for quota, period in _quotas(root)]
    return max(1, math.ceil(min([affinity, *limits])))


def _quotas(root: Path) -> Iterator[tuple[float, float]]:
    """Yield quota and period of every control group of the process that limits its processor time."""
    for folder in _groups(root):
        try:
            if (folder / "cpu.max").is_file():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if float(quota) > 0 and float(period) > 0:
                yield float(quota), float(period)
        except (OSError, ValueError):  # no such group, or no limit: "max"
            continue


def _groups(root: Path) -> Iterator[Path]:
    """Yield the directories of the process's control groups and of their parents; a container may be at the root."""
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys" / "fs" / "cgroup"
        for name in [controllers, "cpu"] if controllers else [""]:
            own = PurePosixPath(path.lstrip("/"))
            for group in (own, *own.parents):
                yield mount / name / group
