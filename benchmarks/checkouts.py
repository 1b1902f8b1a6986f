"""Compare the translation throughput of this checkout with that of another, such as an earlier commit.

    git worktree add ../before COMMIT
    python -m benchmarks.checkouts ../before --texts FILE

Each side translates the same sentences with its own code and its own bundled German-English model, in a process of its
own; they take turns in every round. Printed are the medians of sentences/s and of the ratio within a round.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import tyro

_REST = 0.4
"""Seconds after which no thread of a side spins."""
_SIDE = """
import json, sys, time
from pathlib import Path
from models.store import load_bundle
path, threads, beam, texts = json.loads(sys.argv[1])
model = load_bundle(Path(path), threads=threads)
texts = Path(texts).read_text(encoding="utf-8").splitlines()
model.translate(texts[:64], beam)
for line in sys.stdin:
    started = time.perf_counter()
    model.translate(texts[:int(line)], beam)
    print(time.perf_counter() - started, flush=True)
"""


def main(
    other: Annotated[Path, tyro.conf.Positional],
    texts: Path,
    bundle: str = "models/bundled/de-en/5",
    other_bundle: str | None = None,
    sentences: int = 512,
    rounds: int = 9,
    threads: int = 2,
    beam: int = 5,
) -> None:
    """Print one line.

    Args:
        other: Directory of the other checkout.
        texts: File of German sentences, one a line.
        bundle: Bundle of this checkout.
        other_bundle: Bundle of the other one, if it is another.
        sentences: Sentences of each measurement.
        rounds: Measurements of each side.
        threads: Threads of each side.
        beam: Beam size.
    """
    here = Path(__file__).resolve().parents[1]
    sides = []
    for directory, path in ((here, bundle), (other.resolve(), other_bundle or bundle)):
        arguments = json.dumps([str(directory / path), threads, beam, str(texts.resolve())])
        sides.append(
            subprocess.Popen(
                [sys.executable, "-c", _SIDE, arguments],
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(directory)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    taken: list[list[float]] = [[], []]
    for number in range(rounds + 1):  # the first one warms up
        for place in (0, 1) if number % 2 else (1, 0):
            taken[place].append(_measured(sides[place], sentences))
    for side in sides:
        side.communicate()
    ours, theirs = (times[1:] for times in taken)
    ratio = statistics.median(after / before for before, after in zip(ours, theirs, strict=True))
    speeds = [sentences / statistics.median(times) for times in (ours, theirs)]
    print(f"{speeds[0]:.1f} sentences/s here, {speeds[1]:.1f} there; ratio {ratio:.3f} ({rounds} rounds)")


def _measured(side: "subprocess.Popen[str]", sentences: int) -> float:
    """Return the seconds that a side takes for so many sentences, once no thread of the other one spins."""
    time.sleep(_REST)
    assert side.stdin is not None
    assert side.stdout is not None
    print(sentences, file=side.stdin, flush=True)
    return float(side.stdout.readline())


if __name__ == "__main__":
    tyro.cli(main)
