"""The command `python -m benchmarks.load`: a load test of a server."""

import sys
from typing import Annotated

import tyro

from benchmarks.load.options import LoadOptions, UsageError
from models.escaping import escaped

__all__ = ["main"]

_DEFAULT = LoadOptions()


def load(
    url: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="URL")],
    options: Annotated[LoadOptions, tyro.conf.OmitArgPrefixes] = _DEFAULT,
) -> int:
    """Run a load test of a server and report throughput, latency, errors, and the server's metrics.

    It needs pip install -e '.[bench]'. The exit status is 0 where every response had status 2xx or 429, 1 otherwise,
    and 2 where the load test could not run.

    Args:
        url: Address of the server, http://... or https://...
        options: Options of the load test.
    """
    try:
        from benchmarks.load.run import run
    except ModuleNotFoundError as error:
        raise UsageError(f"a load test needs {error.name}: pip install -e '.[bench]'") from error
    return run(url, options)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    try:
        return tyro.cli(load, prog="python -m benchmarks.load", args=arguments)
    except (UsageError, OSError) as error:
        print(f"benchmarks.load: {escaped(str(error), lines=True)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
