"""Virtual environments for peers, one each, so that their requirements cannot conflict."""

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

__all__ = ["environment", "shared_requirements"]

_COMPLETE = "versions.txt"
"""File written last into an environment: its packages with versions."""


def shared_requirements() -> list[str]:
    """Return the libraries of the model's computation, in the versions that the service uses."""
    return [f"{name}=={version(name)}" for name in ("numpy", "onnxruntime", "tokenizers")]


def environment(folder: Path, name: str, requirements: Sequence[str]) -> Path:
    """Return the Python of an environment in `folder` with the requirements, which is created if missing.

    Raises `RuntimeError` with the output of venv or pip where that fails.
    """
    wanted = [*requirements, *shared_requirements()]
    key = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:8]
    home = folder / f"{name}-{key}"
    python = home / "bin" / "python"
    if (home / _COMPLETE).is_file():
        return python
    print(f"installing {' '.join(wanted)} into {home}", file=sys.stderr, flush=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    _run(sys.executable, "-m", "venv", "--clear", str(home))
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    _run(*pip, "install", "--quiet", *wanted)
    (home / _COMPLETE).write_text(_run(*pip, "freeze"), encoding="utf-8")
    return python


def _run(*command: str) -> str:
    """Return the output of a command; raises `RuntimeError` with the end of its output where it fails."""
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        said = " ".join((finished.stdout + finished.stderr).split())
        raise RuntimeError(f"its environment could not be made: {said[-500:]}")
    return finished.stdout
