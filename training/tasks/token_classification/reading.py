"""Tagged sentences of a user's own files, and their tokens."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.text.tokenization import EncoderTokenizer
from models.text.words import Span
from training.data.own_files import records_of_split, source_of
from training.data.settings import SplitFiles
from training.data.text_files import format_suffix, parsed, read_rows
from training.tasks.token_classification.settings import Scheme, TaggedSettings

__all__ = ["OUTSIDE", "EncodedSentence", "TaggedSentence", "encoded_sentences", "read_sentences", "read_tagged"]

OUTSIDE = "O"
"""The tag of words outside of all entities."""


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The words of a sentence, as its file divides it, and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words, separated by spaces."""
        return " ".join(self.words)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of its entities, each once."""
        return tuple(sorted({tag.split("-", 1)[-1] for tag in self.tags if tag != OUTSIDE}))


@dataclass(frozen=True, slots=True)
class _Line:
    """A word with its tag, and those of the tags before it in the sentence."""

    number: int
    word: str
    tag: str


def read_tagged(data: TaggedSettings, split: str, data_dir: Path) -> list[TaggedSentence]:
    """Return the sentences of `train`, `dev` or `test`; a split without a file is held out of the training file.

    The split of a sentence depends on its text, and the last sentence with a type stays in training. Raises the errors
    of `read_sentences`, and `ValueError` for too few sentences to hold some out.
    """
    assert data.files is not None
    path, missing = source_of(data.files, split, data_dir)
    sentences = read_sentences(path, data.files, data.scheme)
    keys, types = [each.text for each in sentences], [each.types for each in sentences]
    found = records_of_split(sentences, keys, split, missing, data.held_out_unit, types)
    return found[: data.limit_of(split)]


def read_sentences(path: Path, files: SplitFiles, scheme: Scheme) -> list[TaggedSentence]:
    """Return the sentences of a file.

    Raises `ValueError` naming the lines that are wrong or whose tags are no IOB2 where the scheme is, and for a file
    without a sentence; `FileNotFoundError` where there is no file.
    """
    if format_suffix(path) in (".jsonl", ".ndjson"):
        found = [each for each in _json_sentences(path, files, scheme) if each is not None]
    else:
        found = _column_sentences(path, files, scheme)
    if not found:
        raise ValueError(f"{path} has no sentences")
    return found


def _json_sentences(path: Path, files: SplitFiles, scheme: Scheme) -> list[TaggedSentence | None]:
    names = files.columns.get("tokens", "tokens"), files.columns.get("tags", "tags")

    def sentence(line: str) -> TaggedSentence | None:
        if not line.strip():
            return None
        try:
            content = json.loads(line)
        except ValueError as error:
            raise ValueError(f"it is not JSON: {error}") from error
        words, tags = (_strings(content, name) for name in names)
        if len(words) != len(tags):
            raise ValueError(f"{len(words)} {names[0]}, but {len(tags)} {names[1]}")
        if not words:
            return None
        for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
            if not word.strip() or not tag.strip():
                raise ValueError(f"the {'token' if tag.strip() else 'tag'} at place {place} is empty")
            _check(tags[place - 1] if place else OUTSIDE, tag, scheme)
        return TaggedSentence(words, tags)

    return read_rows(path, sentence, files.encoding)


def _strings(content: Any, name: str) -> tuple[str, ...]:
    if not isinstance(content, dict) or name not in content:
        raise ValueError(f"it is no object with a list {name!r}; data.files.columns is for other names")
    values = content[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name!r} is not a list of strings")
    return tuple(values)


def _column_sentences(path: Path, files: SplitFiles, scheme: Scheme) -> list[TaggedSentence]:
    token, tag = (_place(files.columns, name, default) for name, default in (("tokens", 1), ("tags", -1)))

    def row(line: str) -> tuple[str, str] | None:
        """Return word and tag; None for a blank line, and for a comment, which is left out with an empty word."""
        if not line.strip():
            return None
        if (line.startswith("#") and "\t" not in line) or line.startswith("-DOCSTART-"):
            return "", ""
        fields = [field.strip() for field in (line.split("\t") if "\t" in line else line.split())]
        if len(fields) < max(2, token, tag):
            raise ValueError(f"{len(fields)} column{'s' * (len(fields) > 1)}, not a token and its tag")
        word, own = fields[token - 1], fields[tag - 1 if tag > 0 else tag]
        if not word or not own:
            raise ValueError(f"the {'token' if own else 'tag'} is empty")
        return word, own

    sentences: list[list[_Line]] = [[]]
    for number, found in enumerate(read_rows(path, row, files.encoding), 1):
        if found is None:
            sentences.append([])
        elif found[0]:
            sentences[-1].append(_Line(number, *found))
    pairs = ((each.number, (before, each.tag)) for sentence in sentences for before, each in _with_previous(sentence))
    parsed(path, pairs, lambda tags: _check(*tags, scheme))
    return [
        TaggedSentence(tuple(each.word for each in sentence), tuple(each.tag for each in sentence))
        for sentence in sentences
        if sentence
    ]


def _with_previous(sentence: Sequence[_Line]) -> Iterator[tuple[str, _Line]]:
    before = OUTSIDE
    for each in sentence:
        yield before, each
        before = each.tag


def _place(columns: Mapping[str, str], name: str, default: int) -> int:
    """Return the number of a column, from 1 on, or from the end where it is negative."""
    given = columns.get(name)
    if given is None:
        return default
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"data.files.columns.{name}: {given!r} is not the number of a column, 1 being the first")
    return int(given)


def _check(before: str, tag: str, scheme: Scheme) -> None:
    """Raise `ValueError` for a tag that may not stand after another one in IOB2."""
    if scheme == "any" or tag == OUTSIDE:
        return
    prefix, hyphen, kind = tag.partition("-")
    if prefix not in ("B", "I") or not hyphen or not kind:
        raise ValueError(f"the tag {tag!r} is neither O nor B-TYPE nor I-TYPE; data.scheme: any accepts it")
    if prefix == "I" and before not in (f"B-{kind}", tag):
        raise ValueError(
            f"the tag {tag!r} is after {before!r}: in IOB2 an entity begins with B-{kind}; data.scheme: any accepts it"
        )


@dataclass(frozen=True, slots=True)
class EncodedSentence:
    """The tokens of a sentence."""

    tokens: list[int]
    """`[CLS]` and `[SEP]` included."""
    firsts: list[int | None]
    """Place of the first token of each word; None of a word that has none, or after the longest text."""


def encoded_sentences(
    sentences: Sequence[TaggedSentence], tokenizer: EncoderTokenizer, max_tokens: int
) -> list[EncodedSentence]:
    """Return the tokens of the sentences' texts, the first `max_tokens` of each, as the service makes them."""
    encoded = tokenizer.encode_with_spans([each.text for each in sentences])
    found = []
    for sentence, (ids, spans) in zip(sentences, encoded, strict=True):
        kept = max_tokens - 2
        firsts = _firsts(sentence.words, spans[:kept])
        found.append(EncodedSentence(tokenizer.framed(ids[:kept]), firsts))
    return found


def _firsts(words: Sequence[str], spans: Sequence[Span]) -> list[int | None]:
    """Return the place of each word's first token after `[CLS]`: the first whose last character is one of the word."""
    found: list[int | None] = []
    start, place = 0, 0
    for word in words:
        end = start + len(word)
        while place < len(spans) and (spans[place][1] <= start or spans[place][0] == spans[place][1]):
            place += 1
        found.append(place + 1 if place < len(spans) and spans[place][1] <= end else None)
        start = end + 1
    return found
