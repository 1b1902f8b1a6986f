"""Texts of 1 MB that are hard for tokenizers and sentence splitters: one word, one character, white space, initials."""

import json
from collections.abc import Iterator

from tests.support.hostile.attack import OVERLOADED, REFUSED, Attack
from tests.support.hostile.bodies import sent

__all__ = ["TEXTS"]

_ENDPOINTS = (("/v1/next-word", "context"), ("/v1/score", "text"), ("/v1/translate", "text"), ("/v1/classify", "text"))
_SIZE = 1_000_000
"""Size in bytes of UTF-8, which leaves space for the rest of the body."""
_UNITS = {
    "a single word": "a",
    "sentences of one letter": "A. ",
    "question marks": "? ",
    "abbreviations": "z.B. Dr. ",
    "numbers with points": "1.",
    "paragraphs of one letter": "a\n\n",
    "opening guillemets": "«",
    "closing guillemets": "»",
    "back quotes": "`",
    "apostrophes": "'",
    "words of one letter": "a ",
    "combining marks": "\u0301",
    "emoji": "\U0001f600",
    "a family of emoji": "\U0001f468\u200d\U0001f469\u200d",
    "Chinese without spaces": "\u4e2d",
    "spaces": " ",
    "newlines": "\n",
    "no-break spaces": "\u00a0",
    "right-to-left marks": "\u202e",
    "NUL characters": "\0",
    "special tokens": "</s>[SEP]<unk>",
}


def _attacks() -> Iterator[Attack]:
    for name, unit in _UNITS.items():
        width = len(_utf8(unit)) - 2  # JSON writes controls as up to six characters
        text = unit * (_SIZE // width)
        for path, field in _ENDPOINTS:
            for truncate in (False, True):
                if truncate and name not in ("a single word", "sentences of one letter", "spaces", "emoji"):
                    continue  # the same work again
                fields = {field: text, "truncate": truncate}
                yield Attack(
                    name=f"{path.removeprefix('/v1/')}: 1 MB of {name}{', truncated' if truncate else ''}",
                    run=sent(path, lambda fields=fields: _utf8(fields), _HEADERS),  # type: ignore[misc]
                    statuses={200, *REFUSED, *OVERLOADED},
                    memory_back=not truncate,
                )


_PROTECTED = {
    "addresses": "https://a.de/b ",
    "marks of addresses": "@",
    "braces": "{",
    "slashes": "a/",
    "names of files without an end": "a.",
}
"""Units of which protected parts are made, or are nearly."""
_MARKUP = {
    "html": {
        "tags": "<b>a</b> ",
        "elements within each other": "<b>",
        "paragraphs": "<p>a b</p>",
        "opening brackets": "<",
        "comments that do not end": "<!--",
        "references": "&amp;",
        "attributes": "<a b=c d='",
        "line breaks": "a<br>",
    },
    "icu": {"plurals": "{a, plural, other {b}} ", "plurals within each other": "{a, plural, b {", "quotes": "'{"},
    "xml": {"elements within each other": "<b>", "opening brackets": "<"},
    "markdown": {"stars": "*", "brackets": "[", "emphasis": "*a* ", "quotes": "> ", "back quotes": "`a"},
}
"""Units of texts with markup, by format."""


def _translations() -> Iterator[Attack]:
    for name, unit in _PROTECTED.items():
        yield _translation(f"1 MB of {name}", unit)
        yield _translation(f"1 MB of {name} and a slow expression", unit, protect=[r"(\w+\W*)+$"])
    for markup, units in _MARKUP.items():
        for name, unit in units.items():
            yield _translation(f"1 MB of {name} as {markup}", unit, format=markup)
    yield _translation("1 MB of tags in a root as xml", "<b>a</b> ", "<a>", "</a>", format="xml")
    yield _translation("1 MB of elements in a root as xml", "<c>", "<a>", "</a>", format="xml")
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><a>'
    yield _translation("1 MB of entities", "&c;", bomb, "</a>", format="xml")


def _translation(name: str, unit: str, before: str = "", after: str = "", **fields: object) -> Attack:
    def body() -> bytes:
        count = (_SIZE - len(before) - len(after)) // len(unit)
        return _utf8({"text": f"{before}{unit * count}{after}", **fields})

    return Attack(
        name=f"translate: {name}",
        run=sent("/v1/translate", body, _HEADERS),
        statuses={200, *REFUSED, *OVERLOADED},
    )


_HEADERS = {"Content-Type": "application/json", "X-Request-Timeout-Ms": "2000"}


def _utf8(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


TEXTS: tuple[Attack, ...] = (*_attacks(), *_translations())
"""Attacks with long texts: most are refused for their length, truncated ones may be processed."""
