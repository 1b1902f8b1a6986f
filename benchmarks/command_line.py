"""Compare `softserve translate` of a file, a process from its start to its end, with the library.

    python -m benchmarks.command_line SENTENCES.de

The library is `Translator.translate` of the same texts, from texts to texts, in a process that has loaded the model:
all processors for one decoding, and as many decodings at once as processors, each on a part of the texts. The best
of its medians counts. All sides take turns.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import tyro

from benchmarks.sides import Side, Work, side
from models import ModelStore
from models.backend.cpus import usable_cpus
from models.store import BUNDLED

__all__ = ["main"]


def _library(model: str, at_once: int) -> Work:
    threads = usable_cpus()
    translator: Any = ModelStore(BUNDLED).load(model, threads=threads, parallel=at_once)
    translator.translate(["Guten Morgen!"])

    def translate(texts: Sequence[str], beam_size: int) -> list[str]:
        by_length = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        parts = [by_length[start::at_once] for start in range(at_once)]
        with ThreadPoolExecutor(at_once) as pool:
            found = pool.map(lambda part: translator.translate([texts[place] for place in part], beam_size), parts)
            pairs = zip(chain.from_iterable(parts), chain.from_iterable(found), strict=True)
            return [each.translations[0].text for _, each in sorted(pairs, key=lambda pair: pair[0])]

    return translate


def _command(model: str, file: Path, output: Path, beam_size: int) -> float:
    options = ["--model", model, "--beam-size", str(beam_size), "--output", str(output)]
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "service.cli", "translate", str(file), *options], check=True)
    return time.perf_counter() - started


def main(
    file: Annotated[Path, tyro.conf.Positional],
    model: str = "de-en",
    lines: int = 5000,
    beam_size: int = 5,
    rounds: int = 3,
) -> None:
    """Print medians and their ratio.

    Args:
        file: A text on each line.
        model: A bundled translator.
        lines: Texts to translate, the first ones of the file.
        beam_size: Hypotheses that are searched.
        rounds: Measurements of each side.
    """
    texts = file.read_text(encoding="utf-8").splitlines()[:lines]
    print(f"{os.uname().machine}, {usable_cpus()} processors; {len(texts)} texts, beam {beam_size}, {rounds} rounds")
    times: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        side(_library, model, 1) as one,
        side(_library, model, usable_cpus()) as several,
    ):
        given = Path(directory) / "texts"
        given.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        libraries: dict[str, Side] = {"library, one decoding": one, f"library, {usable_cpus()} decodings": several}
        for number in range(rounds):
            output = Path(directory) / f"{number}.tsv"
            times.setdefault("softserve translate", []).append(_command(model, given, output, beam_size))
            for name, library in libraries.items():
                seconds, found = library.time([texts], beam_size)
                times.setdefault(name, []).append(seconds)
                same = sum(a == b for a, b in zip(found, output.read_text(encoding="utf-8").splitlines(), strict=True))
                print(f"round {number + 1}, {name}: {seconds:.2f} s, {same} of {len(found)} translations are the same")
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in medians.items():
        print(f"{name}: {seconds:.2f} s, {len(texts) / seconds:.0f} texts/s")
    best = min(seconds for name, seconds in medians.items() if name in libraries)
    print(f"throughput of the command / the library's best: {best / medians['softserve translate']:.3f}")


if __name__ == "__main__":
    tyro.cli(main)
