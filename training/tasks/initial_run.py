"""The run that another run starts from."""

from pathlib import Path

from training.run.directory import RunDirectory

__all__ = ["initial_run"]


def initial_run(path: str, or_else: str = "") -> RunDirectory:
    """Return a run that has best weights; raises `FileNotFoundError` otherwise, with what else it might be."""
    run = RunDirectory(Path(path))
    if not run.best.is_file():
        raise FileNotFoundError(f"initial: {path} is {or_else}no run directory with a finished epoch (no best.pt)")
    return run
