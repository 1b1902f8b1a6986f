"""Make tagged sentences of plain ones: names are the words that are written with a capital within English sentences.

    python -m benchmarks.derived_names sentences --data-dir data --output names   # train, dev and test of Tatoeba
    python -m benchmarks.derived_names layers                                     # output layers on generated sentences

No corpus with entities is at hand. `sentences` writes JSON Lines with lower-cased words, so that the capital, by which
a name is defined, is not seen; a word is a name where most of its occurrences within sentences have a capital. Every
test sentence has a name, and none that a training or validation sentence has. `layers` trains a small encoder from
scratch on the generated sentences of the tests, whose names of persons and places are in no training sentence.
"""

import json
import random
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import tyro

from tests.fixtures.tagged_names import names_recipe, train_tagger, write_sentences
from training.data.corpora import get_corpus
from training.run.directory import RunDirectory

_NO_NAMES = {"i", "english", "french", "german"}
_LAYERS = {"lin": {}, "sparse_k = 3": {"sparse_k": 3}, "entmax, alpha 1.5": {"alpha": 1.5}}
_FEWEST, _SHARE = 2, 0.8
"""Occurrences of a name within sentences, and the fraction of them that have a capital."""

app = tyro.extras.SubcommandApp()


@app.command
def sentences(
    data_dir: Path = Path("data"),
    output: Path = Path("names"),
    corpus: str = "tatoeba-de-en",
    train: int = 2000,
    test: int = 400,
) -> None:
    """Write train.jsonl, dev.jsonl and test.jsonl.

    Args:
        data_dir: Directory of the corpora.
        output: Directory to write to.
        corpus: Corpus of pairs whose second column is English.
        train: Number of training sentences.
        test: Number of validation and of test sentences.
    """
    texts = list(dict.fromkeys(text for _, text in get_corpus(corpus).records("train", data_dir)))
    random.Random(0).shuffle(texts)
    words = [re.findall(r"\w+(?:'\w+)?|[^\w\s]", text) for text in texts]
    names = _names(words)
    held_out = {name for number, name in enumerate(sorted(names)) if number % 4 == 0}
    splits: dict[str, list[Sequence[str]]] = {"train": [], "dev": [], "test": []}
    for sentence in words:
        own = {word.lower() for word in sentence} & names
        if own and own <= held_out:
            split = "test"
        elif own and not own & held_out:
            split = "dev" if len(splits["dev"]) < test else "train"
        else:
            continue
        if len(splits[split]) < (train if split == "train" else test):
            splits[split].append(sentence)
    output.mkdir(parents=True, exist_ok=True)
    for split, found in splits.items():
        lines = (json.dumps({"tokens": tokens, "tags": tags}) for tokens, tags in _tagged(found, names))
        (output / f"{split}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        print(f"{split}: {len(found)} sentences")


def _names(sentences: Sequence[Sequence[str]]) -> set[str]:
    """Return the words that mostly have a capital where they do not begin a sentence, in lower case."""
    capital, total = Counter[str](), Counter[str]()
    for sentence in sentences:
        for word in sentence[1:]:
            total[word.lower()] += 1
            capital[word.lower()] += word[0].isupper()
    return {
        word
        for word, count in total.items()
        if count >= _FEWEST and capital[word] > _SHARE * count and len(word) > 1 and word.split("'")[0] not in _NO_NAMES
    }


def _tagged(sentences: Sequence[Sequence[str]], names: set[str]) -> Iterator[tuple[list[str], list[str]]]:
    for sentence in sentences:
        words = [word.lower() for word in sentence]
        tags: list[str] = []
        for word in words:
            inside = bool(tags) and tags[-1] != "O"
            tags.append("O" if word not in names else "I-NAME" if inside else "B-NAME")
        yield words, tags


@app.command
def layers(seeds: int = 3, train: int = 400, test: int = 200) -> None:
    """Print a table of F1 on the test sentences, mean and standard deviation over seeds.

    Args:
        seeds: Number of runs of each layer.
        train: Number of training sentences.
        test: Number of validation and of test sentences.
    """
    print("| output layer | F1 | precision | recall | token accuracy |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        for split, count in (("train", train), ("dev", test), ("test", test)):
            write_sentences(data_dir / f"{split}.tsv", split, count)
        for name, options in _LAYERS.items():
            measured = []
            for seed in range(seeds):
                recipe = names_recipe(output_layer=options).model_copy(update={"seed": seed})
                task = train_tagger(recipe, data_dir, RunDirectory(data_dir / f"{name}-{seed}"))
                measured.append(task.measure("test").metrics)
            cells = [_cell([each[metric] for each in measured]) for metric in measured[0]]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _cell(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


if __name__ == "__main__":
    app.cli()
