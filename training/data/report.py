"""The data report: what in a user's texts, labels and pairs is likely to be a mistake.

It reads texts, not files, so that it is the same for every format and task.
"""

import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeVar

from models.text.language import detected_languages
from training.data.near_copies import near_copies

__all__ = ["DataReport", "Expected", "Finding", "Texts", "examined", "likely_language", "normalized"]

TextT = TypeVar("TextT")

_SHOWN = 3
"""Examples that a finding shows."""
_FEW = 5
"""Texts below which a class is called rare."""
_RATIO, _RATIO_CHARACTERS = 4.0, 20
"""A pair is misaligned where one side has this many times the characters of the other, relative to the usual ratio, and
one side has at least so many characters."""
_LANGUAGE_SAMPLE, _LANGUAGE_CHARACTERS = 200, 40
"""Texts whose language is detected, and characters that such a text must have."""
_LANGUAGE_CERTAIN = 0.95
_TOKENS_A_WORD = 1.4
"""Tokens that a word usually has, to estimate which texts are too long."""
_LEAK_WORDS = 3
"""Words that a text must have to count as known from the training split: short ones repeat by chance."""

_COMPARED = 20_000
"""Texts of a split that are compared with others."""

_MOJIBAKE = re.compile("[ÃÂ][\u0080-\u00bf\u2013-\u203a€™Šš]|â€[\u0080-\u00bf™œ\u009d\u201c\u201d]|ï»¿")
_SECRETS: Mapping[str, re.Pattern[str]] = {
    "e-mail addresses": re.compile(r"\b[\w.+-]+@[\w-]+\.[a-z]{2,}\b", re.IGNORECASE),
    "IBANs": re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}\b"),
    "passwords": re.compile(r"\b(?:password|passwd|passwort|kennwort)\s*[:=]\s*\S+", re.IGNORECASE),
    "API keys": re.compile(
        r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{30,}|sk-[\w-]{20,}|xox[abp]-[\w-]{10,}|eyJ[\w-]{15,}\.[\w-]{15,})"
        r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts:
    """The texts of a split."""

    columns: Mapping[str, Sequence[str]]
    """The texts of `text`, or of `source` and `target`, which have as many; names of image files of `image`."""
    labels: Sequence[tuple[str, ...]] | None = None
    """The classes of each text, if there are classes."""
    contents: Sequence[str] | None = None
    """Hashes of image files, which copies share; without them copies are texts that differ in case and punctuation."""

    @property
    def first(self) -> Sequence[str]:
        """Return the column whose texts should not be in two splits."""
        return next(iter(self.columns.values()))

    def keys(self) -> list[str]:
        """Return what copies in the first column have in common, for each row."""
        return list(self.contents) if self.contents is not None else list(map(normalized, self.first))


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """How the texts of a task should be."""

    max_tokens: int | None = None
    """The longest text that is read."""
    languages: Mapping[str, str] = field(default_factory=dict)
    """The language that a column should be in, where the recipe says it."""
    apart: bool = True
    """Whether no training text should be in other splits."""
    aligned: bool = False
    """Whether the columns are translations of each other, of similar lengths."""
    images: bool = False
    """Whether the rows are images."""

    @property
    def noun(self) -> str:
        """Return the plural noun for rows."""
        return "images" if self.images else "texts"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that may be wrong in the data."""

    kind: str
    """A short name, such as `conflicting-labels`."""
    level: Literal["warning", "note"]
    """A warning is an error with `data.strict`."""
    count: int
    """Number of texts or classes that are concerned."""
    message: str
    """The finding as a noun phrase, such as `texts that occur with different labels`."""
    examples: Sequence[str] = ()
    """Some of them; none of what looks like a secret."""

    def line(self) -> str:
        """Return the finding as a line, without examples."""
        return f"{self.level}: {self.message}: {self.count:,}"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataReport:
    """Numbers and findings about the splits of a recipe."""

    name: str
    noun: str
    """The plural noun for what the data consist of, such as `texts`."""
    splits: Mapping[str, int]
    """Number of texts in each split."""
    classes: Mapping[str, int]
    """Number of training texts of each class, most frequent first."""
    lengths: Mapping[str, Mapping[str, float]]
    """For each column of the training split the mean, median, 95th percentile and largest number of words."""
    histograms: Mapping[str, Sequence[tuple[int, int]]]
    """For each column pairs of a number of words and how many training texts have at most so many, and more than the
    number before."""
    languages: Mapping[str, str | None]
    """The likely language of each column, None where languages were not detected."""
    findings: Sequence[Finding] = field(default_factory=tuple)

    @property
    def warnings(self) -> list[Finding]:
        """Return the findings that `data.strict` makes errors."""
        return [each for each in self.findings if each.level == "warning"]

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield f"{self.name}: {', '.join(f'{count:,} {self.noun} of {split}' for split, count in self.splits.items())}"
        if self.classes:
            (most, largest), (least, smallest) = next(iter(self.classes.items())), list(self.classes.items())[-1]
            yield f"{len(self.classes)} classes, from {largest:,} {self.noun} ({most}) to {smallest:,} ({least})"
        for column, lengths in self.lengths.items():
            language = f", likely language {self.languages[column]}" if self.languages.get(column) else ""
            yield (
                f"{column}: {lengths['median']:.0f} words in the median, {lengths['p95']:.0f} in 95 % of the texts, "
                f"at most {lengths['max']:.0f}{language}"
            )
        for finding in self.findings:
            shown = f", such as {'; '.join(finding.examples)}" if finding.examples else ""
            yield f"{finding.line()}{shown}"
        if not self.findings:
            yield "nothing suspicious was found"

    def brief(self) -> Iterator[str]:
        """Yield the warnings without examples, each a line."""
        for finding in self.warnings:
            yield finding.line()

    def json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2)


def normalized(text: str) -> str:
    """Return a text's letters and digits in lower case, with single spaces between words."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def likely_language(texts: Sequence[str]) -> str | None:
    """Return the ISO 639 code of the language that most texts are in, None for texts without letters.

    Short texts are joined, because the language of a few words cannot be told.
    """
    step = max(1, len(texts) // _LANGUAGE_SAMPLE)
    sample = texts[::step][:_LANGUAGE_SAMPLE]
    votes: Counter[str] = Counter()
    for start in range(0, len(sample), 10):
        found = detected_languages(". ".join(sample[start : start + 10]))
        if found:
            votes[found[0][0]] += 1
    return votes.most_common(1)[0][0] if votes else None


def examined(
    name: str,
    splits: Mapping[str, Texts],
    expected: Expected,
    *,
    quick: bool = False,
) -> DataReport:
    """Return the report on splits, of which `train` must be one.

    A `quick` one, which saves seconds, detects no language and looks for no near copies.
    """
    train, noun = splits["train"], expected.noun
    prose = {} if expected.images else train.columns
    found: dict[str, str | None] = {
        column: None if quick else likely_language(texts) for column, texts in prose.items()
    }
    should = {**{column: code for column, code in found.items() if code}, **expected.languages}
    checks: list[Callable[[], Iterable[Finding]]] = [
        lambda: _label_findings(splits, noun),
        lambda: _duplicates(train, noun),
        lambda: _leakage(splits, noun) if expected.apart else (),
        lambda: _too_long(splits, expected.max_tokens) if expected.max_tokens else (),
        lambda: _pair_findings(train) if expected.aligned else (),
        lambda: _damage(splits) if prose else (),
        lambda: _secrets(splits) if prose else (),
        lambda: () if quick or not prose else _other_languages(train, should),
        lambda: () if quick or not prose else _near_conflicts(train),
        lambda: () if quick or not prose or not expected.apart else _near_leakage(splits),
    ]
    counts = Counter(label for labels in train.labels or () for label in labels)
    return DataReport(
        name=name,
        noun=noun,
        splits={split: len(texts.first) for split, texts in splits.items()},
        classes=dict(counts.most_common()),
        lengths={column: _lengths(texts) for column, texts in prose.items()},
        histograms={column: _histogram(texts) for column, texts in prose.items()},
        languages=found,
        findings=[finding for check in checks for finding in check()],
    )


def _words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts] or [0]


def _lengths(texts: Sequence[str]) -> dict[str, float]:
    words = sorted(_words(texts))
    return {
        "mean": statistics.fmean(words),
        "median": statistics.median(words),
        "p95": words[int(0.95 * (len(words) - 1))],
        "max": words[-1],
    }


def _histogram(texts: Sequence[str], bars: int = 20) -> list[tuple[int, int]]:
    words = _words(texts)
    width = -(-sorted(words)[int(0.99 * (len(words) - 1))] // bars) or 1
    counts = Counter(min(bars, max(1, -(-count // width))) for count in words)
    return [(place * width, counts[place]) for place in range(1, bars + 1)]


def _short(text: str) -> str:
    return repr(text if len(text) <= 50 else f"{text[:47]}...")


def _finding(
    kind: str, level: Literal["warning", "note"], examples: Sequence[str], message: str, count: int | None = None
) -> Iterator[Finding]:
    """Yield a finding if there is an example, or `count` is not 0."""
    number = len(examples) if count is None else count
    if number:
        shown = tuple(examples[:_SHOWN])
        yield Finding(kind=kind, level=level, count=number, message=message, examples=shown)


def _label_findings(splits: Mapping[str, Texts], noun: str) -> Iterator[Finding]:
    train = splits["train"]
    if train.labels is None:
        return
    counts = Counter(label for labels in train.labels for label in labels)
    own: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    spelled: dict[str, str] = {}
    for texts in splits.values():
        for key, text, labels in zip(texts.keys(), texts.first, texts.labels or (), strict=True):
            own[key].add(tuple(sorted(labels)))
            spelled.setdefault(key, text)
    conflicts = [
        f"{_short(spelled[key])} is {' and '.join(sorted(', '.join(each) for each in labels))}"
        for key, labels in own.items()
        if len(labels) > 1
    ]
    yield from _finding("conflicting-labels", "warning", conflicts, f"{noun} that occur with different labels")
    single = [label for label, count in counts.items() if count == 1]
    yield from _finding("single-text-class", "warning", single, f"classes of a single training {noun[:-1]}")
    few = [f"{label} ({count})" for label, count in counts.items() if 1 < count < _FEW]
    yield from _finding("rare-class", "note", few, f"classes of fewer than {_FEW} training {noun}")
    unseen = sorted(
        {label for each in splits.values() for labels in each.labels or () for label in labels} - set(counts)
    )
    yield from _finding("untrained-class", "warning", unseen, f"classes without a training {noun[:-1]}")
    spellings = defaultdict(list)
    for label in counts:
        spellings[normalized(label.replace("_", " "))].append(label)
    alike = [" and ".join(labels) for labels in spellings.values() if len(labels) > 1]
    yield from _finding("similar-labels", "warning", alike, "labels that differ in case or punctuation only")
    joined = [
        label for label in counts if "," in label and sum(part.strip() in counts for part in label.split(",")) > 1
    ]
    yield from _finding(
        "joined-labels", "warning", joined, "labels that are lists of others, which data.multi_label: true reads so"
    )


def _duplicates(train: Texts, noun: str) -> Iterator[Finding]:
    others = list(train.columns.values())[1:]
    rows = list(zip(train.keys(), *(map(normalized, texts) for texts in others), strict=True))
    repeated = len(rows) - len(set(rows))
    noun = "pairs" if others else noun
    yield from _finding("duplicates", "note", (), f"training {noun} that are copies of others", repeated)


def _leakage(splits: Mapping[str, Texts], noun: str) -> Iterator[Finding]:
    known = set(splits["train"].keys())
    for split, texts in splits.items():
        if split == "train":
            continue
        again = [
            _short(text)
            for key, text in zip(texts.keys(), texts.first, strict=True)
            if key in known and (texts.contents is not None or key.count(" ") >= _LEAK_WORDS - 1)
        ]
        difference = "" if texts.contents is not None else ", apart from case and punctuation"
        yield from _finding(
            "leakage",
            "warning",
            again,
            f"{noun} of {split} that are training {noun} too{difference}",
        )


def _sample(texts: Sequence[TextT]) -> Sequence[TextT]:
    return texts[:: -(-len(texts) // _COMPARED) or 1]


def _of_some(texts: Sequence[object]) -> str:
    return f", of {len(_sample(texts)):,} that were looked at" if len(texts) > _COMPARED else ""


def _long_enough(text: str) -> bool:
    return text.count(" ") >= _LEAK_WORDS - 1


def _near_conflicts(train: Texts) -> Iterator[Finding]:
    if train.labels is None:
        return
    rows = [
        (text, normalized(text), ", ".join(sorted(labels)))
        for text, labels in _sample(list(zip(train.columns["text"], train.labels, strict=True)))
    ]
    rows = [row for row in rows if _long_enough(row[1])]
    keys, labels = [key for _, key, _ in rows], [label for _, _, label in rows]
    found = near_copies(keys, keys, labels, labels)
    pairs = dict.fromkeys(tuple(sorted((each.place, each.other))) for each in found)
    examples = [
        f"{_short(rows[one][0])} is {labels[one]} and {_short(rows[other][0])} is {labels[other]}"
        for one, other in pairs
    ]
    message = f"training texts that are nearly copies of texts of another class{_of_some(train.labels)}"
    yield from _finding("near-conflicts", "note", examples, message, len(found))


def _near_leakage(splits: Mapping[str, Texts]) -> Iterator[Finding]:
    first = next(iter(splits["train"].columns))
    known = _sample(splits["train"].columns[first])
    keys = list(map(normalized, known))
    same = set(map(normalized, splits["train"].columns[first]))
    for split, texts in splits.items():
        if split == "train":
            continue
        some = [(text, normalized(text)) for text in _sample(texts.columns[first])]
        some = [(text, key) for text, key in some if _long_enough(key) and key not in same]
        found = near_copies([key for _, key in some], keys)
        examples = [f"{_short(some[each.place][0])} and {_short(known[each.other])}" for each in found]
        message = f"texts of {split} that are nearly copies of training texts{_of_some(texts.columns[first])}"
        yield from _finding("near-leakage", "note", examples, message)


def _every(splits: Mapping[str, Texts]) -> Iterator[str]:
    return (text for each in splits.values() for texts in each.columns.values() for text in texts)


def _too_long(splits: Mapping[str, Texts], max_tokens: int) -> Iterator[Finding]:
    most = int(max_tokens / _TOKENS_A_WORD)
    long = sum(len(text.split()) > most for text in _every(splits))
    level: Literal["warning", "note"] = "warning" if long > 0.05 * sum(1 for _ in _every(splits)) else "note"
    message = f"texts of more than {most} words, some {max_tokens} tokens, which are cut or left out"
    yield from _finding("too-long", level, (), message, long)


def _pair_findings(train: Texts) -> Iterator[Finding]:
    if len(train.columns) < 2:
        return
    pairs = list(zip(*train.columns.values(), strict=True))
    same = [_short(a) for a, b in pairs if normalized(a) == normalized(b) and len(a.split()) >= _LEAK_WORDS]
    yield from _finding("identical-sides", "warning", same, "pairs with the same text on both sides")
    usual = statistics.median(len(a) / max(1, len(b)) for a, b in pairs)
    uneven = [
        f"{_short(a)} and {_short(b)}"
        for a, b in pairs
        if max(len(a), len(b)) >= _RATIO_CHARACTERS and not usual / _RATIO <= len(a) / max(1, len(b)) <= usual * _RATIO
    ]
    yield from _finding("uneven-pairs", "warning", uneven, "pairs whose sides have very different lengths")


def _damage(splits: Mapping[str, Texts]) -> Iterator[Finding]:
    replaced = [_short(text) for text in _every(splits) if "\ufffd" in text]
    yield from _finding("replacement-characters", "warning", replaced, "texts with U+FFFD, which stands for lost bytes")
    damaged = [_short(text) for text in _every(splits) if _MOJIBAKE.search(text)]
    yield from _finding("mojibake", "warning", damaged, "texts that look like UTF-8 read in another encoding")
    empty = [text for text in _every(splits) if not normalized(text)]
    yield from _finding("no-words", "note", [_short(text) for text in empty], "texts without letters and digits")


def _secrets(splits: Mapping[str, Texts]) -> Iterator[Finding]:
    for kind, pattern in _SECRETS.items():
        count = sum(1 for text in _every(splits) if pattern.search(text))
        level: Literal["warning", "note"] = "note" if kind == "e-mail addresses" else "warning"
        yield from _finding("secrets", level, (), f"texts with what looks like {kind}, which a model can repeat", count)


def _other_languages(train: Texts, expected: Mapping[str, str]) -> Iterator[Finding]:
    for column, texts in train.columns.items():
        if column not in expected:
            continue
        long = [text for text in texts if len(text) >= _LANGUAGE_CHARACTERS]
        sample = long[:: max(1, len(long) // _LANGUAGE_SAMPLE)][:_LANGUAGE_SAMPLE]
        other = [
            f"{_short(text)} is {found[0][0]}"
            for text in sample
            if (found := detected_languages(text))
            and found[0][0] != expected[column]
            and found[0][1] > _LANGUAGE_CERTAIN
        ]
        yield from _finding(
            "other-language",
            "warning" if len(other) > 0.05 * len(sample) else "note",
            other,
            f"{column}s in another language than {expected[column]}, of {len(sample)} that were looked at",
        )
