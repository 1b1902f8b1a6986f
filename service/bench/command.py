"""The command `softserve bench`, whose target is a model or the address of a server."""

from typing import Annotated

import tyro

from service.bench.in_process import measure
from service.bench.options import InProcessOptions, LoadOptions, UsageError

__all__ = ["bench"]

_IN_PROCESS, _LOAD = InProcessOptions(), LoadOptions()
"""The defaults."""


def bench(
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL|URL]")] = "next-word",
    in_process: Annotated[InProcessOptions, tyro.conf.OmitArgPrefixes] = _IN_PROCESS,
    load: Annotated[LoadOptions, tyro.conf.OmitArgPrefixes] = _LOAD,
) -> int:
    """Measure a model in this process, or run a load test of a server.

    softserve bench next-word runs the model in process. softserve bench http://127.0.0.1:8000 sends requests to a
    server for 10 seconds and reports throughput, latency, errors, and the server's metrics of its queue and batches; it
    needs pip install 'softserve[bench]'. The exit status of a load test is 0 where every response had status 2xx or
    429, 1 otherwise, and 2 where the load test could not run.

    Args:
        target: Name or name:version of a model, or the address of a server.
    """
    if target.startswith(("http://", "https://")):
        _refuse(in_process, _IN_PROCESS, "has no effect on a server, only on a model in this process")
        try:
            from service.bench.run import run
        except ModuleNotFoundError as error:
            raise UsageError(f"a load test needs {error.name}: pip install 'softserve[bench]'") from None
        return run(target, load)
    _refuse(load, _LOAD, "has an effect only on a server, http://... or https://...")
    measure(target, in_process)
    return 0


def _refuse(given: InProcessOptions | LoadOptions, default: InProcessOptions | LoadOptions, why: str) -> None:
    """Raise `UsageError` for an option that has no effect."""
    for name in given.__slots__:
        if getattr(given, name) != getattr(default, name):
            raise UsageError(f"--{name.replace('_', '-')} {why}")
