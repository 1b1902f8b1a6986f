"""The goals for a card, and which of them the results meet.

Those for CPUs are measured by `benchmarks.serving` and `benchmarks.translation`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.gpu import over_http, peer_servers, peers
from benchmarks.gpu.in_process import BATCHES
from benchmarks.gpu.made_models import BERT, MINILM, OPUS
from benchmarks.gpu.results import Result, Values

__all__ = ["GOALS", "Goal", "verdict"]

Found = Mapping[tuple[str, str], Result]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A goal: a value, and its bound."""

    name: str
    value: Callable[[Found], float | None]
    """Returns the value; None where a result that it needs is missing."""
    least: float | None = None
    most: float | None = None
    unit: str = ""


def _of(found: Found, part: str, row: str, name: str) -> float | None:
    values: Values = found[part, row].values if (part, row) in found else {}
    return float(values[name]) if name in values else None


def _best(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _texts(found: Found, model: str, each: int) -> float | None:
    """Return the texts/s of a classifier through HTTP, at the best number of connections."""
    rows = [over_http.row_name(model, "classify", each, count) for count in over_http.CONNECTIONS]
    return _best([_of(found, "http", row, "texts_per_second") for row in rows])


def _requests(found: Found, model: str, operation: str, connections: int) -> float | None:
    return _of(found, "http", over_http.row_name(model, operation, 1, connections), "requests_per_second")


def _best_server(found: Found, each: int) -> float | None:
    rows = [
        peer_servers.row_name(server.name, *load)
        for server in peer_servers.SERVERS
        for load in peer_servers.LOADS
        if load[0] == each
    ]
    return _best([_of(found, "servers", row, "texts_per_second") for row in rows])


def _in_process(found: Found, model: str, peer: str, sizes: Sequence[int] = BATCHES) -> float | None:
    """Return the texts/s or tokens/s of a library, at the best of these batch sizes."""
    return _best([_of(found, "peers", peers.row_name(model, size, peer), "per_second") for size in sizes])


def _first_request(found: Found) -> float | None:
    row = "bundled models, start"
    return _ratio(_of(found, "http", row, "first_ms"), _of(found, "http", row, "hundredth_ms"))


def _unknown(found: Found) -> None:
    """Nothing measures the value yet."""


GOALS = (
    Goal(
        name="`intents`, requests of 32 texts",
        value=lambda found: _texts(found, "intents", 32),
        least=10_000,
        unit="texts/s",
    ),
    Goal(
        name="`intents`, requests of one text, 256 connections",
        value=lambda found: _requests(found, "intents", "classify", 256),
        least=4_000,
        unit="requests/s",
    ),
    Goal(
        name=f"`{MINILM}` (the sizes of `intents`), requests of 32 texts, to the best server measured",
        value=lambda found: _ratio(_texts(found, MINILM, 32), _best_server(found, 32)),
        least=1.2,
    ),
    Goal(
        name=f"`{MINILM}`, requests of one text, 256 connections, to the best server measured",
        value=lambda found: _ratio(_requests(found, MINILM, "classify", 256), _best_server(found, 1)),
        least=1.2,
    ),
    Goal(
        name=f"`{BERT}`, 128 tokens: through HTTP to compiled transformers in bfloat16, in process, batches of 128",
        value=lambda found: _ratio(_texts(found, BERT, 32), _in_process(found, BERT, peers.COMPILED, (128,))),
        least=0.8,
    ),
    Goal(
        name=f"`{OPUS}`, beam 4, tokens/s to CTranslate2 float16, each at its best batch",
        value=lambda found: _ratio(_in_process(found, OPUS, peers.OURS), _in_process(found, OPUS, peers.CTRANSLATE2)),
        least=1.0,
    ),
    Goal(
        name="`de-en`, 64 connections",
        value=lambda found: _requests(found, "de-en", "translate", 64),
        least=2_640,
        unit="requests/s",
    ),
    Goal(
        name="start to ready with the bundled models",
        value=lambda found: _of(found, "http", "bundled models, start", "ready_seconds"),
        most=30,
        unit="s",
    ),
    Goal(name="first request to the hundredth", value=_first_request, most=1.5),
    Goal(name="memory contract over 100,000 requests and 50 reloads", value=_unknown, least=1),
    Goal(name="synchronizations of a step", value=_unknown, most=1),
)


def verdict(goal: Goal, found: Found, *, on_gpu: bool) -> str:
    """Return `met`, `missed` or `not measured`, with the value; on a CPU nothing is measured for these goals."""
    value = goal.value(found) if on_gpu else None
    if value is None:
        return "not measured"
    met = (goal.least is None or value >= goal.least) and (goal.most is None or value <= goal.most)
    return f"{'met' if met else '**missed**'}: {value:,.{0 if value >= 100 else 2}f} {goal.unit}".rstrip()
