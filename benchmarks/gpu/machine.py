"""The machine that is measured: card, driver and versions; memory and utilization of the device over a time."""

import contextlib
import importlib.metadata
import platform
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.backend.cpus import usable_cpus
from tests.support.memory_limit import MemoryWatch, resident

__all__ = ["Usage", "card", "commit", "usage", "versions"]

_ROOT = Path(__file__).parents[2]
_LIBRARIES = ("onnxruntime-gpu", "onnxruntime", "torch", "transformers", "ctranslate2")
_PERIOD = 0.2
"""Seconds between two samples of memory and utilization."""


def card(device: str) -> str:
    """Return the name of a GPU, or of the processor for `cpu`."""
    if device == "cpu":
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return f"{next(names, platform.machine())}, {usable_cpus()} processors"
    return _nvidia_smi("name", device) or f"unknown card of device {device}"


def commit() -> str:
    """Return the revision of the checkout, `-dirty` where files differ from it, in whatever way."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return "unknown"


def versions(device: str) -> Mapping[str, str]:
    """Return the versions of the driver, of Python and of the libraries that are measured, where installed."""
    found = {} if device == "cpu" else {"driver": _nvidia_smi("driver_version", device) or "unknown"}
    found["Python"] = platform.python_version()
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _nvidia_smi(field_name: str, device: str) -> str | None:
    """Return a field of `nvidia-smi --query-gpu`, None where there is none."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [*_query(field_name, device)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip() or None
    return None


def _query(fields: str, device: str) -> list[str]:
    number = device.partition(":")[2] or "0"
    return ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", f"--id={number}"]


@dataclass(slots=True)
class Usage:
    """Memory of a device in megabytes, of a CPU the resident memory of a process and its children."""

    before: float = 0.0
    most: float = 0.0
    after: float = 0.0
    busy: list[float] = field(default_factory=list)
    """Samples of the percentage of the time in which a kernel ran, of a GPU."""

    def values(self) -> Mapping[str, float]:
        """Return memory, and on a GPU the mean utilization."""
        found = {"memory_before_mb": self.before, "memory_most_mb": self.most, "memory_after_mb": self.after}
        return found | ({"device_busy_percent": sum(self.busy) / len(self.busy)} if self.busy else {})


@contextlib.contextmanager
def usage(device: str, pid: int) -> Iterator[Usage]:
    """Sample memory and utilization while the context is open; `pid` is the process whose memory counts on a CPU."""
    found = Usage()
    found.before = found.most = _memory(device, pid)
    try:
        with _watching_process(pid, found) if device == "cpu" else _watching_gpu(device, found):
            yield found
    finally:
        found.after = _memory(device, pid)
        found.most = max(found.most, found.after)


def _memory(device: str, pid: int) -> float:
    if device == "cpu":
        return resident(pid)
    return _number(_nvidia_smi("memory.used", device) or "")


def _number(text: str) -> float:
    """Return a number of nvidia-smi, 0 where it has none, such as `[N/A]`."""
    return float(text) if text.strip().isdecimal() else 0.0


@contextlib.contextmanager
def _watching_process(pid: int, found: Usage) -> Iterator[None]:
    watch = MemoryWatch(pid)
    try:
        yield
    finally:
        watch.close()
        found.most = max(found.most, watch.peak)


@contextlib.contextmanager
def _watching_gpu(device: str, found: Usage) -> Iterator[None]:
    """Read samples of all processes on a GPU, which one `nvidia-smi` prints."""
    command = [*_query("memory.used,utilization.gpu", device), f"--loop-ms={round(1000 * _PERIOD)}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        def read() -> None:
            for line in process.stdout or ():
                memory, _, busy = line.partition(",")
                found.most = max(found.most, _number(memory))
                found.busy.append(_number(busy))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            yield
        finally:
            process.terminate()
            thread.join()
