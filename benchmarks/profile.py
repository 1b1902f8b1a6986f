"""Print where the time of a model goes: operators, the rest of each run of a graph, Python, waiting.

    python -m benchmarks.profile models/bundled/de-en/5 --beam 5 --batch 32 --texts FILE

Each repetition computes one batch, or decodes `--batch` sequences to the end. Python and runs of graphs are timed
without a profiler. Operators are timed by onnxruntime's profiler in other repetitions; of each its own cost is
subtracted, some 4 us, which is taken to be the time of the fastest operator. So times of operators below some 2 us are
estimates. `Run overhead` is the time of runs without their operators. `Waiting`: a thread of `--parallel` decodings
neither runs a graph nor computes; it waits for a processor, Python's lock or the others.
"""

import dataclasses
import json
import statistics
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import onnxruntime
import tyro

from models.decoding.beam_search import SearchOptions
from models.store import load_bundle

__all__ = ["Measured", "Operators", "measure_parts"]

_WARM_UP = 2
"""Repetitions that are not measured."""
_PROFILED_RUNS = 1000
"""Runs of graphs with the profiler, which records a million events at most."""
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

    def compute(model: Any) -> Callable[[], object]:
        return _computation(model, operation, beam, batch, length, texts, parallel)

    load = partial(load_bundle, bundle, threads=threads * parallel, parallel=parallel)
    plain, profiled, operators = measure_parts(load, compute, repetitions, parallel)
    print(f"{bundle.parent.name}:{bundle.name}, {parallel} x {threads} threads, onnxruntime {onnxruntime.__version__}")
    print(f"{1000 * plain.total / parallel:.2f} ms each repetition, {1000 * profiled.total / parallel:.2f} profiled\n")
    _print_parts(plain, operators)
    _print_operators(plain, operators)


def measure_parts(
    load: Callable[[], Any], computation: Callable[[Any], Callable[[], object]], repetitions: int, parallel: int = 1
) -> tuple["Measured", "Measured", "Operators"]:
    """Return where the time of a computation by a model goes, without and with the profiler, and its operators."""
    with tempfile.TemporaryDirectory() as directory:
        measured: list[Measured] = []
        for profiles in (None, Path(directory)):
            with _timed_sessions(profiles) as runs:
                compute = computation(load())
                if measured:
                    repetitions = max(1, min(repetitions, _PROFILED_RUNS // sum(measured[0].runs.values())))
                measured.append(_measure(compute, runs, repetitions, parallel))
        plain, profiled = measured
        return plain, profiled, _operators(Path(directory))


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
        """Return the result of a run of a graph, and note its time."""
        self.end()
        started = time.perf_counter()
        result = run()
        self.seconds[graph].append(time.perf_counter() - started)
        self.begin()
        return result


@dataclasses.dataclass(frozen=True)
class Measured:
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
        queries: Sequence[Any] = model.warm_up_parts(operation, batch, length)
        return lambda: model.batch_functions[operation](queries)
    options = SearchOptions(stop="full")
    if texts is None:
        made = model.warm_up_parts(operation, batch * parallel, length)
        sources: list[Any] = [dataclasses.replace(each, beam_size=beam, options=options) for each in made]
    else:
        queries = [model.query(line, beam, options=options) for line in texts.read_text(encoding="utf-8").splitlines()]
        sources = [part for query in queries for part in query.parts()]
    return lambda: model.decoder.search(sources, batch, parallel=parallel)


def _measure(compute: Callable[[], object], runs: _Runs, repetitions: int, parallel: int) -> Measured:
    for _ in range(_WARM_UP):
        compute()
    runs.seconds.clear()
    runs.computing = 0.0
    started = time.perf_counter()
    for _ in range(repetitions):
        runs.begin()
        compute()
        runs.end()
    return Measured(
        total=parallel * (time.perf_counter() - started) / repetitions,
        runs={graph: round(len(times) / repetitions) for graph, times in runs.seconds.items()},
        graphs={graph: sum(times) / repetitions for graph, times in runs.seconds.items()},
        python=runs.computing / repetitions,
    )


Operators = Mapping[str, Mapping[str, tuple[float, float]]]
"""Number of nodes and microseconds in a run, by graph and operator."""


def _operators(profiles: Path) -> Operators:
    """Return the operators in profiles, without the profiler's own cost."""
    durations: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    runs: Counter[str] = Counter()
    for file in sorted(profiles.iterdir()):
        graph = file.name.partition("-")[0]
        for event in json.loads(file.read_text(encoding="utf-8")):
            runs[graph] += event["name"] == "model_run"
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                durations[graph][event["args"]["op_name"]].append(event["dur"])
    typical = {
        graph: {name: _interquartile_mean(each) for name, each in found.items()} for graph, found in durations.items()
    }
    return {
        graph: {
            name: (
                len(each) / runs[graph],
                (typical[graph][name] - min(typical[graph].values())) * len(each) / runs[graph],
            )
            for name, each in found.items()
        }
        for graph, found in durations.items()
    }


def _interquartile_mean(values: Sequence[int]) -> float:
    """Return the mean of the middle half; times are in whole microseconds, too coarse for a median."""
    quarter = len(values) // 4
    return statistics.mean(sorted(values)[quarter : len(values) - quarter])


def _print_parts(plain: Measured, operators: Operators) -> None:
    print("| part | runs | µs/run | ms | share |\n| --- | --- | --- | --- | --- |")
    for graph, seconds in plain.graphs.items():
        run = 1e6 * seconds / plain.runs[graph]
        computing = min(run, sum(each for _, each in operators[graph].values()))
        for name, part in (("operators", computing), ("run overhead", run - computing)):
            shown = _shown(seconds * part / run, plain.total)
            print(f"| `{graph}`, {name} | {plain.runs[graph]} | {part:.1f} | {shown} |")
    for name, seconds in (("Python", plain.python), ("waiting", plain.waiting)):
        print(f"| {name} |  |  | {_shown(seconds, plain.total)} |")


def _print_operators(plain: Measured, operators: Operators) -> None:
    print("\n| graph | operator | nodes/run | µs/run | share of operators |\n| --- | --- | --- | --- | --- |")
    for graph in plain.graphs:
        largest = sorted(operators[graph].items(), key=lambda each: -each[1][1])
        total = sum(each for _, (_, each) in largest)
        others = tuple(sum(column) for column in zip(*(each for _, each in largest[_LISTED:]), strict=True))
        rows = [(f"`{name}`", *each) for name, each in largest[:_LISTED]] + ([("others", *others)] if others else [])
        for name, nodes, microseconds in rows:
            print(f"| `{graph}` | {name} | {nodes:.1f} | {microseconds:.1f} | {microseconds / total:.1%} |")


def _shown(seconds: float, total: float) -> str:
    return f"{1000 * seconds:.2f} | {seconds / total:.1%}"


if __name__ == "__main__":
    tyro.cli(main)
