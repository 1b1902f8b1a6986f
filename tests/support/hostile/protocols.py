"""Requests of other services' protocols that are long to compute, large to answer, or no requests at all."""

import functools
import gzip
import itertools
import json
import random
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.support.hostile.attack import OVERLOADED, REFUSED, Attack, at_once
from tests.support.limited_server import SILENT, Answer, LimitedServer

__all__ = ["PROTOCOLS"]

_LEGAL_STALL = 0.2
"""Longest latency, in seconds, of a normal request concurrent with legal requests for much work."""
_DEADLINE = 3000
_LEGAL = frozenset({200, *OVERLOADED})
_IDS = 130_000
"""Token ids in a body, nearly as many as a body may hold."""
_JSON = {"Content-Type": "application/json"}


def _post(
    path: str, body: Callable[[], object], timeout_ms: int = _DEADLINE
) -> Callable[[LimitedServer], list[Answer]]:
    return lambda server: [server.post(path, body(), timeout_ms)]


def _bytes(
    path: str, make: Callable[[], bytes], headers: Mapping[str, str] = _JSON
) -> Callable[[LimitedServer], list[Answer]]:
    return lambda server: [server.request("POST", path, make(), headers)]


def _words(count: int, first: int = 2) -> list[int]:
    generator = random.Random(count + first)
    return [generator.randrange(2, 7000) for _ in range(count)]


def _completions() -> Iterator[Attack]:
    path = "/v1/completions"

    def attack(name: str, run: Callable[[LimitedServer], Sequence[Answer]], *statuses: int, **bounds: object) -> Attack:
        return Attack(name=f"completions: {name}", run=run, statuses=statuses, **bounds)  # type: ignore[arg-type]

    over = {"prompt": ["a"] * 100, "n": 128, "max_tokens": 900, "logprobs": 20}
    yield attack("100 prompts x 128 x 900 tokens x 20", _post(path, lambda: over), 400, 413)
    yield attack("1,000 prompts x 128", _post(path, lambda: {"prompt": ["a"] * 1000, "n": 128, "max_tokens": 1}), 413)
    yield attack(f"{_IDS:,} token ids", _post(path, lambda: {"prompt": [2] * _IDS}), 400)
    lists = {"prompt": [[2]] * 65_000}
    yield attack("65,000 lists of token ids", _post(path, lambda: lists), 413)
    mixed = {"prompt": [*(["a"] * 130_000), 1]}
    yield attack("130,000 texts and a number", _post(path, lambda: mixed), 400)
    explained = {"prompt": [_words(980, each) for each in range(4)], "echo": True, "logprobs": 20, "max_tokens": 1}
    legal = {"max_stall": _LEGAL_STALL, "memory_back": False}
    yield attack("4 prompts of 980 tokens, each with 20 others", _post(path, lambda: explained), *_LEGAL, **legal)
    drawn = {"prompt": ["a"] * 50, "n": 2, "max_tokens": 990, "temperature": 2}
    yield attack("100 texts of 990 tokens", _post(path, lambda: drawn), *_LEGAL, **legal)
    stops = {"prompt": ["a"] * 4, "n": 128, "stop": [f"{'a ' * 6}{each:02}" for each in range(64)], "stream": True}
    most = {**stops, "max_tokens": 100, "temperature": 2}
    yield attack("512 completions x 64 stop sequences", _post(path, lambda: most), *_LEGAL, **legal)
    longer = {"prompt": "a", "stop": [f"{'x' * 998}{each:02}" for each in range(64)]}
    yield attack("64 stop sequences of 1,000 characters", _post(path, lambda: longer), 400)
    yield attack("65 stop sequences", _post(path, lambda: {"prompt": "a", "stop": ["x"] * 65}), 400)
    eight = functools.partial(at_once, 8)

    def clients(server: LimitedServer) -> list[Answer]:
        bodies = [{"prompt": [f"a b {n}"] * 20, "max_tokens": 100, "temperature": 1} for n in range(8)]
        return eight(lambda client: server.post(path, bodies[client], _DEADLINE))

    yield attack("eight clients x 20 texts of 100 tokens", clients, *_LEGAL, **(legal | {"max_stall": None}))
    yield attack("50 streams that no client reads", _unread_streams, SILENT, **legal)
    yield attack("50 streams whose clients leave", _left_streams, SILENT, **legal)
    yield attack("tokenize 1 MB", _post("/tokenize", lambda: {"prompt": "a " * 500_000}), 400)
    yield attack("detokenize token ids", _post("/detokenize", lambda: {"tokens": [2] * _IDS}), 400)


def _streams(server: LimitedServer, seconds: float, receive_buffer: int | None) -> list[Answer]:
    body = json.dumps({"prompt": "a", "max_tokens": 990, "temperature": 2, "logprobs": 5, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    opened: list[socket.socket] = []
    try:
        for _ in range(50):
            opened.append(server.connect(5.0, receive_buffer=receive_buffer))
            opened[-1].sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(seconds)
    finally:
        for each in opened:
            each.close()
    return [Answer(SILENT, 0, seconds)]


def _unread_streams(server: LimitedServer) -> list[Answer]:
    return _streams(server, 3.0, 4096)


def _left_streams(server: LimitedServer) -> list[Answer]:
    return _streams(server, 0.2, None)


def _open_inference() -> Iterator[Attack]:
    path, binary = "/v2/models/intents/infer", "Inference-Header-Content-Length"

    def attack(name: str, run: Callable[[LimitedServer], Sequence[Answer]], *statuses: int, **bounds: object) -> Attack:
        return Attack(name=f"open inference: {name}", run=run, statuses=statuses, **bounds)  # type: ignore[arg-type]

    zeros = bytes(1 << 28)
    for encoding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        bomb = functools.cache(functools.partial(compress, zeros))
        headers = {**_JSON, "Content-Encoding": encoding}
        yield attack(f"a bomb of 256 MB in {encoding}", _bytes(path, bomb, headers), 413)
    for depth in (100, 200_000):
        nested = '{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":' + "[" * depth + "]" * depth + "}]}"
        yield attack(f"data nested {depth:,} times", _bytes(path, nested.encode), *REFUSED)

    def empty_elements() -> tuple[bytes, str]:
        size = 1_000_000
        tensor = {"name": "text", "shape": [size // 4], "datatype": "BYTES", "parameters": {"binary_data_size": size}}
        head = json.dumps({"inputs": [tensor]}).encode()
        return head + bytes(size), str(len(head))

    content, length = empty_elements()
    headers = {binary: length}
    yield attack("250,000 empty texts", _bytes(path, lambda: content, headers), 413, 422)
    for value in ("-1", "99999999999999999999", "x", "1e3", "٣"):
        headers = {binary: value.encode().decode("latin-1")}
        yield attack(f"a JSON part of {value!a} bytes", _bytes(path, lambda: b"{}", headers), 400)
    huge = {"name": "text", "shape": [2**30, 2**30], "datatype": "BYTES", "data": ["a"]}
    yield attack("a shape of 2^60 texts", _post(path, lambda: {"inputs": [huge]}), 400)
    outputs = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}
    many = {**outputs, "outputs": [{"name": f"x{each}"} for each in range(18_000)]}
    yield attack("18,000 outputs", _post(path, lambda: many), 400)
    ids = {"inputs": [{"name": "input_ids", "shape": [1, _IDS], "datatype": "INT64", "data": [2] * _IDS}]}
    yield attack("token ids", _post("/v2/models/next-word.tokens/infer", lambda: ids), *REFUSED)
    rubbish = random.Random(1).randbytes(500_000)
    for name in ("/infer", "/versions/2/infer"):
        run = _bytes(f"/v2/models/intents{name}", lambda: rubbish, {binary: "100"})
        yield attack(f"rubbish at {name}", run, 400)


_LISTS: Sequence[tuple[str, str, Mapping[str, object]]] = (
    ("/v1/completions", "prompt", {}),
    ("/detokenize", "tokens", {}),
    ("/predict", "inputs", {}),
    ("/hf/de-en", "inputs", {}),
    ("/translate", "q", {"source": "de", "target": "en"}),
    ("/translate", "q", {"source": "auto", "target": "en"}),
    ("/v2/translate", "text", {"target_lang": "EN"}),
)
"""Paths, the field that takes a list, and the other fields."""
_ITEMS: Mapping[str, object] = {
    "130,000 zeros": 0,
    "130,000 empty texts": "",
    "130,000 texts": "a",
    "65,000 empty lists": [],
}


def _others() -> Iterator[Attack]:
    def attack(name: str, run: Callable[[LimitedServer], Sequence[Answer]], *statuses: int, **bounds: object) -> Attack:
        return Attack(name=name, run=run, statuses=statuses, **bounds)  # type: ignore[arg-type]

    nested = {"inputs": [["a"]] * 65_000}
    yield attack("predict: 65,000 lists of one text", _post("/predict", lambda: nested), 413, 422, 429)
    form = "&".join(itertools.repeat("text=a", 100_000)).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    yield attack("deepl: a form of 100,000 texts", _bytes("/v2/translate", lambda: form, headers), 400, 413)
    alternatives = {"q": "Hallo", "source": "de", "target": "en", "alternatives": 10**9}
    yield attack("libretranslate: a billion alternatives", _post("/translate", lambda: alternatives), 400)
    yield attack("libretranslate: detect 1 MB", _post("/detect", lambda: {"q": "a b " * 250_000}), 200, *REFUSED)
    for path, field, rest in _LISTS:
        for name, item in _ITEMS.items():
            items = list(itertools.repeat(item, int(name.partition(",")[0]) * 1000))
            run = _post(path, lambda body={**rest, field: items}: body)  # type: ignore[misc]
            yield attack(f"{' '.join([path, *map(str, rest.values())])}: {name}", run, *REFUSED)
    sequences = {"inputs": "Hallo", "parameters": {"num_return_sequences": 10**6}}
    yield attack("hugging face: a million sequences", _post("/hf/de-en", lambda: sequences), *REFUSED)


PROTOCOLS: tuple[Attack, ...] = (*_completions(), *_open_inference(), *_others())
"""Attacks on the protocols that are served by default."""
