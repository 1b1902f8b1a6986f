"""Documents of many megabytes: memory, time, and the work that is repeated after a process is killed.

    python -m benchmarks.document_jobs --megabytes 100

A text file is translated by a model that copies texts (`benchmarks.copying_model`). The process that computes it is
killed (SIGKILL) in the middle, and another one goes on. Counts are those of all texts that either of them computed.
"""

import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.copying_model import install

__all__ = ["Measured", "measure"]

_MEGABYTE = 10**6
_SENTENCE = "Der Hafen der Stadt wurde im Jahr nach dem Umbau von vielen Schiffen mit Waren aus dem Norden besucht"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The measurements of one run."""

    megabytes: float
    texts: int
    killed_at_percent: float
    stored: int
    """Texts whose results were stored when the process was killed."""
    repeated: int
    """Texts that were computed twice."""
    seconds: float
    """Time of both processes with the document, without their start."""
    peak_megabytes: tuple[float, float]
    """Largest resident memory of both processes."""
    same: bool
    """Whether the result is the document, byte for byte."""


def main(megabytes: float = 100.0, characters: int = 550, kill_at: float = 50.0) -> None:
    """Print a row of a table.

    Args:
        megabytes: Size of the document.
        characters: Characters of a line, which is a text.
        kill_at: Percentage of the document after which the first process is killed.
    """
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), round(megabytes * _MEGABYTE), characters, kill_at)
    share = 100 * found.repeated / found.texts
    print(
        "| megabytes | texts | killed at, % | computed twice | of all texts, % | seconds | peak memory, MB | result |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    peaks = " and ".join(f"{each:.0f}" for each in found.peak_megabytes)
    print(
        f"| {found.megabytes:.0f} | {found.texts} | {found.killed_at_percent:.1f} | {found.repeated} | {share:.3f} "
        f"| {found.seconds:.0f} | {peaks} | {'the same' if found.same else 'differs'} |"
    )


def measure(directory: Path, size: int, characters: int, kill_at: float) -> Measured:
    """Translate a document of that size, by two processes of which the first is killed."""
    environment = install(directory)
    content = _document(size, characters)
    with _serving(directory, environment) as first:
        began = time.monotonic()
        accepted = first.asked("/v1/documents?name=a.txt&model=copying", content)
        path = f"/v1/documents/{accepted['id']}"
        status = first.until(path, accepted["key"], lambda status: float(str(status["percent"])) >= kill_at)
        peak = first.peak
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        seconds = time.monotonic() - began
    before = (directory / "copied.txt").read_text().splitlines()
    with _serving(directory, environment) as second:
        began = time.monotonic()
        second.until(path, accepted["key"], lambda status: status["status"] in ("done", "error"))
        seconds += time.monotonic() - began
        result = second.read(f"{path}/result", accepted["key"])
        peaks = peak, second.peak
    after = (directory / "copied.txt").read_text().splitlines()
    numbered = [line for line in after if line[:1].isdigit()]  # others are those of the warm-up
    return Measured(
        megabytes=len(content) / _MEGABYTE,
        texts=content.count(b"\n"),
        killed_at_percent=float(str(status["percent"])),
        stored=len({line for line in before if line[:1].isdigit()}) - (len(numbered) - len(set(numbered))),
        repeated=len(numbered) - len(set(numbered)),
        seconds=seconds,
        peak_megabytes=peaks,
        same=result == content,
    )


def _document(size: int, characters: int) -> bytes:
    """Return numbered lines of words."""
    words = " ".join([_SENTENCE] * (characters // 100 + 1))
    lines = size // (characters + 1)
    return "".join(f"{number:07d} {words}"[:characters] + "\n" for number in range(lines)).encode()


class _Server:
    """A process that serves, on a free port."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self._log = process, log

    @property
    def peak(self) -> float:
        """Largest resident memory so far, in megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / _MEGABYTE

    def read(self, path: str, key: str = "", content: bytes | None = None) -> bytes:
        """Return the answer to a request."""
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", self._log.read_text())
        if found is None:
            raise ConnectionError(self._log.read_text())
        headers = {"X-Document-Key": key, "Content-Type": "application/octet-stream"}
        with urllib.request.urlopen(urllib.request.Request(found[1] + path, content, headers), timeout=600) as answer:
            return bytes(answer.read())

    def asked(self, path: str, content: bytes) -> dict[str, str]:
        """Return the answer to an upload."""
        accepted: dict[str, str] = json.loads(self.read(path, content=content))
        return accepted

    def until(self, path: str, key: str, reached: Callable[[Mapping[str, object]], bool]) -> Mapping[str, object]:
        """Return the status of a document once it is as `reached` says."""
        while True:
            status: Mapping[str, object] = json.loads(self.read(path, key))
            if reached(status):
                return status
            time.sleep(0.02)


@contextlib.contextmanager
def _serving(directory: Path, environment: Mapping[str, str]) -> Iterator[_Server]:
    log = directory / "log.txt"
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0", "--threads", "1"]
    command += ["--model-dirs", str(directory / "models"), "--database", f"sqlite:///{directory / 'store.db'}"]
    command += ["--max-document-bytes", str(1 << 28), "--document-lease-seconds", "1", "--body-timeout", "600"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=output)
    server = _Server(process, log)
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError):
                if server.read("/readyz"):
                    break
            time.sleep(0.05)
        else:
            raise ConnectionError(log.read_text())
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


if __name__ == "__main__":
    tyro.cli(main)
