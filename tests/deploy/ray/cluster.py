"""A cluster of Ray on one machine: nodes in network and mount namespaces of their own, joined by a bridge.

Each node has its own addresses, ports and directories of Ray and its HAProxy, as on a machine of its own.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from service.deploy.command import environment

ROOT = Path(__file__).parents[3]
_BIN = Path(sys.executable).parent
_BRIDGE = "softserve0"
_HEAD_PORT = 6379
_OWN = Path("/tmp/ray"), Path("/tmp/haproxy-serve")
"""Fixed paths, of which each node has its own."""


def missing() -> str | None:
    """Return what keeps a cluster from being started here, if anything."""
    if os.geteuid():
        return "needs root, for network namespaces"
    if absent := [name for name in ("ip", "unshare") if shutil.which(name) is None]:
        return f"needs {', '.join(absent)}: apt-get install iproute2 util-linux"
    tried = subprocess.run(["unshare", "-nm", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "network namespaces are not allowed here"


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.2)


class Node:
    """A node of the cluster; the first one is the head, and the entry of requests."""

    def __init__(self, number: int, directory: Path) -> None:
        self.name, self.address = f"softserve-node-{number}", f"10.201.77.{number}"
        self._directory = directory / self.name
        for path in _OWN:
            (self._directory / path.name).mkdir(parents=True)
        ends = f"{_BRIDGE}-{number}", f"veth-{number}"
        _ip("netns", "add", self.name)
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", self.name)
        _ip("link", "set", ends[0], "master", _BRIDGE, "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", ends[1])
        _ip("-n", self.name, "link", "set", ends[1], "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    def command(self, *command: object) -> list[str]:
        """Return a command that runs on this node."""
        mounts = [f"mkdir -p {path} && mount --bind {self._directory}/{path.name} {path}" for path in _OWN]
        inside = ["unshare", "-m", "sh", "-c", f'{" && ".join(mounts)} && exec "$@"', "sh", *map(str, command)]
        return ["ip", "netns", "exec", self.name, *inside]

    def start(self, *command: object) -> "subprocess.Popen[bytes]":
        log = (self._directory / f"log-{len(list(self._directory.glob('log-*')))}").open("wb")
        return subprocess.Popen(self.command(*command), cwd=ROOT, env=_environment(), stdout=log, stderr=log)

    def run(self, *command: object, timeout: float = 300) -> str:
        """Return the output of a command; it must succeed."""
        ended = subprocess.run(
            self.command(*command),
            cwd=ROOT,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert ended.returncode == 0, f"{command}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def start_ray(self, head: "Node | None" = None, cpus: int = 1) -> None:
        """Start Ray; without a head this is the head. Waits until it has started."""
        role = ["--head", "--port", _HEAD_PORT, "--include-dashboard", "false"]
        if head is not None:
            role = ["--address", f"{head.address}:{_HEAD_PORT}"]
        resources = ["--num-cpus", cpus, "--object-store-memory", 100_000_000, "--disable-usage-stats"]
        self.run(_BIN / "ray", "start", *role, "--node-ip-address", self.address, *resources)

    def up(self, config: Path) -> None:
        """Deploy a config file, and wait until its replicas are ready."""
        self.run(_BIN / "softserve", "ray", "up", config, "--address", f"{self.address}:{_HEAD_PORT}")

    def kill(self) -> None:
        """Kill every process of the node at once, as a loss of its machine does."""
        with contextlib.suppress(subprocess.CalledProcessError):
            while pids := _ip("netns", "pids", self.name).split():
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                time.sleep(0.05)


class Cluster:
    """Nodes; processes and namespaces end with the block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.nodes: Sequence[Node] = ()

    def __enter__(self) -> Self:
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("link", "set", _BRIDGE, "up")
        self.nodes = [Node(number, self._directory) for number in (1, 2)]
        return self

    def __exit__(self, *error: object) -> None:
        for number, node in enumerate(self.nodes, 1):
            node.kill()
            for command in (("netns", "del", node.name), ("link", "del", f"{_BRIDGE}-{number}")):
                with contextlib.suppress(subprocess.CalledProcessError):
                    _ip(*command)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", _BRIDGE)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SOFTSERVE_", "RAY_"))}
    return {**kept, **environment(), "PYTHONPATH": str(ROOT)}
