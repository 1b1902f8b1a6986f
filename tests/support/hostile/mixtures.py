"""Seeded mixtures of requests that the API accepts, with extreme sizes; a seed always gives the same requests."""

import base64
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.support.hostile.files import jpeg, png

__all__ = ["Client", "Mixture", "mixtures"]

_VOCABULARY = 8000
"""Tokens of the bundled language model."""
_RESULTS = 100_000
"""The default of `--max-result-items`; half of the requests are just below it."""
_MAX_BODY = 1_000_000
_MAX_WORDS = 950
_GERMAN_TEXT = "der alte Mann und die junge Frau gehen am Abend durch den kalten Park zu dem kleinen Haus am See"
_GERMAN = _GERMAN_TEXT.split()
_ENGLISH_TEXT = "we had a very good time at the small house by the lake and then they went home in the cold"
_ENGLISH = _ENGLISH_TEXT.split()
_DEADLINES = (None, 500, 2000, 5000, 5000, 10_000, 120_000)

Manner = Literal["patient", "disconnects", "reads slowly"]


@dataclass(frozen=True)
class Client:
    """One request, and its client's behaviour after sending it."""

    kind: str
    path: str
    body: bytes
    timeout_ms: int | None
    manner: Manner
    pause: float
    """Seconds before the client disconnects, or without reading."""


@dataclass(frozen=True)
class Mixture:
    """Requests, and the number that is in flight concurrently."""

    number: int
    concurrency: int
    clients: Sequence[Client]

    @property
    def summary(self) -> str:
        """Return the kinds of requests with their counts."""
        kinds = sorted({client.kind for client in self.clients})
        return ", ".join(f"{kind} x {sum(client.kind == kind for client in self.clients)}" for kind in kinds)


def mixtures(seed: int, *, images: bool, max_clients: int = 64) -> Iterator[Mixture]:
    """Yield mixtures without end; each depends on the seed and its number only."""
    number = 0
    while True:
        generator = random.Random(f"{seed} {number}")
        concurrency = min(max_clients, generator.choice((1, 1, 2, 4, 8, 16, 32, 64, 64)))
        kinds = [kind for kind in _MAKERS if images or kind != "image"]
        some = generator.sample(kinds, generator.randint(1, len(kinds)))  # at times one kind alone
        clients = [_client(generator, generator.choice(some)) for _ in range(concurrency * generator.randint(1, 3))]
        yield Mixture(number, concurrency, clients)
        number += 1


def _client(generator: random.Random, kind: str) -> Client:
    path, fields = _MAKERS[kind](generator)
    manner: Manner = generator.choices(("patient", "disconnects", "reads slowly"), (8, 1, 1))[0]
    body = json.dumps(fields, ensure_ascii=False).encode()
    return Client(kind, path, body, generator.choice(_DEADLINES), manner, generator.uniform(0, 2))


def _extreme(generator: random.Random, low: int, high: int) -> int:
    """Return a number between both, often one of them, else of a random order of magnitude."""
    place = generator.random()
    if place < 0.2:
        return low
    if place < 0.5:
        return high
    return round(math.exp(generator.uniform(math.log(low), math.log(high))))


def _texts(generator: random.Random, words: Sequence[str], count: int, length: int) -> list[str]:
    count = max(1, min(count, _MAX_BODY // (7 * length)))
    return [f"{generator.randrange(10**6)} {' '.join(generator.choices(words, k=length))}" for _ in range(count)]


def _shape(generator: random.Random, most: int, budget: int) -> tuple[int, int]:
    """Return the number of texts and of results of each: at random, or with a product just within a budget."""
    texts = _extreme(generator, 1, 1024)
    if generator.random() < 0.5:
        return texts, _extreme(generator, 1, most)
    return texts, max(1, min(most, int(budget * generator.uniform(0.8, 1.0)) // texts))


def _next_word(generator: random.Random) -> tuple[str, dict[str, object]]:
    texts, top_k = _shape(generator, _VOCABULARY, _RESULTS)
    contexts = _texts(generator, _ENGLISH, texts, _extreme(generator, 1, _MAX_WORDS))
    fields: dict[str, object] = {"context": contexts, "top_k": top_k, "explain": generator.random() < 0.3}
    return "/v1/next-word", {**fields, "unit": generator.choice(("word", "token")), "truncate": True}


def _score(generator: random.Random) -> tuple[str, dict[str, object]]:
    texts = _texts(generator, _ENGLISH, _extreme(generator, 1, 1024), _extreme(generator, 1, _MAX_WORDS))
    return "/v1/score", {"text": texts, "truncate": True, "unit": generator.choice((None, "word"))}


def _translate(generator: random.Random) -> tuple[str, dict[str, object]]:
    beam = _extreme(generator, 1, 32)
    texts, length = _extreme(generator, 1, 256), _extreme(generator, 1, 400)
    if generator.random() < 0.5:  # some 30,000 slots of the decoder's caches, which a budget is likely to let in
        texts = max(1, 30_000 // (beam * 3 * length))
    fields: dict[str, object] = {
        "text": _texts(generator, _GERMAN, texts, length),
        "beam_size": beam,
        "n_best": generator.choice((1, beam)),
        "sparse": generator.random() < 0.1,
    }
    if generator.random() < 0.2:
        fields |= {"temperature": generator.choice((0.1, 1.0, 100.0)), "seed": generator.randrange(2**31)}
    return "/v1/translate", fields


def _classify(generator: random.Random) -> tuple[str, dict[str, object]]:
    texts, top_k = _shape(generator, 150, _RESULTS)
    return "/v1/classify", {"text": _texts(generator, _ENGLISH, texts, _extreme(generator, 1, 110)), "top_k": top_k}


def _image(generator: random.Random) -> tuple[str, dict[str, object]]:
    make = generator.choice(_FILES)
    encoded = base64.b64encode(make()).decode()
    count = max(1, min(_extreme(generator, 1, 16), _MAX_BODY // len(encoded)))
    return "/v1/classify", {"image": [encoded] * count}


def _long(generator: random.Random) -> tuple[str, dict[str, object]]:
    """Return a text of up to 1 MB, which is refused or truncated."""
    unit = generator.choice(("A. ", "a", "a ", "\U0001f600", "中", " "))
    text = unit * (_extreme(generator, 1000, _MAX_BODY) // len(unit.encode()))
    path, field = generator.choice(
        (("/v1/next-word", "context"), ("/v1/score", "text"), ("/v1/translate", "text"), ("/v1/classify", "text"))
    )
    return path, {field: text, "truncate": generator.random() < 0.5}


def _wrong(generator: random.Random) -> tuple[str, dict[str, object]]:
    """Return a body that validation refuses."""
    item: object = generator.choice((0, {}, [], None, 1.5))
    path, field = generator.choice((("/v1/next-word", "context"), ("/v1/classify", "image"), ("/v1/translate", "text")))
    return path, {field: [item] * _extreme(generator, 1, 250_000)}


_FILES: tuple[Callable[[], bytes], ...] = (
    lambda: png(6, 8),
    lambda: png(6, 8, interlaced=True),
    lambda: png(2, 16),
    lambda: png(0, 16),
    lambda: png(4, 8),
    lambda: png(3, 8),
    lambda: jpeg("RGB", progressive=True),
    lambda: jpeg("CMYK"),
    lambda: png(2, 8, 64, 64),
)
_MAKERS: dict[str, Callable[[random.Random], tuple[str, dict[str, object]]]] = {
    "next-word": _next_word,
    "score": _score,
    "translate": _translate,
    "classify": _classify,
    "image": _image,
    "long text": _long,
    "wrong body": _wrong,
}
