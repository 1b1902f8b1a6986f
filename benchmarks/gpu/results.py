"""The results file: a line of JSON for each row, written as soon as it is measured, so that a run can be resumed."""

import importlib.util
import json
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Context", "Result", "Results", "Unavailable", "Values", "check_installed"]

Values = Mapping[str, Any]
"""Measured values by name: numbers, strings, and lists and mappings of these."""
_REASON = 300
"""Characters of an error message that are kept."""


class Unavailable(Exception):
    """A row that cannot be measured on this machine, such as that of a library that is not installed."""


def check_installed(modules: Iterable[str]) -> None:
    """Raise `Unavailable` where a module is not installed."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The result of one row of a part."""

    part: str
    row: str
    status: Literal["measured", "failed", "unavailable", "no time"]
    values: Values = field(default_factory=dict)
    reason: str = ""
    """Why there are no values."""


@dataclass(frozen=True, slots=True)
class Results:
    """A file of results. Processes may add lines at the same time."""

    path: Path
    environment: Mapping[str, str]
    """Card, commit and size of the models: results of another environment are left alone."""

    def read(self) -> dict[tuple[str, str], Result]:
        """Return the last result of each row that was measured in this environment, by part and row."""
        return {(result.part, result.row): result for result in self._lines()}

    def add(self, result: Result) -> None:
        """Add a line in one write."""
        line = json.dumps({**self.environment, "time": round(time.time(), 1), **asdict(result)})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def _lines(self) -> Iterator[Result]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                content = json.loads(line)
            except ValueError:  # the process was killed while it wrote the line
                continue
            if all(content.get(name) == value for name, value in self.environment.items()):
                yield Result(**{name: content[name] for name in Result.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """The device of a part, the directory of its files, its results, and the time until which it may measure."""

    part: str
    device: str
    """`cuda`, `cuda:1` and so on, or `cpu`."""
    small: bool
    """Whether models are tiny and measurements short, to test the commands."""
    work: Path
    """Directory of models that are made and of logs."""
    results: Results
    deadline: float
    """Time of `time.monotonic` after which no row begins."""

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    def done(self, row: str) -> bool:
        """Return whether an earlier run in this environment has measured the row."""
        found = self.results.read().get((self.part, row))
        return found is not None and found.status == "measured"

    def measure(self, row: str, function: Callable[[], Values]) -> bool:
        """Measure a row and write its result, unless that is known; return whether there are values.

        An error is the result of its row, and other rows are measured. After the deadline nothing is.
        """
        if self.done(row):
            return True
        if time.monotonic() > self.deadline:
            self.skip([row])
            return False
        try:
            values = function()
        except Unavailable as error:
            self._add(row, "unavailable", reason=str(error))
        except Exception as error:  # whatever fails, the other rows are measured
            traceback.print_exc()
            self._add(row, "failed", reason=f"{type(error).__name__}: {error}")
        else:
            self._add(row, "measured", values=values)
            return True
        return False

    def skip(self, rows: Iterable[str]) -> None:
        """Write that there was no time for rows."""
        for row in rows:
            if not self.done(row):
                self._add(row, "no time", reason="the part's share of the time was over")

    def fail(self, rows: Iterable[str], error: Exception) -> None:
        """Write the result of rows that have an error in common, such as a model that does not load."""
        status: Literal["unavailable", "failed"] = "unavailable" if isinstance(error, Unavailable) else "failed"
        reason = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"
        for row in rows:
            if not self.done(row):
                self._add(row, status, reason=reason)

    def _add(
        self,
        row: str,
        status: Literal["measured", "failed", "unavailable", "no time"],
        values: Values | None = None,
        reason: str = "",
    ) -> None:
        said = " ".join(reason.split())[:_REASON]
        self.results.add(Result(part=self.part, row=row, status=status, values=values or {}, reason=said))
        print(f"{self.part}: {row}: {said or status}", flush=True)
