"""Bodies of at most 1 MB that are refused: invalid JSON, invalid fields, or unknown models."""

import functools
import gzip
import itertools
import json
import string
from collections.abc import Callable, Iterator, Mapping

from tests.support.hostile.attack import OVERLOADED, REFUSED, Attack, at_once
from tests.support.limited_server import Answer, LimitedServer, json_of

__all__ = ["BODIES", "ENDPOINTS", "MAX_BODY", "sent"]

MAX_BODY = 1 << 20
"""Bytes, the default of `--max-body-bytes`."""

ENDPOINTS = (
    ("/v1/next-word", "context"),
    ("/v1/score", "text"),
    ("/v1/rescore", "hypotheses"),
    ("/v1/translate", "text"),
    ("/v1/classify", "text"),
    ("/v1/classify", "image"),
    ("/v1/generate-text", "text"),
)
"""Paths, and the field that holds the inputs."""

_VALID: Mapping[str, Mapping[str, object]] = {
    "/v1/next-word": {"context": "a", "top_k": 1, "explain": False, "truncate": False, "model": None},
    "/v1/score": {"text": "a", "truncate": False, "model": None},
    "/v1/rescore": {
        "hypotheses": [{"text": "a"}],
        "lm_weight": 1.0,
        "length_reward": 0.0,
        "truncate": False,
        "model": None,
    },
    "/v1/translate": {
        "text": "a",
        "beam_size": 1,
        "n_best": 1,
        "length_penalty": 1.0,
        "temperature": None,
        "seed": 0,
        "sparse": False,
        "truncate": False,
        "model": None,
    },
    "/v1/classify": {"text": "a", "image": None, "top_k": 1, "truncate": False, "model": None},
    "/v1/generate-text": {"text": "a", "beam_size": 1, "max_output_tokens": 1, "model": None},
}
_WRONG: tuple[object, ...] = (
    -1,
    0,
    2**70,
    1.5,
    "x",
    "",
    "\ud800",
    [],
    [[]],
    [None],
    {},
    {"a": 1},
    True,
    1e308,
    "9" * 20_000,
    [0] * 20_000,
)
_JSON = {"Content-Type": "application/json"}
_LETTERS = string.ascii_letters + string.digits

Make = Callable[[], bytes]


def sent(path: str, make: Make, headers: Mapping[str, str] = _JSON) -> Callable[[LimitedServer], list[Answer]]:
    """Return an attack that posts one body."""
    return lambda server: [server.request("POST", path, make(), headers)]


def _list(field: str, item: str, count: int) -> Make:
    return lambda: f'{{"{field}":[{",".join(itertools.repeat(item, count))}]}}'.encode()


def _text(field: str, text: str, tail: str = "") -> Make:
    return lambda: f'{{"{field}":"{text}"{tail}}}'.encode()


def _keys(field: str, count: int) -> Make:
    names = itertools.islice(map("".join, itertools.product(_LETTERS, repeat=4)), count)
    rest = [f'"{name}":0' for name in names]
    return lambda: f'{{"{field}":"a",{",".join(rest)}}}'.encode()


def _fields(path: str, **fields: object) -> Make:
    return lambda: json_of({**_VALID[path], **fields})


def _shapes() -> Iterator[tuple[str, str, Make]]:
    """Yield bodies for every endpoint: a name, a path and a function that makes the body."""
    for path, field in ENDPOINTS:
        name = f"{path.removeprefix('/v1/')} {field}"
        yield f"{name}: 130,000 zeros", path, _list(field, "0", 130_000)
        yield f"{name}: 43,000 unknown keys", path, _keys(field, 43_000)
        yield f"{name}: 130,000 empty strings", path, _list(field, '""', 130_000)
        yield f"{name}: 26,000 empty objects", path, _list(field, "{}", 26_000)
        yield f"{name}: 65,000 empty lists", path, _list(field, "[]", 65_000)
        yield f"{name}: 85,000 lone surrogates, each a text", path, _list(field, r'"\ud800"', 85_000)
        yield f"{name}: a text of 170,000 lone surrogates", path, _text(field, r"\ud800" * 170_000)
    word = "/v1/next-word"
    yield "next-word context: 520,000 zeros", word, _list("context", "0", 520_000)
    yield "next-word context: 114,000 unknown keys", word, _keys("context", 114_000)
    yield "next-word context: 300,000 empty strings", word, _list("context", '""', 300_000)
    yield "next-word context: 300,000 empty objects", word, _list("context", "{}", 300_000)
    yield "next-word context: 300,000 empty lists", word, _list("context", "[]", 300_000)
    yield "a text of 1,000,000 commas", word, _text("context", "," * 1_000_000)
    yield "a text of 500,000 escaped quotes", word, _text("context", r"\"" * 500_000)
    yield "one key of 1 MB", word, lambda: b'{"context":"a","' + b"k" * (MAX_BODY - 40) + b'":0}'
    yield "one key of lone surrogates", word, lambda: b'{"context":"a","' + rb"\udfff" * 170_000 + b'":0}'
    yield "a model name of 1 MB", word, _text("context", "a", f',"model":"{"m" * (MAX_BODY - 60)}"')
    yield "a model name of 1 MB with a version", word, _text("context", "a", f',"model":"next-word:{"1" * 1_000_000}"')
    yield "a model name of lone surrogates", word, _text("context", "a", ',"model":"' + r"\udc00" * 170_000 + '"')
    yield "500,000 nested lists", word, lambda: b'{"context":' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    yield "900 nested lists, 500 times", word, _list("context", "[" * 900 + "]" * 900, 500)
    yield "900 nested lists, 145 times", word, _list("context", "[" * 900 + "]" * 900, 145)
    yield "170,000 nested objects", word, lambda: b'{"a":' * 170_000 + b"0" + b"}" * 170_000
    yield "an integer of 1,000,000 digits", word, lambda: b'{"context":"a","top_k":' + b"9" * 1_000_000 + b"}"
    yield "240 integers of 4,300 digits", word, _list("context", "9" * 4300, 240)
    yield "130,000 floats 1e999", word, _list("context", "1e999", 130_000)
    yield "130,000 NaN", word, _list("context", "NaN", 130_000)
    yield "length_penalty NaN", "/v1/translate", lambda: b'{"text":"a","length_penalty":NaN}'
    yield "temperature 1e999", "/v1/translate", lambda: b'{"text":"a","temperature":1e999}'
    yield "seed -Infinity", "/v1/translate", lambda: b'{"text":"a","seed":-Infinity}'
    yield "invalid UTF-8, 1 MB", word, lambda: b'{"context":"' + b"\xff" * (MAX_BODY - 20) + b'"}'
    yield "UTF-8 cut in the middle", word, lambda: b'{"context":"' + b"\xf0\x9f\x98" * 300_000 + b'"}'
    yield "1 MB that ends too early", word, lambda: b'{"context":["' + b"a" * (MAX_BODY - 20)
    yield "1 MB of white space", word, lambda: b" " * MAX_BODY
    yield "1 MB of opening quotes", word, lambda: b'"' * MAX_BODY
    yield "a top-level list of zeros", word, lambda: json_of([0] * 520_000)
    yield "a top-level text of 1 MB", word, lambda: json_of(["a" * (MAX_BODY - 10)])[1:-1]
    yield "1 MB of random bytes", word, lambda: bytes(i * i % 251 for i in range(MAX_BODY))
    yield "UTF-32", word, lambda: json.dumps({"context": [0] * 80_000}).encode("utf-32")
    yield "text and image, both 65,000 empty", "/v1/classify", _both_inputs


def _both_inputs() -> bytes:
    empty = ",".join(['""'] * 65_000)
    return f'{{"text":[{empty}],"image":[{empty}]}}'.encode()


def _wrong_types(server: LimitedServer) -> list[Answer]:
    """Yield every field of every endpoint with every invalid value, one at a time."""
    return [
        server.request("POST", path, _fields(path, **{field: value})(), _JSON)
        for path, valid in _VALID.items()
        for field in valid
        for value in _WRONG
    ]


def _duplicate_keys(server: LimitedServer) -> list[Answer]:
    body = "{" + ",".join(['"context":"a"'] * 40_000) + "}"
    return [server.request("POST", "/v1/next-word", body.encode(), _JSON)]


def _wrong_headers(server: LimitedServer) -> list[Answer]:
    values = ("0", "-1", "abc", "1.5", "9" * 5000, "nan", "1e3", " ")
    body = json_of({"context": "a"})
    return [server.request("POST", "/v1/next-word", body, {**_JSON, "X-Request-Timeout-Ms": value}) for value in values]


@functools.cache
def _bomb() -> bytes:
    return gzip.compress(b'{"context":"' + b"a" * 500_000_000 + b'"}', 1)[:MAX_BODY]


def _sixteen_clients(server: LimitedServer) -> list[Answer]:
    body = _list("context", "0", 520_000)()
    return at_once(16, lambda _: server.request("POST", "/v1/next-word", body, _JSON))


BODIES: tuple[Attack, ...] = (
    *(Attack(name=name, run=sent(path, make), statuses=REFUSED) for name, path, make in _shapes()),
    Attack(name="wrong types in every field", run=_wrong_types, statuses={200, *REFUSED}),
    Attack(
        name="top_k of 4,000 digits",
        run=sent("/v1/next-word", lambda: b'{"context":"a","top_k":' + b"9" * 4000 + b"}"),
        statuses={200},
        max_answer=200_000,
    ),
    Attack(name="40,000 duplicate keys", run=_duplicate_keys, statuses={400}),
    Attack(name="deadlines that are no numbers", run=_wrong_headers, statuses=REFUSED),
    Attack(
        name="a gzip bomb",
        run=sent("/v1/next-word", _bomb, {**_JSON, "Content-Encoding": "gzip"}),
        statuses=REFUSED,
    ),
    Attack(
        name="1 MB of zeros as text/plain",
        run=sent("/v1/next-word", lambda: bytes(MAX_BODY), {"Content-Type": "text/plain"}),
        statuses=REFUSED,
    ),
    Attack(
        name="a Content-Type of 60 kB",
        run=sent("/v1/next-word", lambda: b"{}", {"Content-Type": "x" * 60_000}),
        statuses={*REFUSED, 0},
    ),
    Attack(
        name="2 MB, declared",
        run=sent("/v1/next-word", lambda: bytes(2 * MAX_BODY)),
        statuses={413, 0},
    ),
    Attack(
        name="sixteen clients with 520,000 zeros",
        run=_sixteen_clients,
        statuses={*REFUSED, *OVERLOADED},
        max_stall=None,
    ),
)
"""All of them are small enough to be read."""
