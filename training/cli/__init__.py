"""`softserve-train`: train from recipes, evaluate, export bundles. `--version` prints the version.

Exit status: 0, 1 where something failed, 2 for wrong usage, 130 or 143 where SIGINT or SIGTERM ended it.
"""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TextIO

from training.run.interruption import Interrupted, raise_on_signals, received

__all__ = ["main"]

_PACKAGES = ("models", "training")
_ROOT = Path(__file__).parents[2]
"""The directory of the packages."""
_QUICK = ("corpora", "-h", "--help")
"""Arguments of commands that end within a second or two, or print help."""


def main() -> None:
    """Run the `softserve-train` command."""
    raise_on_signals()
    logging.basicConfig(level=logging.WARNING)
    sys.path.append("")  # a recipe's kernel may be in a module of the current directory
    try:
        sys.exit(_run())
    except KeyboardInterrupt as error:
        _end(str(error) or "interrupted", error.number if isinstance(error, Interrupted) else 2)
    except Exception as error:
        if (number := received()) is None:
            raise
        _end(f"interrupted ({type(error).__name__})", number)


def _run() -> int | str:
    if sys.argv[1:] == ["--version"]:
        print(f"softserve-train {metadata.version('softserve')}")
        return 0
    first = "training.cli.commands" not in sys.modules and os.environ.get("RANK", "0") == "0"
    if first and len(sys.argv) > 1 and not set(_QUICK) & set(sys.argv[1:]):
        print(f"softserve-train {sys.argv[1]}: starting", file=sys.stderr, flush=True)
        from training.busy_processors import let_threads_sleep  # not above: another package may hide `models`

        if (line := let_threads_sleep()) is not None:
            print(f"softserve-train: {line}", file=sys.stderr, flush=True)
    try:
        from training.cli import commands  # takes seconds, and needs the extra `train`
    except ModuleNotFoundError as error:
        return f"softserve-train: {missing_module(error)}"
    except ImportError as error:
        return f"softserve-train: {error}"
    from models.escaping import escaped  # not above: another package may hide `models`, which is said then

    try:
        with _short_warnings():
            return commands.run_command(__doc__ or "")
    except ModuleNotFoundError as error:
        return f"softserve-train: {missing_module(error)}"
    except commands.ERRORS as error:
        return f"softserve-train: {escaped(str(error), lines=True)}"


@contextlib.contextmanager
def _short_warnings() -> Iterator[None]:
    """Print each warning of this project in a line and once; of other packages print only how many there were."""
    if sys.warnoptions:
        yield
        return
    shown: set[str] = set()
    others = 0

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        nonlocal others
        del category, lineno, file, line
        if not any(Path(filename).is_relative_to(_ROOT / name) for name in _PACKAGES):
            others += 1
        elif str(message) not in shown:
            shown.add(str(message))
            print(f"softserve-train: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        try:
            yield
        finally:
            if others:
                line = f"{others} warnings of other packages are not shown; PYTHONWARNINGS=default shows them"
                print(f"softserve-train: {line}", file=sys.stderr)


def missing_module(error: ModuleNotFoundError) -> str:
    """Return a line about a module that is not installed; raises the error again if it is one of this project."""
    name = (error.name or "").partition(".")[0]
    if name in _PACKAGES:
        raise error
    extra = "import" if name in ("transformers", "huggingface_hub", "sentencepiece") else "train"
    return f"{name} is not installed; training needs it: pip install 'softserve[{extra}]'"


def _end(message: str, number: int) -> None:
    print(f"softserve-train: {message}", file=sys.stderr)
    sys.exit(128 + number)
