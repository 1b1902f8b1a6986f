"""`softserve`: serve models, use them without a server, inspect bundles. `--version` prints the version.

Exit status: 0, 1 where something failed, 2 for wrong usage, 130 where it was interrupted.
"""

import contextlib
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Annotated, NoReturn

import tyro
from pydantic import ValidationError

from models import ModelError
from models.bundle.manifest import MANIFEST
from models.escaping import escaped
from models.operations.operation import AnyOperation
from models.store import BUNDLED
from service.offline.model_list import models, print_bundle
from service.offline.options import COMPUTING, UsageError

__all__ = ["main"]

Command = Callable[..., int]


def inspect(bundle: Annotated[Path, tyro.conf.Positional]) -> int:
    """Check a bundle directory against its manifest and print its contents; exit status 1 where anything is wrong."""
    if os.path.lexists(bundle / MANIFEST):
        return print_bundle(bundle.resolve())
    wrong = f"{bundle} has no {MANIFEST}" if bundle.is_dir() else f"{bundle} does not exist"
    print(escaped(f"wrong: {wrong}; {_bundles_near(bundle)}"))
    return 1


def _bundles_near(path: Path) -> str:
    """Return a line that names the bundles below a directory, or below the first of its parents that exists."""
    root = next(each for each in (path, *path.parents) if each.is_dir())
    found = sorted(file.parent for depth in ("*", "*/*") for file in root.glob(f"{depth}/{MANIFEST}"))
    if not found:
        return f"there are no bundles in {root}; those of this installation are in {BUNDLED}"
    return f"bundles in {root}: {', '.join(map(str, found))}"


def main() -> None:
    """Run the `softserve` command."""
    if sys.argv[1:] == ["--version"]:
        print(f"softserve {metadata.version('softserve')}")
        sys.exit(0)
    _configure_process()
    interrupts: list[int] = []

    def interrupt(number: int, _: object) -> NoReturn:
        interrupts.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        sys.exit(_run(sys.argv[1:]))
    except UsageError as error:
        print(f"softserve: {escaped(str(error), lines=True)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        _end_interrupted()
    except BrokenPipeError:  # what reads the output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if interrupts:  # pydantic makes an error of its own of a KeyboardInterrupt
            _end_interrupted()
        if (message := _message_of(error)) is None:
            raise
        sys.exit(f"softserve: {escaped(message, lines=True)}")


def _configure_process() -> None:
    if os.environ.get("RUST_BACKTRACE") != "full":  # hundreds of lines of a tokenizer that panics, at every request
        os.environ["RUST_BACKTRACE"] = "0"
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names and descriptions, where it is not UTF-8


def _message_of(error: Exception) -> str | None:
    """Return the message of an error; None for a bug. Imports what only errors of some commands need."""
    from pydantic_settings import SettingsError

    from service.http.key_file import KeyFileError

    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    return str(error) if isinstance(error, (ModelError, KeyFileError, OSError, SettingsError)) else None


def _end_interrupted() -> NoReturn:
    print("softserve: interrupted; complete lines were written", file=sys.stderr, flush=True)
    if any(thread.name.startswith(COMPUTING) for thread in threading.enumerate()):  # which may take for ever
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(130)
    sys.exit(130)


def _serve() -> Command:
    from service.settings import Settings

    environment = Settings()

    def serve(settings: Annotated[Settings, tyro.conf.arg(name="")] = environment) -> int:
        """Serve models over HTTP until SIGTERM or SIGINT, then finish the accepted requests.

        Every flag has an environment twin: --max-queue-items is SOFTSERVE_MAX_QUEUE_ITEMS. Flags win.
        """
        from service.engine.preloading import preload

        if settings.workers == 1:
            preload(settings)  # while the server is imported
        from service.server import multiprocess, process

        return process.serve(settings) if settings.workers == 1 else multiprocess.serve_multiprocess(settings)

    return serve


def _imported(module: str, name: str) -> Callable[[], Command]:
    def load() -> Command:
        command: Command = getattr(importlib.import_module(module), name)
        return command

    return load


_OWN: Mapping[str, Callable[[], Command]] = {
    "serve": _serve,
    "models": lambda: models,
    "inspect": lambda: inspect,
    "rescore": _imported("service.offline.rescore_command", "rescore"),
    "ray": _imported("service.deploy.command", "ray"),
}
"""Loads the function of each command. To import the server takes longer than many a command without one."""


def _commands() -> Mapping[str, Callable[[], Command]]:
    """Return what loads the function of each command, those of operations among them."""
    from service.offline.command import command_of, text_operations

    def of(operation: AnyOperation) -> Callable[[], Command]:
        return lambda: command_of(operation)

    return {name: of(each) for name, each in text_operations().items()} | dict(_OWN)


def _run(arguments: list[str]) -> int:
    name = arguments[0].replace("_", "-") if arguments else ""
    if name == "bench":
        raise UsageError("bench is python -m benchmarks.load URL now, in a checkout of the repository")
    commands = _OWN if name in _OWN else _commands()
    if name in commands:
        return int(tyro.cli(commands[name](), prog=f"softserve {name}", args=arguments[1:]))
    app = tyro.extras.SubcommandApp()
    for name, load in commands.items():
        app.command(name=name)(load())
    return int(app.cli(prog="softserve", description=__doc__, args=arguments))


if __name__ == "__main__":
    main()
