"""How well models tell similar words apart (kernel paper, section 4.5 and Table 4).

Shapes: `V` words, `d` hidden size.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.text.tokenization import WordTokenizer
from training.search.analyses.tables import Rows
from training.tasks.language_model import LanguageModelTask

__all__ = [
    "PAIRS",
    "Comparison",
    "Located",
    "Odds",
    "Pair",
    "compare",
    "comparison_rows",
    "locate",
    "mcnemar",
    "neighbour_rows",
    "odds",
    "odds_rows",
    "read_pairs",
    "right_rows",
]

PAIRS = Path(__file__).parent / "pairs.tsv"
"""Everyday English sentences, each with a word that the words before it decide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A sentence, and the same with one word replaced by one that is easily confused with it."""

    line: int
    """Number of its line in the file."""
    right: str
    wrong: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A pair as a vocabulary sees it."""

    context: str
    """The words before the one that differs."""
    context_ids: tuple[int, ...]
    words: tuple[str, str]
    """The right and the wrong word as the sentences spell them."""
    tokens: tuple[int | None, int | None]
    """Their ids; None for one that is not in the vocabulary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Odds:
    """Probabilities of the two words after their context."""

    right: float
    wrong: float

    @property
    def log_odds(self) -> float:
        """Return `log p(right) - log p(wrong)`, in nats; above 0 where the model chooses rightly."""
        if not self.wrong:
            return math.inf if self.right else 0.0
        return math.log(self.right / self.wrong) if self.right else -math.inf


def read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of a file, one a line: right sentence, tab, wrong sentence; skip empty and `#` lines.

    Raises `ValueError` naming the line that is none, and where there is no pair at all.
    """
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        sentences = [sentence.strip() for sentence in line.split("\t")]
        if len(sentences) != 2:
            raise ValueError(f"{path.name}, line {number}: {len(sentences)} columns, not two sentences and a tab")
        pairs.append(Pair(line=number, right=sentences[0], wrong=sentences[1]))
    if not pairs:
        raise ValueError(f"{path.name} has no pair of sentences")
    return pairs


def locate(pair: Pair, tokenizer: WordTokenizer) -> Located:
    """Find the word that differs; raises `ValueError` naming the line unless it is exactly one."""
    ids, words = tokenizer.split(pair.right)
    wrong_ids, wrong_words = tokenizer.split(pair.wrong)
    places = [place for place, both in enumerate(zip(words, wrong_words, strict=False)) if both[0] != both[1]]
    if len(words) != len(wrong_words) or len(places) != 1:
        raise ValueError(f"line {pair.line}: {pair.right!r} and {pair.wrong!r} do not differ in exactly one word")
    (place,) = places
    known = (None if token == tokenizer.unknown_id else token for token in (ids[place], wrong_ids[place]))
    right, wrong = known
    if right is not None and right == wrong:
        raise ValueError(f"line {pair.line}: {words[place]!r} and {wrong_words[place]!r} are one word to the model")
    return Located(
        context=" ".join(words[:place]),
        context_ids=tuple(ids[:place]),
        words=(words[place], wrong_words[place]),
        tokens=(right, wrong),
    )


@torch.no_grad()
def odds(task: LanguageModelTask, located: Located) -> Odds | None:
    """Return a model's log-odds of both words, in evaluation mode; None if one is not in its vocabulary."""
    right, wrong = located.tokens
    if right is None or wrong is None:
        return None
    inputs = torch.tensor([[task.tokenizer.end_id, *located.context_ids]], device=task.device)
    outputs, _ = task.model(inputs, task.model.initial_state(1))
    probabilities = task.model.output_layer.log_prob(outputs[:, -1]).double().exp()[0]
    return Odds(right=float(probabilities[right]), wrong=float(probabilities[wrong]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A pair under several runs."""

    pair: Pair
    located: Located
    """Located in the vocabulary of the first run."""
    odds: Mapping[str, Odds | None]
    """Odds of each run; None if a word is not in its vocabulary."""

    @property
    def spread(self) -> float:
        """Return the largest difference of two runs' log-odds."""
        known = [each.log_odds for each in self.odds.values() if each is not None]
        return max(known) - min(known) if known and max(known) > min(known) else 0.0

    @property
    def worst(self) -> float:
        return min((each.log_odds for each in self.odds.values() if each is not None), default=math.inf)


def compare(tasks: Mapping[str, LanguageModelTask], pairs: Iterable[Pair]) -> list[Comparison]:
    """Compare every pair under every run; pairs on which the runs' log-odds differ most come first.

    Where they do not differ, with one run above all, those come first that a run gets most wrong.
    """
    comparisons = []
    for pair in pairs:
        located = {run: locate(pair, task.tokenizer) for run, task in tasks.items()}
        found = {run: odds(task, located[run]) for run, task in tasks.items()}
        comparisons.append(Comparison(pair=pair, located=next(iter(located.values())), odds=found))
    return sorted(comparisons, key=lambda each: (-each.spread, each.worst))


def odds_rows(comparisons: Sequence[Comparison]) -> Rows:
    """Return all numbers; those of words that are not in a run's vocabulary are empty."""
    runs = list(comparisons[0].odds)
    columns = [f"{run}: {number}" for run in runs for number in ("p(right)", "p(wrong)", "log-odds")]
    rows = Rows(["line", "sentence", "right", "wrong", "spread", *columns])
    for each in comparisons:
        numbers: list[float | None] = []
        for found in each.odds.values():
            numbers += [None] * 3 if found is None else [found.right, found.wrong, found.log_odds]
        rows.add([each.pair.line, each.pair.right, *each.located.words, each.spread, *numbers])
    return rows


def comparison_rows(comparisons: Sequence[Comparison]) -> Rows:
    """Return a table for the terminal: a column for each run."""
    rows = Rows(["context", "right, wrong", *comparisons[0].odds])
    for each in comparisons:
        cells = (
            f"{found.right:.2g}, {found.wrong:.2g} ({found.log_odds:+.1f})" if found else None
            for found in each.odds.values()
        )
        rows.add([each.located.context, ", ".join(each.located.words), *cells])
    return rows


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the p-value of McNemar's exact test that two models are equally often right, two-sided.

    The numbers are of the examples that only one of them gets right.
    """
    from scipy.stats import binomtest

    disagreements = only_first + only_second
    return float(binomtest(only_first, disagreements).pvalue) if disagreements else 1.0


def right_rows(comparisons: Sequence[Comparison]) -> Rows:
    """Return how many pairs each run gets right, and McNemar's test against the first run."""
    right = {
        run: [(found := each.odds[run]) is not None and found.log_odds > 0 for each in comparisons]
        for run in comparisons[0].odds
    }
    first, *_ = right.values()
    rows = Rows(["run", "right", "pairs", "only the first run right", "only this run right", "McNemar p"])
    for run, own in right.items():
        lost = sum(a and not b for a, b in zip(first, own, strict=True))
        won = sum(b and not a for a, b in zip(first, own, strict=True))
        rows.add([run, sum(own), len(own), lost, won, None if own is first else mcnemar(lost, won)])
    return rows


def neighbour_rows(task: LanguageModelTask, pairs: Iterable[Pair], count: int = 5) -> Rows:
    """Return for each word of the pairs those with the largest inner product in the projection matrix.

    `rank` is the place of the rival, the word that it might be confused with. Of an untied layer it is the first
    component's matrix.
    """
    rivals: dict[tuple[int, int], None] = {}
    for pair in pairs:
        first, second = locate(pair, task.tokenizer).tokens
        if first is not None and second is not None:
            rivals |= {(first, second): None, (second, first): None}
    weight = task.model.output_layer.class_weights()[0]
    special = (task.tokenizer.unknown_id, task.tokenizer.end_id)
    rows = Rows(["word", "rival", "rank", "nearest words, with their inner product"])
    for word, rival in rivals:
        ranking, products = _ranking(weight, word, special)
        nearest = (f"{task.tokenizer.word(token)} {products[token]:.2f}" for token in ranking[:count])
        rank = ranking.index(rival) + 1
        rows.add([task.tokenizer.word(word), task.tokenizer.word(rival), rank, ", ".join(nearest)])
    return rows


def _ranking(weight: Tensor, word: int, special: Sequence[int]) -> tuple[list[int], list[float]]:
    """Rank other words by inner product with one; return them and all products: `[V, d]` -> V - 1 or fewer, V."""
    products = weight @ weight[word]
    order: list[int] = torch.argsort(products, descending=True, stable=True).tolist()
    return [token for token in order if token != word and token not in special], products.tolist()
