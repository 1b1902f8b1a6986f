"""Translations that would fill memory with decoder caches, and a batch job that must be admitted."""

from collections.abc import Callable, Sequence

from tests.support.hostile.attack import OVERLOADED, Attack, at_once
from tests.support.limited_server import Answer, LimitedServer

__all__ = ["TRANSLATIONS"]

_OVER_BUDGET = frozenset({413, 422})
_LEGAL = frozenset({200, *OVERLOADED})
_EITHER = _LEGAL | _OVER_BUDGET
_DEADLINE = 1500
_STALL = 0.2

_SENTENCES = (
    "Ein Mann fährt mit dem Fahrrad durch die Stadt.",
    "Zwei Kinder spielen im Garten mit einem Ball.",
    "Wir haben gestern einen langen Film gesehen.",
    "Das Buch liegt auf dem Tisch neben der Lampe.",
)
_TEXT = "der alte Mann und die junge Frau gehen am Abend durch den kalten Park zu dem kleinen Haus am See"
_WORDS = _TEXT.split()


def _long(words: int, number: int = 0) -> str:
    """Return a text of so many words that is a single sentence."""
    return " ".join(_WORDS[(number + index) % len(_WORDS)] for index in range(words))


def _once(**fields: object) -> Callable[[LimitedServer], list[Answer]]:
    return lambda server: [server.post("/v1/translate", fields, _DEADLINE)]


def _texts(count: int, words: int) -> list[str]:
    return [_long(words, number) for number in range(count)]


def _batch_job(server: LimitedServer) -> Sequence[Answer]:
    """Send sixteen different sentences from each of eight clients, three times, with the default deadline.

    Three times, because the rate at which the queue drains is only known after the first.
    """

    def texts(client: int, turn: int) -> list[str]:
        numbers = range(16 * (8 * turn + client), 16 * (8 * turn + client) + 16)
        return [f"{_long(12, n)} {_SENTENCES[n % 4]}" for n in numbers]

    def job(client: int) -> Answer:
        answers = [server.post("/v1/translate", {"text": texts(client, turn)}) for turn in range(3)]
        return max(answers, key=lambda answer: answer.status)

    return at_once(8, job)


def _every_beam(server: LimitedServer) -> Sequence[Answer]:
    """Start a decoding for every beam size, each with its own caches."""
    return at_once(
        32,
        lambda n: server.post("/v1/translate", {"text": _texts(2, 60), "beam_size": n + 1, "n_best": n + 1}, _DEADLINE),
    )


def _mixed(server: LimitedServer) -> Sequence[Answer]:
    """Send short texts that join the decoding of a long one, whose caches grow for all."""

    def body(client: int) -> dict[str, object]:
        return {"text": _texts(1, 900) if client == 0 else _texts(31, 2), "beam_size": 8}

    return at_once(4, lambda client: server.post("/v1/translate", body(client), _DEADLINE))


TRANSLATIONS: tuple[Attack, ...] = (
    Attack(
        name="translate: eight clients x sixteen sentences, a batch job",
        run=_batch_job,
        statuses={200},
        max_stall=_STALL,
        memory_back=False,
    ),
    Attack(
        name="translate: 16 texts of 90 words, beam 32, n_best 32",
        run=_once(text=_texts(16, 90), beam_size=32, n_best=32),
        statuses=_EITHER,
        max_stall=_STALL,
        memory_back=False,
    ),
    Attack(
        name="translate: 32 texts of 900 words, beam 32",
        run=_once(text=_texts(32, 900), beam_size=32),
        statuses=_OVER_BUDGET,
    ),
    Attack(
        name="translate: 32 texts of 300 words, beam 8",
        run=_once(text=_texts(32, 300), beam_size=8),
        statuses=_EITHER,
        max_stall=_STALL,
        memory_back=False,
    ),
    Attack(
        name="translate: 1,000 texts of one word, beam 32, n_best 32",
        run=_once(text=["Hallo"] * 1000, beam_size=32, n_best=32),
        statuses=_EITHER,
        max_stall=_STALL,
        memory_back=False,
    ),
    Attack(
        name="translate: 140 texts of 900 words, greedy",
        run=_once(text=_texts(140, 900), beam_size=1),
        statuses=_EITHER,
        max_stall=_STALL,
        memory_back=False,
    ),
    Attack(
        name="translate: a text of 1,500 sentences", run=_once(text="Ja. " * 1500), statuses=_EITHER, memory_back=False
    ),
    Attack(
        name="translate: 1,000,000 spaces behind a word, n_best 32",
        run=_once(text="Hallo" + " " * 1_000_000, beam_size=32, n_best=32),
        statuses=_EITHER,
        max_result=4_000_000,  # the text comes back, but not with every one of its translations
        max_stall=_STALL,
        memory_back=False,
    ),
    Attack(
        name="translate: 19,000 guillemets, few enough to be split on the event loop",
        run=_once(text="«" * 19_000),
        statuses=_EITHER,
    ),
    Attack(
        name="translate: samples of a temperature, beam 32",
        run=_once(text=_texts(8, 60), beam_size=32, n_best=32, temperature=100.0),
        statuses=_EITHER,
        max_stall=_STALL,
        memory_back=False,
    ),
    Attack(
        name="translate: all beam sizes at once", run=_every_beam, statuses=_EITHER, max_stall=None, memory_back=False
    ),
    Attack(
        name="translate: short texts concurrently with the longest",
        run=_mixed,
        statuses=_EITHER,
        max_stall=None,
        memory_back=False,
    ),
    Attack(
        name="translate: eight clients x four texts of 90 words, beam 16",
        run=lambda server: at_once(
            8, lambda n: server.post("/v1/translate", {"text": _texts(4, 90), "beam_size": 16}, _DEADLINE)
        ),
        statuses=_EITHER,
        max_stall=None,
        memory_back=False,
    ),
)
"""Attacks with short deadlines, so that admitted requests do not take minutes."""
