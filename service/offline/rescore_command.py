"""`softserve rescore`: rank the n-best lists of a file, or tune the weights of the ranking."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal, TextIO

import tyro
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.decoding.error_rate_training import RatedList, rated_list, tune
from models.decoding.rescoring import MAX_WEIGHT, Weights
from models.decoding.word_errors import ListErrors, WordErrors
from models.operations.language import SCORE
from models.operations.validation import named_sentence
from service.offline.asked import Asked
from service.offline.n_best import ListInput, NBest, form_of, read_lists, read_references
from service.offline.options import FileOptions, ModelOptions, UsageError
from service.offline.outputs import Shown, csv_line, line_of, opened_output
from service.offline.progress import Progress
from service.offline.rescoring import ErrorLog, ListScores, RankedList, log_probabilities, ranked
from service.offline.running import load_model

__all__ = ["RescoreOptions", "rescore"]

_HEADER = {
    False: ("utterance", "hypothesis"),
    True: ("utterance", "rank", "total", "score", "log_probability", "words", "hypothesis"),
}
"""Columns of the best hypotheses, and of all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RescoreOptions:
    """Lists, weights, references and outputs."""

    lm_weight: float | None = None
    """Weight of the model's log-probability (base e), by default 1."""
    length_reward: float | None = None
    """Added for each word, by default 0."""
    weights: Path | None = None
    """File of weights that --tune has written, instead of both."""
    references: Path | None = None
    """File of the texts that were said or written: word error rates of the first pass, after rescoring, and of the best
    hypotheses that there are (oracle) go to standard error. JSON lines {"id": ..., "text": ...}, CSV with the columns
    utterance and reference, tab-separated values of both, or lines of Kaldi: utterance words."""
    tune: Path | None = None
    """Find the weights with the fewest word errors instead, for which --references are needed, and write them to this
    file."""
    input_format: Literal["auto", "tsv", "csv", "jsonl", "kaldi"] = "auto"
    """Format of the lists, by default that of the file's ending: .tsv, .csv, .jsonl, others are Kaldi's; standard input
    has JSON lines."""
    columns: Annotated[tuple[str, str, str] | None, tyro.conf.arg(metavar="UTTERANCE HYPOTHESIS SCORE")] = None
    """Columns of CSV and tab-separated values: their names in the header, by default utterance, hypothesis and score,
    or their numbers, by default 1, 2 and 3 in tab-separated values, which have a header where names are given."""
    scores: Path | None = None
    """The scores of Kaldi's texts, whose lines are: utterance-N words. The file has the lines: utterance-N score."""
    costs: bool = False
    """Scores are costs, such as Kaldi's: lower is better."""
    encoding: str = "utf-8"
    """Encoding of all inputs, such as cp1252; UTF-16 is known by its byte order mark."""
    all: bool = False
    """Write all hypotheses with their scores, best first, instead of the best one of each list."""
    output: Path | None = None
    """File to write, by default standard output."""
    format: Literal["auto", "table", "tsv", "csv", "jsonl", "kaldi"] = "auto"
    """Format of the output, by default that of the file's ending; on a terminal a table, elsewhere tab-separated
    values."""
    resume: bool = False
    """Go on after the complete lines that --output has."""
    truncate: bool = False
    """Cut texts that are too long, which are refused otherwise."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for options that exclude each other."""
        weighted = self.lm_weight is not None or self.length_reward is not None
        if self.weights is not None and weighted:
            raise UsageError("give either --weights, or --lm-weight and --length-reward")
        if self.tune is not None:
            if self.references is None:
                raise UsageError("--tune needs --references, with which word errors are counted")
            if weighted or self.weights or self.output or self.all or self.resume:
                raise UsageError(
                    "--tune finds weights and ranks nothing: leave out --lm-weight, --length-reward, --weights, "
                    "--output, --all and --resume"
                )
        if self.resume and self.references is not None:
            raise UsageError("--references counts the errors of a whole run: leave out --resume")

    def input(self, file: Path | None) -> ListInput:
        """Return the input."""
        return ListInput(
            file=file,
            form=form_of(file, self.input_format),
            encoding=self.encoding,
            columns=self.columns,
            scores=self.scores,
            costs=self.costs,
        )


_MODEL, _RESCORING = ModelOptions(), RescoreOptions()


def rescore(
    file: Annotated[
        Path | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[FILE]", help="A file of n-best lists, by default standard input."),
    ] = None,
    *,
    model: Annotated[ModelOptions, tyro.conf.OmitArgPrefixes] = _MODEL,
    rescoring: Annotated[RescoreOptions, tyro.conf.OmitArgPrefixes] = _RESCORING,
) -> int:
    """Rank the hypotheses of n-best lists by a language model and the scores of a first pass.

    total = score + lm_weight * log-probability + length_reward * words

    Lists are CSV or tab-separated values with the columns utterance, hypothesis and score, the hypotheses of an
    utterance on consecutive lines; JSON lines {"id": ..., "hypotheses": [{"text": ..., "score": ...}]}; or Kaldi's
    lines "utterance-N words" with --scores.

    softserve rescore dev.csv --references dev-references.csv --tune weights.json

    softserve rescore test.csv --weights weights.json --output best.tsv
    """
    source = None if file == Path("-") else file
    if source is not None and (source.is_dir() or not source.exists()):
        raise UsageError(f"{source} is no file")
    asked = Asked.of(SCORE, {"truncate": rescoring.truncate})
    references = None if rescoring.references is None else read_references(rescoring.references, rescoring.encoding)
    lists = read_lists(rescoring.input(source))
    if rescoring.tune is not None:
        assert references is not None
        return _tune(asked, lists, references, model, rescoring, rescoring.tune)
    return _rank(asked, lists, references, model, rescoring)


# ---- ranking ----


def _rank(
    asked: Asked,
    lists: Iterator[NBest],
    references: Mapping[str, str] | None,
    model: ModelOptions,
    options: RescoreOptions,
) -> int:
    weights, of = _weights(options)
    first = list(islice(lists, 1))  # an input that cannot be read at all leaves no output
    with _opened(options) as (output, done, form):
        lists = chain(first, lists)
        skipped = sum(1 for _ in islice(lists, done))
        if skipped < done:
            raise UsageError(f"{options.output} has {done} lines, more than the {skipped} lists of the input")
        loaded, threads = load_model(asked.name, model)
        _warn_of_another_model(of, loaded.manifest.name)
        if form == "csv":
            output.write(csv_line(_HEADER[options.all]))
        log, measured, progress = ErrorLog(), _Measured(references), Progress(None, done, "lists")
        for one in log_probabilities(loaded, asked, lists, threads):
            log.count(one)
            output.write("".join(_lines(one, weights, form, options.all, measured)))
            output.flush()
            progress.add(1)
        progress.end()
    measured.say()
    return log.finish()


def _weights(options: RescoreOptions) -> tuple[Weights, str | None]:
    """Return the weights, and the model that they were tuned for where they are those of a file."""
    if options.weights is not None:
        read = WeightsFile.read(options.weights)
        return Weights(lm_weight=read.lm_weight, length_reward=read.length_reward), read.model
    lm_weight = 1.0 if options.lm_weight is None else options.lm_weight
    try:
        return Weights(lm_weight=lm_weight, length_reward=options.length_reward or 0.0), None
    except ValueError as error:
        raise UsageError(f"--{str(error).replace('_', '-')}") from None


def _warn_of_another_model(tuned_for: str | None, name: str) -> None:
    if tuned_for is not None and tuned_for.partition(":")[0] != name:
        print(f"softserve: the weights were tuned for {tuned_for}, and the model is {name}", file=sys.stderr)


@contextmanager
def _opened(options: RescoreOptions) -> Iterator[tuple[TextIO, int, str]]:
    """Yield the output, the number of lists that it has already, and the format; raises `UsageError`."""
    output, form = options.output, options.format
    if form == "auto" and output is not None and output.suffix.lower() == ".csv":
        form = "csv"
    plain = form if form in ("auto", "table", "jsonl") else "tsv"
    if options.resume and (form == "csv" or (options.all and form != "jsonl" and not _is_json(output))):
        raise UsageError("--resume needs an output with a line for each list: JSON lines, or the best hypotheses")
    if options.all and form == "kaldi":
        raise UsageError("Kaldi's format has the best hypothesis of each list; --all needs tsv, csv or jsonl")
    with opened_output(FileOptions(output=output, resume=options.resume, format=plain)) as (file, done, used):
        yield file, done, form if form in ("csv", "kaldi") else used


def _is_json(output: Path | None) -> bool:
    return output is not None and output.suffix.lower() in (".jsonl", ".ndjson")


def _lines(one: ListScores, weights: Weights, form: str, every: bool, measured: "_Measured") -> Iterator[str]:
    """Yield the lines of a list; one that cannot be read has the line of a hypothesis without words."""
    if one.given.error is not None:
        name, error = one.given.id, one.given.error
        if form == "jsonl":
            failure = {**({"id": name} if name else {}), "line": one.given.number, "error": error}
            yield line_of(Shown((), lambda: failure), form) + "\n"
        elif not every:
            yield _line((name, ""), form)
        return
    found = ranked(one, weights)
    measured.add(found)
    if form == "jsonl":
        yield line_of(Shown((), lambda: _content(found, every)), form) + "\n"
    elif every:
        for rank, each in enumerate(found.hypotheses, 1):
            cells = (one.given.id, rank, each.total, each.score, each.log_probability, each.words, each.text)
            yield _line(cells, form)
    else:
        yield _line((one.given.id, found.hypotheses[0].text), form)


def _content(found: RankedList, every: bool) -> Mapping[str, object]:
    records = found.records()
    return {"id": found.given.id, **({"hypotheses": records} if every else records[0])}


def _line(cells: Sequence[object], form: str) -> str:
    if form == "csv":
        return csv_line(cells)
    if form == "kaldi":
        return " ".join(str(cells[0]).split() + str(cells[1]).split()) + "\n"
    return line_of(Shown(cells, dict), form) + "\n"


# ---- word error rates ----


class _Measured:
    """Counts the word errors of lists whose references are known."""

    def __init__(self, references: Mapping[str, str] | None) -> None:
        self._references = references
        self._errors, self._lists, self._without = ListErrors(), 0, 0

    def add(self, found: RankedList) -> None:
        """Count the word errors of a list."""
        if self._references is None:
            return
        reference = self._references.get(found.given.id)
        if reference is None:
            self._without += 1
            return
        self._errors += found.errors(reference)
        self._lists += 1

    def say(self) -> None:
        """Write the rates to standard error."""
        if self._references is None:
            return
        _say_unmatched(self._without, len(self._references) - self._lists)
        if self._lists:
            errors = self._errors
            rates = (("first pass", errors.first_pass), ("rescored", errors.rescored), ("oracle", errors.oracle))
            _say_rates(self._lists, rates)


def _say_unmatched(lists: int, references: int) -> None:
    if lists:
        print(f"softserve: {lists:,} lists have no reference, and are not counted", file=sys.stderr)
    if references:
        print(f"softserve: {references:,} references have no list, and are not counted", file=sys.stderr)


def _say_rates(lists: int, rates: Sequence[tuple[str, WordErrors]]) -> None:
    counted = f"{lists:,} lists, {rates[0][1].words:,} words of references"
    shown = ", ".join(f"{name} {100 * each.rate:.2f} % ({each.errors:,})" for name, each in rates)
    print(f"softserve: {counted}; word error rate (errors): {shown}", file=sys.stderr)


# ---- tuning ----


class Rates(BaseModel):
    """Word error rates of the lists that weights were tuned on, fractions."""

    model_config = ConfigDict(extra="forbid")

    first_pass: float
    rescored: float
    oracle: float


class WeightsFile(BaseModel):
    """A file of weights."""

    model_config = ConfigDict(extra="forbid")

    lm_weight: Annotated[float, Field(ge=0, le=MAX_WEIGHT)]
    length_reward: Annotated[float, Field(ge=-MAX_WEIGHT, le=MAX_WEIGHT)] = 0.0
    model: str | None = None
    """Name and version of the model that they were tuned for."""
    lists: int | None = None
    """Lists that they were tuned on."""
    word_error_rate: Rates | None = None

    @classmethod
    def read(cls, file: Path) -> "WeightsFile":
        """Read a file; raises `UsageError` for one that holds no weights, and `OSError`."""
        try:
            return cls.model_validate_json(file.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            what = "this is not JSON" if first["type"] == "json_invalid" else named_sentence(first, list(first["loc"]))
            raise UsageError(f"{file}: {what}") from None


def _tune(
    asked: Asked,
    lists: Iterable[NBest],
    references: Mapping[str, str],
    model: ModelOptions,
    options: RescoreOptions,
    file: Path,
) -> int:
    """Find weights, print them, and write them to a file; return the exit status."""
    if not file.parent.is_dir():
        raise UsageError(f"--tune: {file.parent} is no directory")
    loaded, threads = load_model(asked.name, model)
    log, progress = ErrorLog(), Progress(None, 0, "lists")
    rated: list[RatedList] = []
    words = without = 0
    for one in log_probabilities(loaded, asked, lists, threads):
        log.count(one)
        progress.add(1)
        reference = references.get(one.given.id)
        if one.given.error is None and reference is None:
            without += 1
        elif one.given.error is None and reference is not None:
            rated.append(rated_list(one.given.hypotheses, one.log_probabilities, reference))
            words += len(reference.split())
    progress.end()
    _say_unmatched(without, len(references) - len(rated))
    if not rated:
        raise UsageError(f"no list of the input has a reference in {options.references}")
    if not words:
        raise UsageError(f"the references in {options.references} have no words")
    tuned = tune(rated)
    first, best = (WordErrors(sum(int(number(each)) for each in rated), words) for number in (_first, _least))
    after = WordErrors(tuned.errors, words)
    found = WeightsFile(
        lm_weight=tuned.weights.lm_weight,
        length_reward=tuned.weights.length_reward,
        model=f"{loaded.manifest.name}:{loaded.manifest.version}",
        lists=len(rated),
        word_error_rate=Rates(first_pass=first.rate, rescored=after.rate, oracle=best.rate),
    )
    file.write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
    print(json.dumps({"lm_weight": found.lm_weight, "length_reward": found.length_reward}))
    _say_rates(len(rated), (("first pass", first), ("rescored", after), ("oracle", best)))
    return log.finish()


def _first(one: RatedList) -> int:
    return int(one.errors[0])


def _least(one: RatedList) -> int:
    return int(one.errors.min())
