"""`softserve serve` as a process of its own."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Process:
    """`softserve serve` on a free port of this machine."""

    root = ROOT

    def __init__(self, log, *arguments, python=sys.executable, before="", settings=()):
        """Start it; `before` is Python code that the process runs first, `settings` are environment variables."""
        self.log, self.python = log, python
        run = ["-c", f"{before}\nfrom service.cli import main\nmain()"] if before else ["-m", "service.cli"]
        command = [python, *run, "serve", "--port", "0", "--threads", "1", *map(str, arguments)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SOFTSERVE_")}
        environment |= dict(settings)
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)

    @property
    def text(self):
        return self.log.read_text()

    @property
    def address(self):
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", self.text)
        return found and found[1]

    @property
    def grpc_address(self):
        found = re.search(r"gRPC \(Open Inference\) on (127\.0\.0\.1:\d+)", self.text)
        return found and found[1]

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=30) as response:
            return response.read().decode()

    def ready(self):
        assert self.process.poll() is None, self.text
        with contextlib.suppress(OSError):
            return bool(self.address and self.get("/readyz"))
        return False

    def post(self, context):
        request = urllib.request.Request(
            self.address + "/v1/next-word",
            json.dumps({"context": context, "top_k": 1}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)["results"][0]["words"][0]["word"]

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(30)


def workers(process):
    """Return the ids of the processes that serve, of `softserve serve --workers`."""
    found = set()
    for pid in Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):  # ended since it was listed
            if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(int(pid))
    return found
