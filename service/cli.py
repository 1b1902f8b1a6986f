"""`softserve`: serve models, inspect bundles, measure them."""

import io
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import tyro
from PIL import Image
from pydantic import ValidationError
from pydantic_settings import SettingsError

from models import Classifier, Generator, ImageClassifier, ModelError, ModelStore, Translator
from models.manifest import read_manifest, validate
from models.store import Model
from service.auth import KeyFileError
from service.server import serve
from service.settings import BUNDLED, Settings

__all__ = ["main"]


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


def bench(
    model: Annotated[str, tyro.conf.Positional] = "next-word",
    model_dir: Path = BUNDLED,
    threads: int | None = None,
    rounds: int = 50,
) -> int:
    """Measures a model in this process: medians over interleaved rounds at batch 1, 8 and 32.

    Args:
        model: Name or name:version.
        model_dir: Directory that holds the bundles.
        threads: Threads of one run; all cores without it.
        rounds: Repetitions of each measurement.
    """
    calls = _calls(ModelStore(model_dir).load(model, threads=threads))
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds + 3):
        for count in (1, 8, 32):
            for name, call in calls.items():
                started = time.perf_counter()
                call(count)
                times.setdefault((name, count), []).append(time.perf_counter() - started)
    for (name, count), values in sorted(times.items()):
        median = statistics.median(values[3:])
        print(f"{name:<11} batch {count:>2}: {1000 * median:7.2f} ms, {count / median:7.0f} texts/s")
    return 0


def _calls(model: Model) -> Mapping[str, Callable[[int], object]]:
    """What is measured, on that many texts."""
    if isinstance(model, ImageClassifier):
        file = io.BytesIO()
        Image.new("RGB", (256, 256)).save(file, "PNG")
        return {"classify": lambda count: model.classify([file.getvalue()] * count)}
    if isinstance(model, Translator):
        sentence = "Ich habe schon lange nach so etwas gesucht."
        return {
            "greedy": lambda count: model.translate([sentence] * count, beam_size=1),
            "beam of 5": lambda count: model.translate([sentence] * count, beam_size=5),
        }
    text = "i have been looking for something like this"
    if isinstance(model, Generator):
        return {
            "greedy": lambda count: model.generate([text] * count, beam_size=1, truncate=True),
            "beam of 5": lambda count: model.generate([text] * count, beam_size=5, truncate=True),
        }
    if isinstance(model, Classifier):
        return {"classify": lambda count: model.classify([text] * count, truncate=True)}
    return {
        "next_words": lambda count: model.next_words([text] * count),
        "score": lambda count: model.score([text] * count),
    }


def main() -> None:
    """Entry point of the `softserve` command."""
    try:
        environment = Settings()
        sys.exit(_run(environment))
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
