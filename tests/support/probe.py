"""Poll a cheap endpoint from a separate process, to measure how long the server's event loop was blocked.

    python -m tests.support.probe PORT

reads lines from standard input: the first starts to poll `/livez`, the second stops and prints the result, and so
on. A thread of the client would wait for the interpreter lock while large bodies are written, and blame the server.
"""

import json
import select
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["LoopProbe", "Stalls"]

_INTERVAL = 0.003
_REQUEST = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
_TIMEOUT = 30.0


@dataclass
class Stalls:
    """The measurements of a probe, in seconds."""

    longest: float = 0.0
    polls: int = 0
    failures: int = 0


class LoopProbe:
    """The probe of one server; `start` and `stop` enclose the measurement."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.probe", str(port)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self) -> None:
        """Begin to poll; return after the first response, so that connecting is not measured."""
        self._tell()
        self._line()

    def stop(self) -> Stalls:
        """Return the measurements since `start`."""
        self._tell()
        return Stalls(**json.loads(self._line()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


class _Poller:
    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def poll(self, stalls: Stalls) -> None:
        """Send one request and read the response."""
        started = time.perf_counter()
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=_TIMEOUT)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(_REQUEST)
            received = self._socket.recv(4096)
        except OSError:
            received = b""
        stalls.longest = max(stalls.longest, time.perf_counter() - started)
        stalls.polls += 1
        if not received:
            stalls.failures += 1
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            time.sleep(0.05)


def main(port: int) -> None:
    """Poll between the lines of standard input."""
    poller = _Poller(port)
    for _ in sys.stdin:
        poller.poll(Stalls())
        print("polling", flush=True)
        stalls = Stalls()
        while not select.select([sys.stdin], [], [], _INTERVAL)[0]:
            poller.poll(stalls)
        sys.stdin.readline()
        print(json.dumps(asdict(stalls)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
