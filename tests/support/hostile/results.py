"""Requests that are small and have large responses, or need much memory: top-k, scores, classes."""

from collections.abc import Callable, Sequence

from tests.support.hostile.attack import OVERLOADED, Attack, at_once
from tests.support.limited_server import Answer, LimitedServer

__all__ = ["RESULTS"]

_VOCABULARY = 7729
"""Words of the bundled language model of whole words."""
_OF_WORDS = {"model": "next-word:4"}
_LEGAL_STALL = 0.2
"""Longest latency, in seconds, of a normal request concurrent with requests for large responses."""
_OVER_BUDGET = frozenset({422})
_LEGAL = frozenset({200, *OVERLOADED})
_EITHER = frozenset({*_LEGAL, *_OVER_BUDGET, 413})
_DEADLINE = 3000


def _contexts(count: int, words: int = 1) -> list[str]:
    """Return distinct contexts, none of which is a prefix of another."""
    return [" ".join([f"x{number}", *["the"] * (words - 1)]) for number in range(count)]


def _once(
    path: str, body: Callable[[], object], timeout_ms: int = _DEADLINE
) -> Callable[[LimitedServer], list[Answer]]:
    return lambda server: [server.post(path, body(), timeout_ms)]


def _several(
    clients: int, path: str, body: Callable[[int], object], timeout_ms: int = _DEADLINE
) -> Callable[[LimitedServer], Sequence[Answer]]:
    return lambda server: at_once(clients, lambda client: server.post(path, body(client), timeout_ms))


def _next_word(count: int, top_k: int, **fields: object) -> Callable[[], object]:
    return lambda: {"context": _contexts(count), "top_k": top_k, **_OF_WORDS, **fields}


RESULTS: tuple[Attack, ...] = (
    Attack(
        name="next-word: 1,000 contexts x top_k 1,000",
        run=_once("/v1/next-word", _next_word(1000, 1000)),
        statuses=_OVER_BUDGET,
    ),
    Attack(
        name="next-word: 64 contexts x top_k 7,729",
        run=_once("/v1/next-word", _next_word(64, _VOCABULARY)),
        statuses=_OVER_BUDGET,
    ),
    Attack(
        name="next-word: 1,000 contexts x top_k 7,729",
        run=_once("/v1/next-word", _next_word(1000, _VOCABULARY)),
        statuses=_OVER_BUDGET,
    ),
    Attack(
        name="next-word: eight clients over the budget",
        run=_several(8, "/v1/next-word", lambda _: _next_word(128, 1000)()),
        statuses=_OVER_BUDGET,
    ),
    Attack(
        name="next-word: 12 contexts x top_k 7,729, within the budget",
        run=_once("/v1/next-word", _next_word(12, _VOCABULARY), 20_000),
        statuses={200},
        max_stall=_LEGAL_STALL,
        memory_back=False,  # the prefix cache may keep some of it
    ),
    Attack(
        name="next-word: 100 contexts x top_k 1,000, the whole budget",
        run=_once("/v1/next-word", _next_word(100, 1000), 20_000),
        statuses={200},
        max_stall=_LEGAL_STALL,
        memory_back=False,
    ),
    Attack(
        name="next-word: 1,000 contexts x top_k 100, explained",
        run=_once("/v1/next-word", _next_word(1000, 100, explain=True), 20_000),
        statuses={200, 429},
        max_stall=_LEGAL_STALL,
        memory_back=False,
    ),
    Attack(
        name="next-word: eight clients x 12 contexts x top_k 7,729",
        run=_several(
            8,
            "/v1/next-word",
            lambda n: {"context": [f"y{n} {c}" for c in _contexts(12)], "top_k": _VOCABULARY, **_OF_WORDS},
        ),
        statuses=_LEGAL,
        max_stall=None,
        memory_back=False,
    ),
    Attack(
        name="next-word: 130 contexts of 1,000 words",
        run=_once("/v1/next-word", lambda: {"context": _contexts(130, 1000), "top_k": 700, **_OF_WORDS}),
        statuses=_EITHER,
        max_stall=_LEGAL_STALL,
        memory_back=False,
    ),
    Attack(
        name="score: 1,024 texts of 120 words",
        run=_once("/v1/score", lambda: {"text": _contexts(1024, 120), **_OF_WORDS}),
        statuses=_EITHER,
        max_stall=_LEGAL_STALL,
        memory_back=False,
    ),
    Attack(
        name="score: 1,024 texts of 90 words",
        run=_once("/v1/score", lambda: {"text": _contexts(1024, 90), **_OF_WORDS}),
        statuses=_EITHER,
        max_stall=_LEGAL_STALL,
        memory_back=False,
    ),
    Attack(
        name="score: 90 texts of 1,000 words",
        run=_once("/v1/score", lambda: {"text": _contexts(90, 1000), **_OF_WORDS}),
        statuses=_EITHER,
        max_stall=_LEGAL_STALL,
        memory_back=False,
    ),
    Attack(
        name="score: eight clients x 1,000 texts of one word",
        run=_several(8, "/v1/score", lambda n: {"text": [f"y{n} {c}" for c in _contexts(1000)], **_OF_WORDS}),
        statuses=_LEGAL,
        max_stall=None,
        memory_back=False,
    ),
    Attack(
        name="classify: 1,024 texts x top_k 150",
        run=_once("/v1/classify", lambda: {"text": _contexts(1024), "top_k": 150}),
        statuses=_EITHER,
        max_stall=_LEGAL_STALL,
        memory_back=False,
    ),
    Attack(
        name="classify: 600 texts x top_k 1,000,000",
        run=_once("/v1/classify", lambda: {"text": _contexts(600), "top_k": 1_000_000}),
        statuses=_EITHER,
        max_stall=_LEGAL_STALL,
        memory_back=False,
    ),
    Attack(
        name="classify: 1,000 texts of 120 words",
        run=_once("/v1/classify", lambda: {"text": _contexts(1000, 120)}),
        statuses=_EITHER,
        max_stall=_LEGAL_STALL,
        memory_back=False,
    ),
    Attack(
        name="classify: eight clients x 32 texts of 120 words",
        run=_several(8, "/v1/classify", lambda n: {"text": [f"y{n} {c}" for c in _contexts(32, 100)]}),
        statuses=_LEGAL,
        max_stall=None,
        memory_back=False,
    ),
)
"""The vocabulary, the classes and the result budget are those of the defaults."""
