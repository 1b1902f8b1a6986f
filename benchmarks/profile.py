"""Print where the time of a model goes: operators, the rest of each run of a graph, Python, waiting.

    python -m benchmarks.profile models/bundled/de-en/1 --beam 5 --batch 32 --texts FILE

Each repetition computes one batch, or decodes `--batch` sequences to the end. Operators are timed by onnxruntime's
profiler, which slows runs down; so their shares of a run come from repetitions with it, all other times from
repetitions without it. `Run overhead` is the time of runs without their operators. `Waiting`: a thread of `--parallel`
decodings neither runs a graph nor computes; it waits for a processor, Python's lock or the others.
"""

import dataclasses
import json
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import onnxruntime
import tyro

from models.decoding.beam_search import SearchOptions
from models.store import load_bundle

_WARM_UP = 2
"""Repetitions that do not count."""
_LISTED = 12
"""Operators of a graph that are listed."""


def main(
    bundle: Annotated[Path, tyro.conf.Positional],
    operation: str | None = None,
    beam: int = 5,
    batch: int = 32,
    length: int = 16,
    texts: Path | None = None,
    threads: int = 1,
    parallel: int = 1,
    repetitions: int = 10,
) -> None:
    """Print two tables in Markdown.

    Args:
        bundle: Directory of a bundle.
        operation: Operation of a model that computes batches; the first by default.
        beam: Beam size of a model that decodes.
        batch: Texts of a batch, or sequences that are decoded together.
        length: Tokens of each text.
        texts: File of texts to decode instead, one on each line; all are decoded, `batch` at a time.
        threads: Threads of each computation.
        parallel: Decodings at once.
        repetitions: Repetitions that are measured.
    """
    with tempfile.TemporaryDirectory() as directory:
        found = []
        for profiles, warm_up in ((None, _WARM_UP), (Path(directory), 0)):
            with _timed_sessions(profiles) as runs:
                model = load_bundle(bundle, threads=threads * parallel, parallel=parallel)
                compute = _computation(model, operation, beam, batch, length, texts, parallel)
                found.append(_measure(compute, runs, repetitions, warm_up, parallel))
        operators = _operators(Path(directory), repetitions)
    plain, profiled = found
    print(f"{bundle.parent.name}:{bundle.name}, {parallel} x {threads} threads, onnxruntime {onnxruntime.__version__}")
    print(f"{1000 * plain.total / parallel:.2f} ms each repetition, {1000 * profiled.total / parallel:.2f} profiled\n")
    _print_parts(plain, profiled, operators)
    _print_operators(plain, profiled, operators)


@dataclasses.dataclass
class _Runs:
    """Runs of all sessions: of each graph their times, and what threads did between them, in seconds."""

    seconds: dict[str, list[float]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    computing: float = 0.0
    """Processor time of threads before, between and after runs."""
    last: threading.local = dataclasses.field(default_factory=threading.local)

    def begin(self) -> None:
        """Begin to count the time of this thread."""
        self.last.computed = time.thread_time()

    def end(self) -> None:
        """Count the processor time of this thread since its last run."""
        now = time.thread_time()
        self.computing += now - getattr(self.last, "computed", now)

    def time(self, graph: str, run: Callable[[], Any]) -> Any:
        """Return what a run of a graph returns, and note its time."""
        self.end()
        started = time.perf_counter()
        result = run()
        self.seconds[graph].append(time.perf_counter() - started)
        self.begin()
        return result


@dataclasses.dataclass(frozen=True)
class _Measured:
    """A repetition on average, in seconds of all its threads."""

    total: float
    runs: dict[str, int]
    graphs: dict[str, float]
    python: float

    @property
    def waiting(self) -> float:
        return max(0.0, self.total - sum(self.graphs.values()) - self.python)


@contextmanager
def _timed_sessions(profiles: Path | None) -> Iterator[_Runs]:
    """Time all runs of sessions that are made inside; write profiles of operators to a directory."""
    runs = _Runs()

    make, sessions = onnxruntime.InferenceSession, []

    class Session:
        def __init__(self, path: str, options: onnxruntime.SessionOptions, **others: Any) -> None:
            self._graph = Path(path).stem
            if profiles is not None:
                options.enable_profiling = True
                options.profile_file_prefix = str(profiles / f"{self._graph}-{id(self)}")
            self._session = make(path, options, **others)
            sessions.append(self._session)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        def run(self, *arguments: Any) -> Any:
            return runs.time(self._graph, partial(self._session.run, *arguments))

        def run_with_iobinding(self, *arguments: Any) -> None:
            runs.time(self._graph, partial(self._session.run_with_iobinding, *arguments))

    with mock.patch("onnxruntime.InferenceSession", Session):
        yield runs
    for session in sessions if profiles is not None else ():
        session.end_profiling()  # writes the file


def _computation(
    model: Any, operation: str | None, beam: int, batch: int, length: int, texts: Path | None, parallel: int
) -> Callable[[], object]:
    """Return a function that computes a repetition."""
    operation = operation or model.offers[0]
    if not model.continuous:
        queries: Sequence[Any] = model.warm_up_queries(operation, batch, length)
        return lambda: model.operations[operation](queries)
    options = SearchOptions(stop="full")
    if texts is None:
        made = model.warm_up_queries(operation, batch * parallel, length)
        sources: list[Any] = [dataclasses.replace(each, beam_size=beam, options=options) for each in made]
    else:
        queries = [model.query(line, beam, options=options) for line in texts.read_text(encoding="utf-8").splitlines()]
        sources = [part for query in queries for part in query.parts()]
    return lambda: model.decoder.search(sources, batch, parallel=parallel)


def _measure(compute: Callable[[], object], runs: _Runs, repetitions: int, warm_up: int, parallel: int) -> _Measured:
    for _ in range(warm_up):
        compute()
    runs.seconds.clear()
    runs.computing = 0.0
    started = time.perf_counter()
    for _ in range(repetitions):
        runs.begin()
        compute()
        runs.end()
    return _Measured(
        total=parallel * (time.perf_counter() - started) / repetitions,
        runs={graph: round(len(times) / repetitions) for graph, times in runs.seconds.items()},
        graphs={graph: sum(times) / repetitions for graph, times in runs.seconds.items()},
        python=runs.computing / repetitions,
    )


def _operators(profiles: Path, repetitions: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return seconds and nodes of each operator of each graph, in a repetition."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for file in sorted(profiles.iterdir()):
        seconds: Counter[str] = Counter()
        nodes: Counter[str] = Counter()
        events = json.loads(file.read_text(encoding="utf-8"))
        kernels = [each for each in events if each.get("cat") == "Node" and each["name"].endswith("_kernel_time")]
        for event in kernels:
            seconds[event["args"]["op_name"]] += event["dur"] / 1e6
            nodes[event["args"]["op_name"]] += 1
        operators = found.setdefault(file.name.partition("-")[0], {})
        for name in seconds:
            before = operators.get(name, (0.0, 0.0))
            operators[name] = before[0] + seconds[name] / repetitions, before[1] + nodes[name] / repetitions
    return found


def _print_parts(plain: _Measured, profiled: _Measured, operators: dict[str, dict[str, tuple[float, float]]]) -> None:
    print("| part | runs | µs/run | ms | share |\n| --- | --- | --- | --- | --- |")
    for graph, seconds in plain.graphs.items():
        share = sum(each for each, _ in operators[graph].values()) / profiled.graphs[graph]
        for name, part in (("operators", share), ("run overhead", 1 - share)):
            run = 1e6 * seconds * part / plain.runs[graph]
            print(f"| `{graph}`, {name} | {plain.runs[graph]} | {run:.1f} | {_shown(seconds * part, plain.total)} |")
    for name, seconds in (("Python", plain.python), ("waiting", plain.waiting)):
        print(f"| {name} |  |  | {_shown(seconds, plain.total)} |")


def _print_operators(
    plain: _Measured, profiled: _Measured, operators: dict[str, dict[str, tuple[float, float]]]
) -> None:
    print("\n| graph | operator | nodes/run | µs/run | share of run |\n| --- | --- | --- | --- | --- |")
    for graph in plain.graphs:
        found, scale = operators[graph], plain.graphs[graph] / profiled.graphs[graph] / plain.runs[graph]
        largest = sorted(found.items(), key=lambda each: -each[1][0])
        others = [sum(column) for column in zip(*(each for _, each in largest[_LISTED:]), strict=True)]
        rows = [(f"`{name}`", *each) for name, each in largest[:_LISTED]] + ([("others", *others)] if others else [])
        for name, seconds, nodes in rows:
            cells = f"{nodes / plain.runs[graph]:.1f} | {1e6 * seconds * scale:.1f} | "
            print(f"| `{graph}` | {name} | {cells}{seconds / profiled.graphs[graph]:.1%} |")


def _shown(seconds: float, total: float) -> str:
    return f"{1000 * seconds:.2f} | {seconds / total:.1%}"


if __name__ == "__main__":
    tyro.cli(main)
