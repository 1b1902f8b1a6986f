"""Measure word error rates of n-best lists before and after rescoring, and how much of a list shares its computation.

    python -m benchmarks.rescoring --data-dir data --output lists

Lists are made of sentences of Tatoeba by a noisy channel with known probabilities. Sentences are in lower case. Each
letter is typed as one of the neighbouring keys of a QWERTY keyboard with the probability `error_rate`, each neighbour
as likely as the others, by a seeded generator. A decoder that knows the channel and a lexicon (the words that occur
three times or more in the training split), and no language, proposes the `n_best` most probable sentences; the score of
each is the natural logarithm of P(typed | sentence). A word without a candidate stays as it was typed.

Weights are tuned on lists of the validation split (dev) and measured on lists of the test split; sentences that are
in the training split too are left out. `--output` keeps the lists and references as files for `softserve rescore`.
"""

import json
import os
import platform
import random
import re
import string
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.n_best import CountingBackend
from models import LanguageModel, ModelStore
from models.backend import Array
from models.decoding.error_rate_training import rated_list, tune
from models.decoding.rescoring import Hypothesis, Weights
from models.decoding.word_errors import ListErrors
from models.operations.language import SCORE
from service.offline.asked import Asked
from service.offline.n_best import NBest
from service.offline.rescoring import ListScores, log_probabilities, ranked
from service.settings import BUNDLED
from training.data.corpora import get_corpus

__all__ = ["Channel", "Lexicon", "n_best_list"]

_ROWS = (("qwertyuiop", 0.0), ("asdfghjkl", 0.25), ("zxcvbnm", 0.75))
"""The rows of the keyboard, each with its offset in keys."""
_NEAR = 1.2
"""Keys are neighbours whose centres are at most so far apart, in keys."""
_WORD = re.compile(r"(\W*)([a-z]+(?:'[a-z]+)*)(\W*)")
"""A word with the punctuation before and after it, which is typed without errors."""
_CANDIDATES = 10
"""Words of the lexicon that a typed word may be."""
_LEAST = 3
"""A word of the lexicon occurs so many times in the training split or more often."""


def _neighbours() -> dict[str, str]:
    places = {
        key: (row, offset + column) for row, (keys, offset) in enumerate(_ROWS) for column, key in enumerate(keys)
    }

    def distance(one: str, other: str) -> float:
        (a, b), (c, d) = places[one], places[other]
        return float(np.hypot(a - c, b - d))

    return {key: "".join(each for each in places if 0 < distance(key, each) <= _NEAR) for key in places}


class Channel:
    """A keyboard on which neighbouring keys are hit by mistake."""

    def __init__(self, error_rate: float) -> None:
        self._error_rate, self._neighbours = error_rate, _neighbours()
        self.log_probabilities: Array = np.full((128, 128), -np.inf)
        """Of the typed character (second axis) where another one was meant (first axis), `[128, 128]`."""
        np.fill_diagonal(self.log_probabilities, 0.0)
        for key, near in self._neighbours.items():
            self.log_probabilities[ord(key), ord(key)] = np.log1p(-error_rate)
            for each in near:
                self.log_probabilities[ord(key), ord(each)] = np.log(error_rate / len(near))

    def typed(self, word: str, generator: random.Random) -> str:
        """Return a word as it is typed."""
        return "".join(
            generator.choice(self._neighbours[each])
            if each in self._neighbours and generator.random() < self._error_rate
            else each
            for each in word
        )


class Lexicon:
    """The words that a decoder knows."""

    def __init__(self, words: Sequence[str], channel: Channel) -> None:
        self._channel = channel
        by_length: dict[int, list[str]] = defaultdict(list)
        for word in sorted(words):
            by_length[len(word)].append(word)
        self._words: Mapping[int, list[str]] = by_length
        self._codes = {length: np.array([list(each.encode()) for each in some]) for length, some in by_length.items()}

    def candidates(self, typed: str) -> list[tuple[str, float]]:
        """Return the most probable words and log P(typed | word), the best first; the typed word where there are none.

        Words of equal probability are in alphabetical order.
        """
        table = self._channel.log_probabilities
        if len(typed) in self._codes:
            codes = self._codes[len(typed)]
            values = sum((table[codes[:, place], ord(key)] for place, key in enumerate(typed)), np.zeros(len(codes)))
            best = [place for place in np.argsort(-values, kind="stable")[:_CANDIDATES] if values[place] > -np.inf]
            if best:
                return [(self._words[len(typed)][place], float(values[place])) for place in best]
        return [(typed, float(sum(table[ord(key), ord(key)] for key in typed)))]


def n_best_list(
    sentence: str, channel: Channel, lexicon: Lexicon, generator: random.Random, n_best: int
) -> list[Hypothesis]:
    """Return the most probable sentences, given how a sentence was typed, with log P(typed | sentence)."""
    beams: list[tuple[float, tuple[str, ...]]] = [(0.0, ())]
    for token in sentence.split():
        found = _WORD.fullmatch(token)
        if found is None:
            beams = [(value, (*words, token)) for value, words in beams]
            continue
        before, word, after = found.groups()
        options = lexicon.candidates(channel.typed(word, generator))
        longer = [
            (value + more, (*words, f"{before}{candidate}{after}"))
            for value, words in beams
            for candidate, more in options
        ]
        # The scores of words add up, so that the best sentences begin with some of the best beginnings.
        beams = sorted(longer, key=lambda each: -each[0])[:n_best]
    return [Hypothesis(" ".join(words), value) for value, words in beams]


@dataclass(frozen=True, slots=True)
class _Split:
    lists: Sequence[NBest]
    references: Mapping[str, str]


def _made(sentences: Sequence[str], channel: Channel, lexicon: Lexicon, n_best: int, seed: str) -> _Split:
    generator = random.Random(seed)
    lists, references = [], {}
    for number, sentence in enumerate(sentences, 1):
        name = f"{seed}-{number}"
        lists.append(NBest(number, name, n_best_list(sentence, channel, lexicon, generator, n_best)))
        references[name] = " ".join(sentence.split())
    return _Split(lists, references)


def _write(directory: Path, name: str, split: _Split) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for each in split.lists:
            hypotheses = [{"text": one.text, "score": one.score} for one in each.hypotheses]
            file.write(json.dumps({"id": each.id, "hypotheses": hypotheses}, ensure_ascii=False) + "\n")
    with (directory / f"{name}-references.jsonl").open("w", encoding="utf-8") as file:
        for key, text in split.references.items():
            file.write(json.dumps({"id": key, "text": text}, ensure_ascii=False) + "\n")


def _sentences(split: str, data_dir: Path, train: set[str], count: int) -> list[str]:
    texts = (text.lower() for text in get_corpus("tatoeba-de-en").texts(split, data_dir, "en"))
    fresh = [text for text in dict.fromkeys(texts) if text not in train and set(text) & set(string.ascii_lowercase)]
    return random.Random(split).sample(fresh, min(count, len(fresh)))


def _errors(scores: Sequence[ListScores], references: Mapping[str, str], weights: Weights) -> ListErrors:
    found = (ranked(each, weights).errors(references[each.given.id]) for each in scores)
    return sum(found, ListErrors())


def main(
    data_dir: Path = Path("data"),
    model_dir: Path = BUNDLED,
    model: str = "next-word:4",
    lists: int = 1000,
    n_best: int = 20,
    error_rate: float = 0.2,
    threads: int = 1,
    output: Path | None = None,
) -> None:
    """Print a Markdown table.

    Args:
        data_dir: Directory that holds the corpora.
        model_dir: Directory that holds the bundles.
        model: A language model of words.
        lists: Sentences of each split.
        n_best: Hypotheses of a list at most.
        error_rate: Probability that a letter is typed as a neighbouring key.
        threads: Threads of the model.
        output: Directory for the lists and references.
    """
    loaded = ModelStore(model_dir).load(model, threads=threads)
    assert isinstance(loaded, LanguageModel)
    backend = CountingBackend(loaded.backend)
    bundle = model_dir / loaded.manifest.name / str(loaded.manifest.version)
    counted = LanguageModel.from_bundle(bundle, loaded.manifest, backend)
    train = [text.lower() for text in get_corpus("tatoeba-de-en").texts("train", data_dir, "en")]
    tokens = (_WORD.fullmatch(token) for text in dict.fromkeys(train) for token in text.split())
    counts = Counter(found[2] for found in tokens if found is not None)
    channel = Channel(error_rate)
    lexicon = Lexicon([word for word, count in counts.items() if count >= _LEAST and word.isascii()], channel)
    splits = {
        split: _made(_sentences(split, data_dir, set(train), lists), channel, lexicon, n_best, split)
        for split in ("dev", "test")
    }
    scores: dict[str, list[ListScores]] = {}
    for name, split in splits.items():
        if output is not None:
            _write(output, name, split)
        backend.positions, started = 0, time.perf_counter()
        scores[name] = list(log_probabilities(counted, Asked.of(SCORE, {}), iter(split.lists), 1))
        seconds = time.perf_counter() - started
    texts = [each.text for one in splits["test"].lists for each in one.hypotheses]
    positions = sum(counted.score_query(text).length for text in texts)
    dev = splits["dev"].references
    tuned = tune(
        [rated_list(each.given.hypotheses, each.log_probabilities, dev[each.given.id]) for each in scores["dev"]]
    )
    print(
        f"`{loaded.manifest.name}:{loaded.manifest.version}`, {len(splits['test'].lists)} lists of each split, up to "
        f"{n_best} hypotheses, {error_rate:.0%} of letters mistyped; lm_weight {tuned.weights.lm_weight:.3f}, "
        f"length_reward {tuned.weights.length_reward:.3f}\n"
    )
    print("| split | words | first pass | rescored, weight 1 | rescored, tuned | oracle |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, split in splits.items():
        plain = _errors(scores[name], split.references, Weights())
        best = _errors(scores[name], split.references, tuned.weights)
        shown = (plain.first_pass, plain.rescored, best.rescored, plain.oracle)
        print(f"| {name} | {plain.oracle.words:,} | {' | '.join(f'{100 * each.rate:.2f} %' for each in shown)} |")
    print(
        f"\nOf the {positions:,} tokens of the {len(texts):,} test hypotheses {backend.positions:,} "
        f"({100 * backend.positions / positions:.0f} %) were computed, in {seconds:.1f} s on {threads} thread(s): "
        f"{platform.machine()}, {os.cpu_count()} processors"
    )


if __name__ == "__main__":
    tyro.cli(main)
