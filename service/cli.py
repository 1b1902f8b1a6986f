"""`softserve`: serve models, inspect bundles, measure them."""

import sys
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import ValidationError
from pydantic_settings import SettingsError

from models import ModelError
from models.reading import read_manifest, validate
from service.auth import KeyFileError
from service.bench.command import bench
from service.bench.options import UsageError
from service.multiprocess import serve_multiprocess
from service.server import serve
from service.settings import Settings

__all__ = ["main"]


def inspect(bundle: Annotated[Path, tyro.conf.Positional]) -> int:
    """Check a bundle directory against its manifest and print its contents; exit status 1 where anything is wrong."""
    problems = validate(bundle.resolve())
    for problem in problems:
        print(f"wrong: {problem}")
    if problems:
        return 1
    manifest = read_manifest(bundle.resolve())
    layer = ", ".join(kernel.name for kernel in manifest.softmax.kernels)
    if manifest.softmax.sparse_k is not None:
        layer += f"; sparse-softmax over the {manifest.softmax.sparse_k} best"
    size = sum((bundle / name).stat().st_size for name in manifest.files)
    print(f"{manifest.name}:{manifest.version}  {manifest.task}  {manifest.description}")
    print(f"output layer   {layer}")
    for name, value in manifest.config.description().items():
        print(f"{name:<14} {value}")
    print(f"licence        {manifest.licence}")
    print(f"files          {len(manifest.files)}, {size / 1e6:.1f} MB, all checksums match")
    for_devices = sorted({(kind, file) for graph in manifest.graphs.values() for kind, file in graph.devices.items()})
    for kind, file in for_devices:
        print(f"graph for {kind} {file}")
    for quality in manifest.quality:
        print(f"{quality.metric:<14} {quality.value:.2f} on {quality.dataset}, {quality.split}")
    return 0


def main() -> None:
    """Run the `softserve` command."""
    try:
        environment = Settings()
        sys.exit(_run(environment))
    except UsageError as error:
        print(f"softserve: {error}", file=sys.stderr)
        sys.exit(2)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        sys.exit("softserve: " + "; ".join(wrong))
    except (ModelError, KeyFileError, OSError, SettingsError) as error:
        sys.exit(f"softserve: {error}")


def _run(environment: Settings) -> int:
    app = tyro.extras.SubcommandApp()

    @app.command(name="serve")
    def _serve(settings: Annotated[Settings, tyro.conf.arg(name="")] = environment) -> int:
        """Serve models over HTTP until SIGTERM or SIGINT, then finish the accepted requests.

        Every flag has an environment twin: --max-queue-items is SOFTSERVE_MAX_QUEUE_ITEMS. Flags win.
        """
        return serve(settings) if settings.workers == 1 else serve_multiprocess(settings)

    app.command(inspect)
    app.command(bench)
    return int(app.cli(prog="softserve", description=__doc__))


if __name__ == "__main__":
    main()
