"""`softserve`: serve models, use them without a server, inspect bundles, measure them. `--version` prints the version.

Exit status: 0, 1 where something failed, 2 for wrong usage, 130 where it was interrupted.
"""

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, NoReturn

import tyro
from pydantic import ValidationError
from pydantic_settings import SettingsError

from models import ModelError
from models.bundle.manifest import MANIFEST
from service.auth import KeyFileError
from service.bench.command import bench
from service.bench.options import UsageError
from service.multiprocess import serve_multiprocess
from service.offline import options as offline
from service.offline.command import classify, next_word, score, translate
from service.offline.model_list import models, print_bundle
from service.server import serve
from service.settings import BUNDLED, Settings

__all__ = ["caused_by_interrupt", "main"]


def inspect(bundle: Annotated[Path, tyro.conf.Positional]) -> int:
    """Check a bundle directory against its manifest and print its contents; exit status 1 where anything is wrong."""
    if (bundle / MANIFEST).is_file():
        return print_bundle(bundle.resolve())
    wrong = f"{bundle} has no {MANIFEST}" if bundle.is_dir() else f"{bundle} does not exist"
    print(f"wrong: {wrong}; {_bundles_near(bundle)}")
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
