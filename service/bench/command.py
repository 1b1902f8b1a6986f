"""`softserve bench`: what is measured depends on the target."""

from typing import Annotated

import tyro

from service.bench.in_process import measure
from service.bench.options import InProcess, Load, UsageError

__all__ = ["bench"]

_IN_PROCESS, _LOAD = InProcess(), Load()
"""What holds where nothing else is asked for."""


def bench(
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL|URL]")] = "next-word",
    in_process: Annotated[InProcess, tyro.conf.OmitArgPrefixes] = _IN_PROCESS,
    load: Annotated[Load, tyro.conf.OmitArgPrefixes] = _LOAD,
) -> int:
    """Measures a model in this process, or puts a running server under load.

    softserve bench next-word runs the model here and now; softserve bench http://127.0.0.1:8000 sends requests to a
    server for 10 seconds and reports throughput, latency, errors, and the server's own statistics of its queue and
    batches. Of a load test the exit status is 0 where every request was answered with 2xx or 429, 1 where one was
    not, and 2 where there was nothing to measure.

    Args:
        target: Name or name:version of a model, or the address of a server.
    """
    if target.startswith(("http://", "https://")):
        _refuse(in_process, _IN_PROCESS, "is for a model in this process, not for a server")
        try:
            from service.bench.run import run
        except ModuleNotFoundError as error:
            raise UsageError(f"a load test needs {error.name}: pip install 'softserve[bench]'") from None
        return run(target, load)
    _refuse(load, _LOAD, "is for the address of a server, http://... or https://...")
    measure(target, in_process)
    return 0


def _refuse(given: InProcess | Load, default: InProcess | Load, why: str) -> None:
    """Raises `UsageError` where an option was given that has no effect."""
    for name in given.__slots__:
        if getattr(given, name) != getattr(default, name):
            raise UsageError(f"--{name.replace('_', '-')} {why}")
