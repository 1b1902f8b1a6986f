"""Strategies (hypothesis) for requests to all endpoints: valid, nearly valid, and anything at all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

__all__ = ["Request", "requests"]

_MEGABYTE = 1 << 20
_VOCABULARY = 7729
_ITEM = 200
"""Largest size of a word, class or token in a response, in bytes, roughly."""


@dataclass(frozen=True)
class Request:
    """An HTTP request without its Content-Length."""

    method: str
    path: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    items: int = field(default=0, compare=False)
    """Number of requested results."""

    def wire(self) -> bytes:
        """Return all bytes of the request."""
        lines = [b"%s: %s" % pair for pair in (*self.headers, (b"Content-Length", b"%d" % len(self.body)))]
        return b"%s %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s" % (
            self.method.encode(),
            self.path,
            b"\r\n".join(lines),
            self.body,
        )

    @property
    def asked_for(self) -> int:
        """Return the size of the largest response to such a request, in bytes."""
        return _MEGABYTE + 60 * len(self.body) + _ITEM * self.items


_JSON = (b"Content-Type", b"application/json")
_GETS = (
    "/",
    "/docs",
    "/openapi.json",
    "/web/app.js",
    "/livez",
    "/readyz",
    "/metrics",
    "/v1/models",
    "/v1/models/intents",
)
_PATHS = ("/v1/next-word", "/v1/score", "/v1/rescore", "/v1/translate", "/v1/classify", "/v1/generate-text")
_MODELS = ("next-word", "de-en", "intents", "shapes", "next-word:4", "intents:2")

_plain = st.text(max_size=60)
_words = st.lists(
    st.sampled_from(["we", "had", "Guten", "Morgen", "please", "</s>", "[SEP]", "zzzq", "."]), max_size=40
)
_repeated = st.builds(lambda text, count: (text * count)[:100_000], st.text(max_size=4), st.integers(0, 100_000))
_units = st.sampled_from(["\n", "a\n\n", "«", "`", "A. ", "z.B. ", "\u0301", "\U0001f600", " ", "\0", "1.", "中"])
_special = st.builds(lambda unit, count: unit * count, _units, st.integers(0, 30_000))
"""Texts that are hard for tokenizers and sentence splitters."""
_odd_text = st.one_of(_repeated, _special, st.text(st.characters(), max_size=20))
_text = st.integers(0, 9).flatmap(lambda choice: _odd_text if choice == 0 else st.one_of(_words.map(" ".join), _plain))
_texts = st.one_of(_text, st.lists(_text, max_size=6), st.builds(lambda t, n: [t] * n, _plain, st.integers(0, 2000)))
_odd = st.one_of(st.integers(), st.floats(), st.sampled_from([0, -1, 32, 33, 7729, 7730, 2**63]))
_number = st.integers(0, 19).flatmap(lambda choice: _odd if choice == 0 else st.integers(1, 9))
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=10), inner, max_size=5)),
    max_leaves=30,
)
_model = st.integers(0, 9).flatmap(lambda choice: st.none() if choice else st.one_of(st.sampled_from(_MODELS), _plain))
_flag = st.booleans()
_hypotheses = st.lists(st.builds(lambda text, score: {"text": text, "score": score}, _text, _number), max_size=6)
_FIELDS: Mapping[str, tuple[dict[str, SearchStrategy[object]], dict[str, SearchStrategy[object]]]] = {
    "/v1/next-word": ({"context": _texts}, {"top_k": _number, "explain": _flag, "truncate": _flag, "model": _model}),
    "/v1/score": ({"text": _texts}, {"truncate": _flag, "model": _model}),
    "/v1/rescore": (
        {"hypotheses": st.one_of(_hypotheses, st.lists(_hypotheses, max_size=3))},
        {"lm_weight": _number, "length_reward": _number, "truncate": _flag, "model": _model},
    ),
    "/v1/translate": (
        {"text": _texts},
        {
            "beam_size": _number,
            "n_best": st.integers(0, 5).flatmap(lambda choice: _number if choice == 0 else st.just(1)),
            "length_penalty": _number,
            "temperature": st.none() | _number,
            "seed": _number,
            "sparse": _flag,
            "truncate": _flag,
            "model": _model,
        },
    ),
    "/v1/classify": (
        {"text": _texts},
        {"image": st.none() | _texts, "top_k": _number, "truncate": _flag, "model": _model},
    ),
    "/v1/generate-text": ({"text": _texts}, {"beam_size": _number, "max_output_tokens": _number, "model": _model}),
}


def _encoded(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair can only be escaped
        return json.dumps(value).encode()


def _items(body: object) -> int:
    """Return the number of results that a body requests."""
    if not isinstance(body, dict):
        return 0
    inputs = body.get("context", body.get("text", body.get("image", body.get("hypotheses", ()))))
    count = len(inputs) if isinstance(inputs, list) else 1
    wanted = [body[name] for name in ("top_k", "n_best") if isinstance(body.get(name), int)]
    return count * max(1, min(_VOCABULARY, *wanted)) if wanted else 10 * count


_timeout = st.one_of(
    st.integers(1, 300).map(lambda ms: b"%d" % ms),
    st.sampled_from([b"0", b"-5", b"1e9", b"3600000", b"99999999999999999999", b"", b"\xff"]),
)
_bounded = st.integers(50, 400).map(lambda ms: ((b"X-Request-Timeout-Ms", b"%d" % ms),))
"""Most requests have a deadline, so that a run does not wait for slow ones."""
_value = st.binary(max_size=50).map(lambda value: value.translate(None, b"\r\n\0"))
_headers = st.lists(
    st.one_of(
        st.tuples(st.just(b"X-Request-Timeout-Ms"), _timeout),
        st.tuples(st.just(b"X-Request-Id"), _value),
        st.tuples(st.just(b"Priority"), st.one_of(_value, st.just(b"u=0"), st.just(b"u=7, i"))),
        st.tuples(st.just(b"Content-Type"), st.one_of(_value, st.sampled_from([b"text/plain", b"application/x+json"]))),
        st.tuples(st.just(b"Content-Encoding"), st.sampled_from([b"gzip", b"identity", b"br"])),
        st.tuples(st.just(b"Authorization"), _value),
        st.tuples(st.just(b"traceparent"), _value),
        st.tuples(st.just(b"Accept"), _value),
    ),
    max_size=4,
).map(tuple)


@st.composite
def _posts(draw: st.DrawFn) -> Request:
    """Return a strategy for bodies of the right fields, whose values are mostly of the right types."""
    path = draw(st.sampled_from(_PATHS))
    body = draw(st.fixed_dictionaries(_FIELDS[path][0], optional=_FIELDS[path][1]))
    if draw(st.integers(0, 3)) == 0:  # nearly valid
        broken = draw(st.sampled_from([*_FIELDS[path][0], *_FIELDS[path][1], "unknown"]))
        body[broken] = draw(_json)
    rest = draw(st.one_of(_bounded, _bounded, _bounded, _headers))
    return Request("POST", path.encode(), (_JSON, *rest), _encoded(body), _items(body))


_path = st.one_of(
    st.sampled_from([*_PATHS, *_GETS]).map(str.encode),
    st.binary(max_size=60).map(lambda path: b"/" + path.translate(None, b"\0\r\n \t\x7f" + bytes(range(1, 32)))),
    st.sampled_from(
        [b"//v1/models", b"/v1/../v1/models", b"/v1/models/%2e%2e", b"/v1/models/%00", b"/v1%2Fscore", b"*"]
    ),
)
_method = st.sampled_from(["GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])


def requests() -> SearchStrategy[Request]:
    """Return a strategy for requests to every endpoint, most of them to those that run models."""
    gets = st.builds(Request, st.just("GET"), st.sampled_from(_GETS).map(str.encode), _headers)
    arbitrary_json = st.builds(
        lambda path, body, headers: Request("POST", path.encode(), (_JSON, *headers), _encoded(body)),
        st.sampled_from(_PATHS),
        _json,
        _bounded,
    )
    arbitrary_bytes = st.builds(
        lambda path, body: Request("POST", path.encode(), (_JSON,), body),
        st.sampled_from(_PATHS),
        st.binary(max_size=2000),
    )
    anything = st.builds(Request, _method, _path, _headers, st.binary(max_size=200))
    return st.one_of(_posts(), _posts(), _posts(), arbitrary_json, arbitrary_bytes, anything, gets)
