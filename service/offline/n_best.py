"""N-best lists of files: tables of hypotheses, JSON lines, and Kaldi's texts with scores; one list at a time."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from models.decoding.rescoring import Hypothesis
from service.offline.csv_records import read_columns
from service.offline.inputs import opened_input
from service.offline.lines import Line, check_encoding, read_lines
from service.offline.options import UsageError

__all__ = [
    "MAX_HYPOTHESES",
    "ListForm",
    "ListInput",
    "NBest",
    "ends_with_number",
    "form_of",
    "read_lists",
    "read_references",
]

MAX_HYPOTHESES = 10_000
"""Hypotheses of a list at most: a list is held in memory."""

ListForm = Literal["tsv", "csv", "jsonl", "kaldi"]
_ENDINGS: Mapping[str, ListForm] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
"""The format of each ending of a file's name; others are Kaldi's."""


@dataclass(frozen=True, slots=True)
class NBest:
    """The hypotheses of an utterance, or the reason why a line or a list cannot be read."""

    number: int
    """Number of its first line, from 1 on."""
    id: str = ""
    """Name of the utterance."""
    hypotheses: Sequence[Hypothesis] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListInput:
    """A file of n-best lists."""

    file: Path | None
    """Standard input where it is None."""
    form: ListForm
    encoding: str = "utf-8"
    columns: tuple[str, str, str] | None = None
    """Columns of utterance, hypothesis and score: names in a header, or numbers."""
    scores: Path | None = None
    """The scores of Kaldi's texts."""
    costs: bool = False
    """Whether scores are costs: lower is better."""

    @property
    def where(self) -> str:
        """Return the name of the file in errors."""
        return str(self.file or "standard input")


@dataclass(slots=True)
class _Row:
    """A hypothesis and the name of its utterance, or the reason why its line cannot be read."""

    number: int
    id: str = ""
    hypothesis: Hypothesis | None = None
    error: str | None = None


def form_of(file: Path | None, chosen: str) -> ListForm:
    """Return the format of a file: the chosen one, or that of its ending; JSON lines for standard input."""
    if chosen != "auto":
        return chosen  # type: ignore[return-value]
    return "jsonl" if file is None else _ENDINGS.get(file.suffix.lower(), "kaldi")


def read_lists(given: ListInput) -> Iterator[NBest]:
    """Yield the lists of a file, one at a time, each when the next one begins.

    The hypotheses of an utterance stand on consecutive lines. A line that cannot be read is left out of its list, and
    is yielded as a list with an error after it; so is an utterance that comes again. Raises `UsageError` where nothing
    can be read, or the scores are not those of the texts, and `OSError`.
    """
    check_encoding(given.encoding)
    if (given.form == "kaldi") != (given.scores is not None):
        problem = (
            "Kaldi's texts need their scores: --scores" if given.form == "kaldi" else "--scores is for Kaldi's texts"
        )
        raise UsageError(f"{problem} (--input-format is {given.form})")
    if given.columns is not None and given.form not in ("csv", "tsv"):
        raise UsageError(f"--columns is for CSV and tab-separated values, not for {given.form}")
    with opened_input(given.file) as stream:
        lines = read_lines(stream, given.encoding)
        if given.form == "jsonl":
            yield from _from_json_lines(lines, given.costs)
        else:
            yield from _grouped(_rows(lines, given))


def _rows(lines: Iterator[Line], given: ListInput) -> Iterator[_Row]:
    if given.form == "kaldi":
        assert given.scores is not None
        with given.scores.open("rb") as stream:
            yield from _kaldi_rows(lines, read_lines(stream, given.encoding), given)
        return
    for number, values, error in _table_rows(lines, given):
        yield _Row(number, error=error) if error is not None else _row(number, *values, costs=given.costs)


def _table_rows(lines: Iterator[Line], given: ListInput) -> Iterator[tuple[int, Sequence[str], str | None]]:
    """Yield the number, the three values, and the error of each row of CSV or tab-separated values."""
    if given.form == "csv":
        columns = given.columns or ("utterance", "hypothesis", "score")
        advice = "--columns names those of utterance, hypothesis and score"
        for record in read_columns(lines, [[each] for each in columns], given.where, advice):
            yield record.number, record.values, record.error
        return
    places = _tsv_places(lines, given)
    for line in lines:
        cells = line.text.split("\t")
        if line.error is not None or not line.text.strip():
            if line.error is not None:
                yield line.number, (), line.error
        elif len(cells) <= max(places):
            yield line.number, (), f"there are {len(cells)} columns, and column {max(places) + 1} is needed (--columns)"
        else:
            yield line.number, [cells[place] for place in places], None


def _tsv_places(lines: Iterator[Line], given: ListInput) -> list[int]:
    """Return the indices of the columns of tab-separated values; names take the first line as the header."""
    columns = given.columns or ("1", "2", "3")
    if all(each.isdecimal() for each in columns):
        if "0" in columns:
            raise UsageError("--columns: columns are numbered from 1 on, not 0")
        return [int(each) - 1 for each in columns]
    names = [name.strip() for name in next(lines, Line(1)).text.split("\t")]
    for each in columns:
        if each not in names:
            raise UsageError(f"{given.where}, line 1: the header has no column {each!r}, but {', '.join(names)}")
    return [names.index(each) for each in columns]


def _kaldi_rows(lines: Iterator[Line], scores: Iterator[Line], given: ListInput) -> Iterator[_Row]:
    """Yield the hypotheses of the lines `utterance-N words` of a text and `utterance-N score` of another file."""
    texts, numbers = _filled(lines), _filled(scores)
    for line in texts:
        score = next(numbers, None)
        where = f"{given.where}, line {line.number}"
        key, *text = line.text.split(None, 1)
        if score is None:
            raise UsageError(f"{where}: {given.scores} has no score for {key!r}, and ends before")
        fields = score.text.split()
        if fields[0] != key:
            raise UsageError(
                f"{where}: the text is that of {key!r}, but line {score.number} of {given.scores} has the "
                f"score of {fields[0]!r}; both need the same order"
            )
        if (error := line.error or score.error) is not None:
            yield _Row(line.number, error=error)
        elif not ends_with_number(key):
            yield _Row(line.number, error=f"{key!r} does not end with the number of a hypothesis, such as {key}-1")
        elif len(fields) != 2:
            yield _Row(line.number, error=f"line {score.number} of {given.scores} has {len(fields)} fields, not 2")
        else:
            yield _row(line.number, key.rpartition("-")[0], "".join(text).strip(), fields[1], costs=given.costs)
    if (score := next(numbers, None)) is not None:
        raise UsageError(f"{given.where} ends before line {score.number} of {given.scores}, {score.text!r}")


def _filled(lines: Iterator[Line]) -> Iterator[Line]:
    return (line for line in lines if line.text.strip())


def ends_with_number(key: str) -> bool:
    """Return whether a key of Kaldi's n-best lists has the number of a hypothesis: `utterance-3`."""
    name, _, number = key.rpartition("-")
    return bool(name) and number.isdecimal()


def _row(number: int, name: str, text: str, score: str, *, costs: bool) -> _Row:
    if not name.strip():
        return _Row(number, error="the name of the utterance is empty")
    try:
        value = float(score)
    except ValueError:
        return _Row(number, error=f"the score {score[:80]!r} is no number")
    if not math.isfinite(value):
        return _Row(number, error=f"the score {score[:80]!r} is not finite")
    return _Row(number, name.strip(), Hypothesis(text, -value if costs else value))


@dataclass(slots=True)
class _Group:
    """The list that is being read."""

    id: str
    number: int
    hypotheses: list[Hypothesis] = field(default_factory=list)
    full: bool = False

    def n_best(self) -> NBest:
        if self.full:
            return NBest(self.number, self.id, error=f"the list has more than {MAX_HYPOTHESES} hypotheses")
        return NBest(self.number, self.id, self.hypotheses)


def _grouped(rows: Iterable[_Row]) -> Iterator[NBest]:
    """Yield lists of consecutive rows of an utterance, and after each list the rows that cannot be read."""
    names: dict[str, int] = {}
    group: _Group | None = None
    repeated = ""
    wrong: list[NBest] = []
    for row in rows:
        if row.hypothesis is None:
            wrong.append(NBest(row.number, error=row.error))
            if group is None or len(wrong) >= MAX_HYPOTHESES:
                yield from wrong
                wrong = []
            continue
        if row.id == repeated:
            continue
        if group is None or row.id != group.id:
            if group is not None:
                yield group.n_best()
            yield from wrong
            group, wrong, repeated = None, [], ""
            if row.id in names:
                repeated = row.id
                where = f"its hypotheses begin on line {names[row.id]}, and must be on consecutive lines"
                yield NBest(row.number, row.id, error=f"the utterance {row.id!r} comes again: {where}")
                continue
            names[row.id] = row.number
            group = _Group(row.id, row.number)
        group.full = group.full or len(group.hypotheses) == MAX_HYPOTHESES
        if not group.full:
            group.hypotheses.append(row.hypothesis)
    if group is not None:
        yield group.n_best()
    yield from wrong


def _from_json_lines(lines: Iterator[Line], costs: bool) -> Iterator[NBest]:
    names: dict[str, int] = {}
    for line in lines:
        if line.error is None and not line.text.strip():
            continue
        try:
            found = _json_list(line, costs)
            if (before := names.setdefault(found.id, line.number)) != line.number:
                raise ValueError(f"the utterance {found.id!r} is that of line {before} too")
        except ValueError as error:
            yield NBest(line.number, error=str(error))
        else:
            yield found


def _json_list(line: Line, costs: bool) -> NBest:
    """Return the list of a line `{"id": ..., "hypotheses": [{"text": ..., "score": ...}]}`; raises `ValueError`."""
    content = _json_object(line)
    name, given = content.get("id", line.number), content.get("hypotheses")
    if not isinstance(name, (str, int)) or name is True or name is False:
        raise ValueError("id must be a text or a whole number")
    if not isinstance(given, list) or not given:
        raise ValueError('hypotheses must be a list of one or more objects {"text": ..., "score": ...}')
    if len(given) > MAX_HYPOTHESES:
        raise ValueError(f"the list has more than {MAX_HYPOTHESES} hypotheses")
    hypotheses = [_json_hypothesis(place, each, costs) for place, each in enumerate(given, 1)]
    return NBest(line.number, str(name), hypotheses)


def _json_object(line: Line) -> Mapping[str, object]:
    if line.error is not None:
        raise ValueError(line.error)
    try:
        content = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError("this is no JSON object")
    return content


def _json_hypothesis(place: int, given: object, costs: bool) -> Hypothesis:
    text = given.get("text") if isinstance(given, dict) else None
    score = given.get("score") if isinstance(given, dict) else None
    if not isinstance(text, str):
        raise ValueError(f"hypothesis {place} has no text")
    if isinstance(score, bool) or not isinstance(score, (int, float)):
        raise ValueError(f"hypothesis {place} has no score that is a number")
    try:
        value = float(score)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"the score of hypothesis {place} is not finite")
    return Hypothesis(text, -value if costs else value)


def read_references(file: Path, encoding: str) -> Mapping[str, str]:
    """Return the reference of each utterance, by its name.

    JSON lines are `{"id": ..., "text": ...}`, CSV has the columns `utterance` and `reference`, tab-separated values
    have both without a header, and other files are Kaldi's: `utterance words`. Raises `UsageError` for a line that
    cannot be read and for an utterance that comes again, and `OSError`.
    """
    check_encoding(encoding)
    references: dict[str, str] = {}
    with file.open("rb") as stream:
        for number, name, text in _reference_rows(read_lines(stream, encoding), form_of(file, "auto"), file):
            if name in references:
                raise UsageError(f"{file}, line {number}: the utterance {name!r} comes again")
            references[name] = text
    if not references:
        raise UsageError(f"{file} has no references")
    return references


def _reference_rows(lines: Iterator[Line], form: ListForm, file: Path) -> Iterator[tuple[int, str, str]]:
    if form == "csv":
        columns = (("utterance", "id"), ("reference", "text"))
        for record in read_columns(lines, columns, str(file), "the columns are utterance and reference"):
            if record.error is not None:
                raise UsageError(f"{file}, line {record.number}: {record.error}")
            yield record.number, record.values[0].strip(), record.values[1]
        return
    split = _json_reference if form == "jsonl" else _split_at("\t" if form == "tsv" else None)
    for line in _filled(lines):
        try:
            if line.error is not None:
                raise ValueError(line.error)
            yield line.number, *split(line)
        except ValueError as error:
            raise UsageError(f"{file}, line {line.number}: {error}") from None


def _json_reference(line: Line) -> tuple[str, str]:
    content = _json_object(line)
    name, text = content.get("id", line.number), content.get("text")
    if not isinstance(name, (str, int)) or not isinstance(text, str):
        raise ValueError('a reference is {"id": ..., "text": ...}')
    return str(name), text


def _split_at(separator: str | None) -> Callable[[Line], tuple[str, str]]:
    def split(line: Line) -> tuple[str, str]:
        name, *rest = line.text.strip().split(separator, 1)
        if separator is not None and not rest:
            raise ValueError("there is no tab between the utterance and its reference")
        return name.strip(), rest[0] if rest else ""

    return split
