"""`softserve`: serve models, inspect bundles, measure them."""

import contextlib
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

import tyro
import uvicorn
from pydantic import ValidationError
from pydantic_settings import SettingsError

from models import ModelError
from models.manifest import read_manifest, validate
from service.app import create_app
from service.auth import KeyFileError
from service.bench.command import bench
from service.bench.options import UsageError
from service.memory import use_few_arenas
from service.settings import Settings

__all__ = ["main"]


class _Server(uvicorn.Server):
    """Ends with the exit status of an orderly stop after SIGTERM and SIGINT; uvicorn's own dies of the signal."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        kept = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.handle_exit(number, frame)


def serve(settings: Settings) -> int:
    """Runs the service; 0 after an orderly stop, 1 where it could not start."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    use_few_arenas()
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,  # longer than load balancers keep connections, so that these end them
        timeout_graceful_shutdown=settings.shutdown_timeout,
    )
    server = _Server(config)
    app.state.registry.on_failure = lambda: setattr(server, "should_exit", True)
    try:
        server.run()
    except SystemExit:  # how uvicorn says that it could not listen, after it logged why
        return 1
    return 1 if app.state.registry.failure or not server.started else 0


def inspect(bundle: Annotated[Path, tyro.conf.Positional]) -> int:
    """Checks a bundle directory against its manifest and shows what it holds; exit status 1 where anything is wrong."""
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
    if manifest.classes is not None:
        print(f"classes        {manifest.classes.count}")
    if manifest.tokenizer is not None:
        print(f"vocabulary     {manifest.text.vocab_size} words, texts of up to {manifest.text.max_tokens} tokens")
        if manifest.limits.max_output_tokens is not None:
            print(f"outputs        of up to {manifest.limits.max_output_tokens} tokens")
    else:
        print(f"images         of up to {manifest.limits.max_pixels} pixels")
    print(f"licence        {manifest.licence}")
    print(f"files          {len(manifest.files)}, {size / 1e6:.1f} MB, all checksums match")
    for quality in manifest.quality:
        print(f"{quality.metric:<14} {quality.value:.2f} on {quality.dataset}, {quality.split}")
    return 0


def main() -> None:
    """Entry point of the `softserve` command."""
    try:
        environment = Settings()
        sys.exit(_run(environment))
    except UsageError as error:
        print(f"softserve: {error}", file=sys.stderr)
        sys.exit(2)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        sys.exit("softserve: " + "; ".join(wrong))
    except (ModelError, KeyFileError, FileNotFoundError, SettingsError) as error:
        sys.exit(f"softserve: {error}")


def _run(environment: Settings) -> int:
    app = tyro.extras.SubcommandApp()

    @app.command(name="serve")
    def _serve(settings: Annotated[Settings, tyro.conf.arg(name="")] = environment) -> int:
        """Serves models over HTTP until SIGTERM or SIGINT, then finishes what it accepted.

        Every flag has an environment twin: --max-queue-items is SOFTSERVE_MAX_QUEUE_ITEMS. Flags win.
        """
        return serve(settings)

    app.command(inspect)
    app.command(bench)
    return int(app.cli(prog="softserve", description=__doc__))


if __name__ == "__main__":
    main()
