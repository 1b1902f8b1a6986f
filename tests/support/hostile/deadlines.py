"""Deadlines that cannot be met, or that expire while a batch runs."""

from collections.abc import Callable, Sequence

from tests.support.hostile.attack import OVERLOADED, Attack, at_once
from tests.support.limited_server import Answer, LimitedServer

__all__ = ["DEADLINES"]

_LATE = frozenset({429, 504})
_GRACE = 0.25
"""Seconds after a deadline within which the response must arrive, parsing of the body included."""

_TEXT = " ".join(["please tell me how my card was declined at the airport"] * 9)
_REQUESTS: dict[str, dict[str, object]] = {
    "/v1/next-word": {"context": [f"z{n} {_TEXT}" for n in range(100)], "top_k": 900},
    "/v1/score": {"text": [f"z{n} {_TEXT}" for n in range(400)]},
    "/v1/translate": {"text": [f"z{n} {_TEXT}" for n in range(16)], "beam_size": 5},
    "/v1/classify": {"text": [f"z{n} {_TEXT}" for n in range(128)]},
}


def _post(path: str, timeout_ms: int) -> Callable[[LimitedServer], list[Answer]]:
    return lambda server: [server.post(path, _REQUESTS[path], timeout_ms)]


def _tiny(path: str) -> Callable[[LimitedServer], Sequence[Answer]]:
    field = "context" if path == "/v1/next-word" else "text"
    return lambda server: at_once(16, lambda n: server.post(path, {field: f"w{n} {_TEXT}"}, 1))


def _of_neighbours(server: LimitedServer) -> list[Answer]:
    """Send requests with a short deadline while others with a long one keep the model busy; only the former count."""

    def post(client: int) -> Answer:
        texts = {"text": [f"c{client} n{n} {_TEXT}" for n in range(24)]}
        return server.post("/v1/classify", texts, 4000 if client < 4 else 100)

    return at_once(12, post)[4:]


DEADLINES: tuple[Attack, ...] = (
    *(
        Attack(
            name=f"deadline of 1 ms: {path.removeprefix('/v1/')}, 16 clients",
            run=_tiny(path),
            statuses={200, *OVERLOADED},
            max_stall=0.2,
            max_seconds=0.5,
        )
        for path in _REQUESTS
    ),
    *(
        Attack(
            name=f"deadline of 150 ms, which passes during the work: {path.removeprefix('/v1/')}",
            run=_post(path, 150),
            statuses=_LATE,
            max_stall=0.2,
            max_seconds=0.15 + _GRACE,
            memory_back=False,  # onnxruntime keeps the memory of a batch
        )
        for path in ("/v1/translate", "/v1/classify")
    ),
    Attack(
        name="deadline of 100 ms, concurrently with requests of 4 s",
        run=_of_neighbours,
        statuses={200, *_LATE},
        max_stall=0.2,
        max_seconds=5.0,
        memory_back=False,
    ),
    Attack(
        name="deadline of an hour, which is clamped",
        run=lambda server: [server.post("/v1/next-word", {"context": "a"}, ms) for ms in (3_600_000, 2**31, 10**15)],
        statuses={200, 422},  # beyond a certain length it may be taken for nonsense
    ),
)
