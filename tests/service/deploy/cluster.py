"""Ray on the machines of a simulated network; the first one is the head, and the entry of requests."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from service.deploy.command import environment
from tests.fixtures.machines import Machine

__all__ = ["OWN", "ROOT", "answers", "deploy", "run", "start_ray", "wait_until"]

ROOT = Path(__file__).parents[3]
OWN = Path("/tmp/ray"), Path("/tmp/haproxy-serve")
"""Fixed paths of Ray and of the HAProxy that it starts."""
_BIN = Path(sys.executable).parent
_PORT = 6379
_TOKEN = "0123456789abcdef" * 4


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.2)


def run(machine: Machine, *command: object) -> str:
    """Return the output of a command on a machine; it must succeed."""
    return machine.run(*command, environment=_environment(), cwd=ROOT)


def start_ray(machine: Machine, head: Machine | None = None) -> None:
    """Start Ray with one processor, as the head without one."""
    role = ["--head", "--port", _PORT, "--include-dashboard", "false"]
    if head is not None:
        role = ["--address", f"{head.address}:{_PORT}"]
    resources = ["--num-cpus", 1, "--object-store-memory", 100_000_000, "--disable-usage-stats"]
    run(machine, _BIN / "ray", "start", *role, "--node-ip-address", machine.address, *resources)


def deploy(head: Machine, config: Path) -> None:
    """Deploy a config file, and wait until its replicas are ready."""
    run(head, _BIN / "softserve", "ray", "up", config, "--address", f"{head.address}:{_PORT}")


def answers(machine: Machine) -> bool:
    """Return whether the proxy of a machine answers, which starts after the replicas are ready."""
    command = ["curl", "-sS", "--fail", "--output", "/dev/null", f"http://{machine.address}:8000/v1/models"]
    return subprocess.run(machine.command(*command), capture_output=True, check=False).returncode == 0


def _environment() -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SOFTSERVE_", "RAY_"))}
    priority = {"RAY_worker_niceness": "0"}  # with Ray's 15, other tests leave its processes too little time to start
    return {**kept, **environment(), **priority, "RAY_AUTH_TOKEN": _TOKEN, "PYTHONPATH": str(ROOT)}
