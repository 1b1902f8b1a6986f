"""`softserve`: serve models, use them without a server, inspect bundles, measure them.

Exit status: 0, 1 where something failed, 2 for wrong usage, 130 where it was interrupted.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import tyro
from pydantic import ValidationError
from pydantic_settings import SettingsError

from models import ModelError
from service.auth import KeyFileError
from service.bench.command import bench
from service.bench.options import UsageError
from service.multiprocess import serve_multiprocess
from service.offline import options as offline
from service.offline.command import classify, next_word, score, translate
from service.offline.model_list import models, print_bundle
from service.server import serve
from service.settings import Settings

__all__ = ["caused_by_interrupt", "main"]


def inspect(bundle: Annotated[Path, tyro.conf.Positional]) -> int:
    """Check a bundle directory against its manifest and print its contents; exit status 1 where anything is wrong."""
    return print_bundle(bundle.resolve())


def main() -> None:
    """Run the `softserve` command."""
    try:
        environment = Settings()
        sys.exit(_run(environment))
    except (UsageError, offline.UsageError) as error:
        print(f"softserve: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        _end_interrupted()
    except BrokenPipeError:  # what reads the output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        sys.exit("softserve: " + "; ".join(wrong))
    except (ModelError, KeyFileError, OSError, SettingsError) as error:
        sys.exit(f"softserve: {error}")
    except Exception as error:
        if not caused_by_interrupt(error):
            raise
        _end_interrupted()


def caused_by_interrupt(error: BaseException | None) -> bool:
    """Return whether a library made an error of its own of a `KeyboardInterrupt`, as pydantic does."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _end_interrupted() -> NoReturn:
    print("softserve: interrupted; complete lines were written", file=sys.stderr)
    sys.exit(130)


def _run(environment: Settings) -> int:
    app = tyro.extras.SubcommandApp()

    @app.command(name="serve")
    def _serve(settings: Annotated[Settings, tyro.conf.arg(name="")] = environment) -> int:
        """Serve models over HTTP until SIGTERM or SIGINT, then finish the accepted requests.

        Every flag has an environment twin: --max-queue-items is SOFTSERVE_MAX_QUEUE_ITEMS. Flags win.
        """
        return serve(settings) if settings.workers == 1 else serve_multiprocess(settings)

    for command in (next_word, score, translate, classify, models, inspect, bench):
        app.command(command)
    return int(app.cli(prog="softserve", description=__doc__))


if __name__ == "__main__":
    main()
