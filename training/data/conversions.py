"""How the files of a corpus are made from those at its public addresses.

A conversion takes the contents of the downloaded files by name, and returns the corpus's files by name.
"""

import bz2
import csv
import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow.parquet
from PIL import Image

__all__ = ["CONVERSIONS", "Conversion"]

Files = Mapping[str, bytes]
Conversion = Callable[[Files], Files]


_VALIDATION = 20
"""Of this many articles of SQuAD's training file one is for validation."""
_WORDS_BEFORE = 100
"""Words before an answer that a chunk begins with."""


def _tsv(rows: Iterable[Iterable[str]]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def _lines(content: bytes) -> list[str]:
    """Return the lines of a text; `str.splitlines` divides them at characters that sentences contain, too."""
    return content.decode().removesuffix("\n").split("\n")


def _unpacked(files: Files) -> Files:
    """Return files whose names end with `.gz` without it."""
    return {name.removesuffix(".gz"): gzip.decompress(content) for name, content in files.items()}


def _clinc150(files: Files) -> Files:
    """Return a file of labels and texts for each split of `data_full.json`, whose entries are a text and its label."""
    splits = json.loads(files["data_full.json"])
    return {f"data_full.{split}.tsv": _tsv((label, text) for text, label in rows) for split, rows in splits.items()}


def _banking77(files: Files) -> Files:
    """Return labels and texts; lines and runs of spaces within a text become one space."""
    found = {}
    for name, content in files.items():
        rows = csv.DictReader(io.StringIO(content.decode(), newline=""))
        found[name.replace(".csv", ".tsv")] = _tsv((row["category"], " ".join(row["text"].split())) for row in rows)
    return found


def _squad_questions(files: Files) -> Files:
    """Return the lines of sources and targets side by side."""
    found = {}
    for split in ("dev", "test"):
        source, target = (files[f"{side}-{split}.txt"].decode().removesuffix("\n") for side in ("src", "tgt"))
        found[f"{split}.tsv"] = _tsv(zip(source.split("\n"), target.split("\n"), strict=True))
    return found


def _squad_answers(files: Files) -> Files:
    """Return sources `answer | chunk` and the questions of SQuAD 1.1, `train-v1.1.json` and `dev-v1.1.json`.

    The answer is the first that a question has. The chunk is the paragraph from at most 100 words before the answer on,
    so that a source of which the end is cut off keeps the answer, and what precedes it there. The separator is ` | `,
    and runs of white space become one space. Every 20th article of the training file is for validation; the development
    file is the test set.
    """
    articles = json.loads(files["train-v1.1.json"])["data"]
    splits = {
        "train": [article for number, article in enumerate(articles, 1) if number % _VALIDATION],
        "dev": articles[_VALIDATION - 1 :: _VALIDATION],
        "test": json.loads(files["dev-v1.1.json"])["data"],
    }
    return {f"{split}.tsv": _tsv(_answers_questions(articles)) for split, articles in splits.items()}


def _answers_questions(articles: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Yield sources and targets of articles in SQuAD's JSON."""
    for paragraph in (paragraph for article in articles for paragraph in article["paragraphs"]):
        context = paragraph["context"]
        for entry in paragraph["qas"]:
            answer = entry["answers"][0]
            words = list(re.finditer(r"\S+", context[: answer["answer_start"]]))
            chunk = context[words[-_WORDS_BEFORE].start() :] if len(words) > _WORDS_BEFORE else context
            source, question = f"{answer['text']} | {chunk}", entry["question"]
            yield " ".join(source.split()), " ".join(question.split())


def _reuters90(files: Files) -> Files:
    """Return topics and texts of NLTK's `reuters.zip`, in the order of the documents' names."""
    found: dict[str, list[tuple[str, str]]] = {"training": [], "test": []}
    with zipfile.ZipFile(io.BytesIO(files["reuters.zip"])) as archive:
        lines = archive.read("reuters/cats.txt").decode().splitlines()
        for name, *topics in sorted(line.split() for line in lines):
            text = archive.read(f"reuters/{name}").decode("latin-1")
            found[name.partition("/")[0]].append((",".join(topics), " ".join(text.split())))
    return {f"{split}.tsv": _tsv(rows) for split, rows in found.items()}


def _swda(files: Files) -> Files:
    """Return dialogue, speaker, text and act of each utterance, from an archive with a file for each dialogue."""
    (content,) = files.values()
    found: dict[str, list[list[str]]] = {"train": [], "val": [], "test": []}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for path in sorted(map(PurePosixPath, archive.namelist())):
            if path.parts[1:2] == ("swda_data",) and path.parent.name in found and path.stem.isdigit():
                for line in archive.read(str(path)).decode().removesuffix("\n").split("\n"):
                    speaker, _, rest = line.partition("|")
                    text, _, act = rest.rpartition("|")
                    found[path.parent.name].append([path.stem, speaker, text, act])
    return {f"{split}.tsv": _tsv(rows) for split, rows in found.items()}


def _aeslc(files: Files) -> Files:
    """Return a JSON line for each e-mail: body, `@subject` and up to three `@ann`, the subjects that annotators wrote.

    The whitespace within a line of a body becomes one space.
    """
    (content,) = files.values()
    found: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for path in sorted(map(PurePosixPath, archive.namelist())):
            if path.parts[1:2] == ("enron_subject_line",) and path.parent.name in found and path.suffix == ".subject":
                text = archive.read(str(path)).decode(errors="replace")
                body, *rest = re.split(r"^@(subject|ann\d)\n", text, flags=re.MULTILINE)
                lines = (" ".join(line.split()) for line in body.strip().split("\n"))
                fields = zip(rest[::2], map(str.strip, rest[1::2]), strict=True)
                row = {"id": path.name, "body": "\n".join(lines), **dict(fields)}
                found[path.parent.name].append(json.dumps(row, ensure_ascii=False) + "\n")
    return {f"{split}.jsonl": "".join(rows).encode() for split, rows in found.items()}


def _cifar100(files: Files) -> Files:
    """Return the names of the fine classes, and images in the layout of the Hugging Face hub.

    A record of the archive's files is the number of the coarse class, that of the fine class, and 3,072 bytes: the red,
    green and blue values of 32 rows.
    """
    (content,) = files.values()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names, train, test = (
            _member(archive, f"cifar-100-binary/{name}") for name in ("fine_label_names.txt", "train.bin", "test.bin")
        )
    found = {"classes.txt": b"".join(name + b"\n" for name in names.split()), "test.parquet": _parquet(test)}
    part = len(train) // 3074 // 5 * 3074
    for number in range(5):
        found[f"train-{number}-of-5.parquet"] = _parquet(train[number * part : (number + 1) * part])
    return found


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    """Return the content of a file of an archive."""
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def _parquet(records: bytes) -> bytes:
    """Return a Parquet file of PNG images and classes from the records of `_cifar100`."""
    rows = np.frombuffer(records, dtype=np.uint8).reshape(-1, 3074)
    images = []
    for pixels in rows[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1):
        Image.fromarray(pixels).save(file := io.BytesIO(), "PNG")
        images.append({"bytes": file.getvalue(), "path": None})
    table = pyarrow.table({"img": images, "fine_label": rows[:, 1].astype(np.int64)})
    pyarrow.parquet.write_table(table, written := io.BytesIO())
    return written.getvalue()


def _tatoeba(files: Files) -> Files:
    """Return German sentences and their English translations of Tatoeba's weekly export.

    Pairs that share a sentence, directly or through others, are in one split: 2 % of these groups are for validation
    and 2 % for testing, by the SHA-256 of a group's first German sentence in code point order. So most pairs stay in
    their split from week to week.
    """
    texts: dict[str, str] = {}
    for language in ("deu", "eng"):
        lines = _lines(bz2.decompress(files[f"{language}_sentences.tsv.bz2"]))
        texts |= {number: " ".join(text.split()) for number, _, text in (line.split("\t", 2) for line in lines)}
    links = (line.split("\t") for line in _lines(bz2.decompress(files["deu-eng_links.tsv.bz2"])))
    pairs = sorted({(texts[german], texts[english]) for german, english in links if {german, english} <= texts.keys()})
    found: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for pair, first in zip(pairs, _first_of_group(pairs), strict=True):
        bucket = int(hashlib.sha256(first.encode()).hexdigest(), 16) % 50
        found[{0: "dev", 1: "test"}.get(bucket, "train")].append(pair)
    return {f"{split}.tsv": _tsv(rows) for split, rows in found.items()}


def _first_of_group(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield for each of the sorted pairs the first source of those that it is connected with by shared texts."""
    parents: dict[tuple[int, str], tuple[int, str]] = {}

    def root(node: tuple[int, str]) -> tuple[int, str]:
        while (parent := parents.setdefault(node, node)) != node:
            parents[node] = parents[parent]
            node = parents[node]
        return node

    for source, target in pairs:
        one, other = root((0, source)), root((1, target))
        parents[max(one, other)] = min(one, other)  # sources come before targets
    return (root((0, source))[1] for source, _ in pairs)


CONVERSIONS: Mapping[str, Conversion] = {
    "aeslc": _aeslc,
    "banking77": _banking77,
    "cifar100": _cifar100,
    "clinc150": _clinc150,
    "gzip": _unpacked,
    "reuters90": _reuters90,
    "squad-answers": _squad_answers,
    "squad-questions": _squad_questions,
    "swda": _swda,
    "tatoeba": _tatoeba,
}
"""By the name that `corpora.yaml` gives."""
