"""How many processors a process may use: fewer than the machine has where a container limits them."""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["usable_cpus"]


def usable_cpus(root: Path = Path("/")) -> int:
    """Processors by affinity and by the limits of all control groups, versions 1 and 2, rounded up; at least 1.

    A group's limit is a quota of time in each period (Linux: `cpu.max`, or `cpu.cfs_quota_us` and
    `cpu.cfs_period_us`). `root` is where `/proc` and `/sys` are.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [quota / period for quota, period in _quotas(root)]
    return max(1, math.ceil(min([affinity, *limits])))


def _quotas(root: Path) -> Iterator[tuple[float, float]]:
    """Quota and period of every group that the process is in and that has one."""
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
    """Folders of the process's groups and of those they are in. A container may see its own group as the root."""
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
