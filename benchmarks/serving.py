"""Compare the throughput of the service with other servers of the same classifier: naive FastAPI, LitServe, BentoML.

    python -m benchmarks.serving
    python -m benchmarks.serving --model my-models/my-classifier/1 --peers fastapi,litserve --seconds 5

Every server gets the same ONNX file, tokenizer and texts, one text per request, and responds with the top-5 labels.
They take turns, each alone on the machine with `wrk`, which loads it over loopback. Peers are installed into
environments of their own on first use. Numbers are comparable only within one table, measured on an idle machine.
"""

import json
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import onnxruntime
import tyro

from benchmarks.peers.ceiling import ceiling
from benchmarks.peers.classifier import Classifier
from benchmarks.peers.environments import environment
from benchmarks.peers.load import LoadResult, find_wrk, measure
from benchmarks.peers.report import table
from benchmarks.peers.servers import OURS, PEERS, Server, best_labels, running
from benchmarks.peers.texts import make_texts
from models import ModelError
from models.backend.cpus import usable_cpus
from models.reading import read_manifest
from models.tasks.text_classification import ClassifierConfig
from service.settings import BUNDLED
from tests.support.ports import free_port

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "softserve" / "serving"
_SAMPLE = 40
"""Texts whose results are compared before the measurement."""
_QUIET = 0.25
"""Load average per processor, by other programs, above which results are noise."""
_WARM_UP = (16, 3)
"""Connections, and largest number of seconds, of the warm-up."""


class Comparison:
    """Servers of one bundle, and their results so far."""

    def __init__(self, bundle: Path, servers: Sequence[Server], texts: Sequence[str], work: Path, here: bool) -> None:
        """`here` runs peers in this environment instead of one of their own in `work`, which is created if missing."""
        self.loads: dict[tuple[str, int], list[LoadResult]] = defaultdict(list)
        self.ceilings: dict[int, list[float]] = defaultdict(list)
        self.failures: dict[str, str] = {}
        self._bundle, self._servers, self._texts, self._work = bundle, servers, texts, work
        self._processors = usable_cpus()
        classifier = Classifier(bundle, threads=1)
        self._right = [str(classifier.classify([text])[0]["labels"][0]["label"]) for text in texts[:_SAMPLE]]
        self._pythons: dict[str, Path] = {}
        for server in servers:
            try:
                self._pythons[server.name] = self._python(server, here)
            except (OSError, RuntimeError) as error:
                self._fail(server, error)

    def _python(self, server: Server, here: bool) -> Path:
        if here or not server.requirements:
            return Path(sys.executable)
        return environment(self._work / "environments", server.name, server.requirements)

    def round(self, number: int, connections: Sequence[int], seconds: int) -> None:
        """Measure every server that has not failed, and the ceiling."""
        for server in self._servers:
            if server.name not in self.failures:
                try:
                    self._measure(server, number, connections, seconds)
                except Exception as error:  # whatever one does, the others are compared
                    self._fail(server, error)
        for alone in {count == 1 for count in connections}:
            found = ceiling(self._bundle, self._texts, self._processors, seconds, alone=alone)
            _say(f"ceiling, {'one text at a time' if alone else 'in batches'}: {found:.1f} texts/s")
            for count in connections:
                if alone == (count == 1):
                    self.ceilings[count].append(found)

    def _measure(self, server: Server, number: int, connections: Sequence[int], seconds: int) -> None:
        settings = server.settings(self._bundle, free_port(), self._processors)
        bodies = self._work / f"{server.name}.jsonl"
        bodies.write_text("".join(f"{json.dumps(server.body(text))}\n" for text in self._texts), encoding="utf-8")
        with running(server, self._pythons[server.name], settings, self._texts[0], self._work):
            found = best_labels(server, settings.port, self._texts[:_SAMPLE])
            wrong = sum(ours != right for ours, right in zip(found, self._right, strict=True))
            if wrong:
                raise RuntimeError(f"{wrong} of {len(found)} answers differ from those of onnxruntime by itself")
            measure(settings.port, server.path, bodies, _WARM_UP[0], min(seconds, _WARM_UP[1]))
            for count in connections:
                first = 101 * number % len(self._texts)
                load = measure(settings.port, server.path, bodies, count, seconds, first)
                self.loads[server.name, count].append(load)
                _say(f"{server.name}, connections: {count}, requests/s: {load.rate:.1f}, errors: {load.errors}")

    def _fail(self, server: Server, error: Exception) -> None:
        self.failures[server.name] = str(error) or type(error).__name__
        _say(f"{server.name} failed: {self.failures[server.name]}")


def main(
    model: Path = BUNDLED / "intents" / "2",
    peers: str = "fastapi,litserve,bentoml",
    connections: tuple[int, ...] = (1, 16, 64),
    rounds: int = 3,
    seconds: int = 10,
    texts: int = 500,
    work: Path = _CACHE,
    here: bool = False,
) -> int:
    """Print a table of medians over rounds; exit status 1 where the service itself failed.

    Args:
        model: Bundle of a classifier of texts, <name>/<version>; `softserve-train import` makes one of an ONNX file.
        peers: Some of fastapi, litserve and bentoml, with commas.
        connections: Numbers of concurrent connections, measured one after the other.
        rounds: Rounds in which all servers take turns.
        seconds: Seconds of load on each server, for each number of connections.
        texts: Number of different texts; afterwards they repeat.
        work: Directory for environments of peers, logs and other files.
        here: Run peers in this environment, which then must have what they need.
    """
    busy = os.getloadavg()[0]
    if busy > _QUIET * usable_cpus():
        _say(f"the load average is {busy:.1f}: the results are noise")
    try:
        find_wrk()
        chosen = _chosen(peers)
        work = work.expanduser().resolve()
        work.mkdir(parents=True, exist_ok=True)
        bundle = _checked(model).resolve()
        comparison = Comparison(bundle, [OURS, *chosen], make_texts(texts), work, here)
    except (ImportError, ModelError, OSError, ValueError) as error:
        sys.exit(f"benchmarks.serving: {error}")
    for number in range(rounds):
        _say(f"round {number + 1} of {rounds}")
        comparison.round(number, connections, seconds)
    print(
        f"{bundle.parent.name}:{bundle.name}, {rounds} rounds of {seconds} s; {platform.machine()}, {usable_cpus()} "
        f"processors, load before {busy:.1f}, onnxruntime {onnxruntime.__version__}; "
        f"{', '.join(need for server in chosen for need in server.requirements)}\n"
    )
    print(table(comparison.loads, comparison.ceilings, comparison.failures, OURS.name))
    return 1 if OURS.name in comparison.failures else 0


def _chosen(names: str) -> list[Server]:
    unknown = [name for name in names.split(",") if name and name not in PEERS]
    if unknown:
        raise ValueError(f"unknown peer {unknown[0]!r}: there are {', '.join(PEERS)}")
    return [PEERS[name] for name in dict.fromkeys(names.split(",")) if name]


def _checked(model: Path) -> Path:
    manifest = read_manifest(model)
    if not isinstance(manifest.config, ClassifierConfig):
        raise ValueError(f"{model} does not classify texts: its task is {manifest.task}")
    return model


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
