"""Quality of models on data of a newcomer by `softserve-train new`, `run` and `evaluate` alone, and the times.

    python -m benchmarks.own_data --data-dir data                  # all rows
    python -m benchmarks.own_data --data-dir data --only book      # some of them

The data are parts of corpora of the registry, written as a user has them. Nothing is edited but the test file, where
the corpus has one. `predicted` is the time that `new` says: for all epochs, and for those that were run, since training
can end early; at most the time of `loop.minutes` where that ended it. `run` is the time of the whole command.
"""

import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro
from PIL import Image

from training.data.corpora import get_corpus
from training.data.image_corpora import get_image_corpus

_BOOK = 368_000
"""Characters of the book."""
_CLASSES = 10
"""Classes of small data."""
_PREDICTED = (
    r"time: some (?P<whole>[\d.]+ \w+) for (?P<epochs>\d+) epochs: (?P<start>[\d.]+ \w+) before the first,\s+"
    r"(?P<each>[\d.]+ \w+)\s+each"
)
"""The time that `new` prints."""
_LIMIT = r"at most ([\d.]+) minutes from the first epoch on"


@dataclass(frozen=True, slots=True)
class Row:
    """Data of one kind."""

    new: tuple[str, ...]
    """Arguments of `softserve-train new`."""
    write: Callable[[Path, Path], str | None]
    """Write the file into a directory, from one of corpora; return the name of the test file, if there is one."""


def _lines(corpus: str, split: str, data_dir: Path) -> Iterator[str]:
    return ("\t".join(record) for record in get_corpus(corpus).records(split, data_dir))


def _sample(corpus: str, count: int | None) -> Callable[[Path, Path], str]:
    def write(directory: Path, data_dir: Path) -> str:
        lines = list(_lines(corpus, "train", data_dir))
        some = lines if count is None else random.Random(0).sample(lines, count)
        (directory / "data.tsv").write_text("\n".join(some) + "\n", encoding="utf-8")
        tests = list(_lines(corpus, "test", data_dir))
        (directory / "test.tsv").write_text("\n".join(tests) + "\n", encoding="utf-8")
        return "test.tsv"

    return write


def _few_texts(directory: Path, data_dir: Path) -> str:
    """Write 20 training texts and all test texts of each of 10 classes."""
    splits = {split: [line.split("\t") for line in _lines("banking77", split, data_dir)] for split in ("train", "test")}
    generator = random.Random(0)
    classes = generator.sample(sorted({label for label, _ in splits["train"]}), _CLASSES)
    for split, rows in splits.items():
        own = {label: [f"{label}\t{text}" for other, text in rows if other == label] for label in classes}
        lines = [line for each in own.values() for line in (generator.sample(each, 20) if split == "train" else each)]
        (directory / ("data.tsv" if split == "train" else "test.tsv")).write_text(
            "\n".join(lines) + "\n", encoding="utf-8"
        )
    return "test.tsv"


def _few_images(directory: Path, data_dir: Path) -> str:
    """Write 100 training images and all test images of each of 10 classes, in folders."""
    corpus = get_image_corpus("cifar100")
    names = corpus.labels(data_dir)
    classes = random.Random(0).sample(range(len(names)), _CLASSES)
    for split, folder in {"train": "data", "test": "test"}.items():
        pixels, labels = corpus.images(split, data_dir)
        for each in classes:
            (directory / folder / names[each]).mkdir(parents=True, exist_ok=True)
            for number, image in enumerate(pixels[labels == each][:100]):
                Image.fromarray(image).save(directory / folder / names[each] / f"{number}.png")
    return "test"


def _book(directory: Path, data_dir: Path) -> None:
    text = " ".join(itertools.islice(_lines("wikitext-2", "train", data_dir), 4000))[:_BOOK]
    (directory / "data.txt").write_text("\n".join(textwrap.wrap(text, 72)) + "\n", encoding="utf-8")


ROWS: dict[str, Row] = {
    "book": Row(("language-model", "data.txt"), _book),
    "20,000 pairs, from de-en": Row(("translator", "data.tsv"), _sample("tatoeba-de-en", 20_000)),
    "20,000 pairs, from scratch": Row(
        ("translator", "data.tsv", "--from-scratch", "--minutes", "29"), _sample("tatoeba-de-en", 20_000)
    ),
    "20,000 pairs, from scratch, in 8 minutes": Row(
        ("translator", "data.tsv", "--from-scratch", "--minutes", "8"), _sample("tatoeba-de-en", 20_000)
    ),
    "Banking77, 3,000 texts": Row(("classifier", "data.tsv"), _sample("banking77", 3000)),
    "Banking77, all": Row(("classifier", "data.tsv"), _sample("banking77", None)),
    "200 texts in 10 classes": Row(("classifier", "data.tsv"), _few_texts),
    "1,000 images in 10 classes": Row(("image-classifier", "data"), _few_images),
    "Reuters": Row(("classifier", "data.tsv", "--minutes", "20"), _sample("reuters90", None)),
}


def main(data_dir: Path = Path("data"), only: tuple[str, ...] = (), keep: Path | None = None) -> None:
    """Print a Markdown table.

    Args:
        data_dir: Directory that holds the corpora.
        only: Names of rows; all without it.
        keep: Directory to keep data, recipes and runs in.
    """
    print("| data | metric | test | baselines, test | epochs | predicted | for these epochs | run | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, row in ROWS.items():
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary) if keep is None else keep / re.sub(r"\W+", "-", name)
            place.mkdir(parents=True, exist_ok=True)
            print(f"| {name} | {' | '.join(_measured(row, place, data_dir))} |", flush=True)


def _measured(row: Row, place: Path, data_dir: Path) -> Iterator[str]:
    test = row.write(place, data_dir)
    kind, file, *options = row.new
    planned = _call(place, "new", kind, file, "--name", "own", "--data-dir", ".", "--force", *options)
    predicted = re.search(_PREDICTED, planned)
    assert predicted is not None, planned
    tests = () if test is None else ("--set", f"data.files.test={test}")
    started = time.monotonic()
    trained = _call(place, "run", "own.yaml", "--data-dir", ".", "--restart", *tests)
    seconds = time.monotonic() - started
    line = _call(place, "evaluate", "runs/own", "--data-dir", ".").splitlines()[0]
    found = re.search(r", test: (?:greedy, )?([A-Za-z0-9 ]+?) ([\d.]+)", line)
    assert found is not None, line
    yield found[1]
    yield found[2]
    baselines = json.loads((place / "runs" / "own" / "baselines.json").read_text(encoding="utf-8"))
    yield ", ".join(f"{each['name']} {each['test']:.3f}" for each in baselines)
    epochs = len(re.findall(r"(?m)^epoch \d+: ", trained))
    yield f"{epochs} of {predicted['epochs']}"
    yield predicted["whole"]
    expected = _seconds(predicted["start"]) + epochs * _seconds(predicted["each"])
    if (limit := re.search(_LIMIT, planned)) is not None and "the time of loop.minutes is used" in trained:
        expected = _seconds(predicted["start"]) + 60 * float(limit[1])
    yield f"{expected / 60:.1f} minutes"
    yield f"{seconds / 60:.1f} minutes"
    yield f"{seconds / expected:.2f}"


def _seconds(duration: str) -> float:
    number, unit = duration.split()
    return float(number) * (60 if unit == "minutes" else 1)


def _call(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "training.cli", *arguments]
    return subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    tyro.cli(main)
