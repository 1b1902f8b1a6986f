"""Measure the cost of scoring lists of texts with common prefixes, such as the hypotheses of a speech recognizer.

    python -m benchmarks.n_best

Lists of three kinds take turns: hypotheses that differ in their last words only, hypotheses that each differ from one
sentence in some words anywhere, and texts that have no word in common.
"""

import os
import platform
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import tyro

from benchmarks.prefixes import WORDS
from models import LanguageModel, ModelStore
from models.backend import Array, Backend, Resident
from models.text.tokenization import END, UNKNOWN
from service.settings import BUNDLED


class CountingBackend:
    """A backend that counts the positions that are read."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name, self.device, self.parallel = backend.name, backend.device, backend.parallel
        self.positions = 0

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        self.positions += int(inputs["lengths"].sum())
        return self._backend.run(graph, inputs, outputs)

    def resident(self, graph: str, state: Mapping[str, Array], constants: Mapping[str, Array]) -> Resident:
        return self._backend.resident(graph, state, constants)

    def concurrently(self) -> AbstractContextManager[None]:
        return self._backend.concurrently()


def main(
    model_dir: Path = BUNDLED,
    model: str = "next-word:4",
    texts: int = 50,
    words: int = 20,
    shared: int = 15,
    changed: int = 2,
    rounds: int = 15,
    threads: int = 1,
) -> None:
    """Print medians over rounds.

    Args:
        model_dir: Directory that holds the bundles.
        model: A language model.
        texts: Texts per list.
        words: Words per text.
        shared: First words that all texts of the first kind share.
        changed: Words in which a text of the second kind differs.
        rounds: Lists of each kind, after one to warm up.
        threads: Threads of the model.
    """
    loaded = ModelStore(model_dir).load(model, threads=threads)
    assert isinstance(loaded, LanguageModel)
    backend = CountingBackend(loaded.backend)
    bundle = model_dir / loaded.manifest.name / str(loaded.manifest.version)
    loaded = LanguageModel.from_bundle(bundle, loaded.manifest, backend)
    likely = [word.word for word in loaded.next_words([""], 2 * texts)[0].words]
    firsts = [word for word in likely if word not in (END, UNKNOWN)][:texts]
    kinds = {
        f"{shared} of {words} words shared": shared,
        f"{changed} of {words} words changed": None,
        "nothing shared": 0,
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    read: dict[str, int] = dict.fromkeys(kinds, 0)
    for number in range(rounds + 1):
        for kind, first in kinds.items():
            generator = random.Random(f"{number} {kind}")
            if first is None:
                hypotheses = _changed(generator, texts, words, changed)
            else:
                hypotheses = _continued(generator, firsts, words, first)
            backend.positions, started = 0, time.perf_counter()
            loaded.score(hypotheses)
            if number:
                times[kind].append(1000 * (time.perf_counter() - started))
                read[kind] += backend.positions
    print(f"{model}, lists of {texts}; {platform.machine()}, {os.cpu_count()} processors, {threads} threads")
    plain = statistics.median(times["nothing shared"])
    for kind, values in times.items():
        median, positions = statistics.median(values), read[kind] / (rounds * texts * (words + 1))
        print(
            f"{kind:>25}: {median:.1f} ms a list, {min(values):.1f} to {max(values):.1f}; ratio {median / plain:.2f}, "
            f"{100 * positions:.0f} % of the tokens read"
        )


def _continued(generator: random.Random, firsts: Sequence[str], words: int, shared: int) -> list[str]:
    """Return a text for each of `firsts`, the words after the shared prefix."""
    same = generator.choices(WORDS, k=shared)
    return [" ".join([*same, first, *generator.choices(WORDS, k=words - shared - 1)]) for first in firsts]


def _changed(generator: random.Random, texts: int, words: int, changed: int) -> list[str]:
    """Return texts that differ from one sentence in some words."""
    sentence = generator.choices(WORDS, k=words)
    hypotheses = []
    for _ in range(texts):
        hypothesis = list(sentence)
        for place in generator.sample(range(words), changed):
            hypothesis[place] = generator.choice(WORDS)
        hypotheses.append(" ".join(hypothesis))
    return hypotheses


if __name__ == "__main__":
    tyro.cli(main)
