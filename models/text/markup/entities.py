"""Character references of HTML and XML: text nodes as plain text, and back with the references that they had."""

import html
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Spelling", "signs", "unescaped"]

_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_MAY_BE_REFERENCE = re.compile(r"[A-Za-z#]")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the characters of a text were written in its markup."""

    references: Mapping[str, str] = field(default_factory=dict)
    """References of characters that had one."""
    bare: frozenset[str] = frozenset()
    """Characters among `&`, `>` and quotation marks that stood for themselves."""

    @classmethod
    def of(cls, markup: str) -> "Spelling":
        references: dict[str, str] = {}
        for found in _REFERENCE.finditer(markup):
            letter = html.unescape(found[0])
            if len(letter) == 1:
                references.setdefault(letter, found[0])
        rest = _REFERENCE.sub("", markup)
        return cls(references, frozenset(letter for letter in "&>" if letter in rest))

    def letters(self, text: str, quote: str = "") -> list[str]:
        """Return each character of a text as markup; `quote` is the quotation mark around the value of an attribute."""
        if not self.references and not any(letter in text for letter in "&<>\"'"):
            return list(text)
        return [self._written(text, index, quote) for index in range(len(text))]

    def block(self, markup: str) -> str | None:
        """Return the markup of a whole block as it is written, None where it would be read as other blocks."""
        return markup

    def _written(self, text: str, index: int, quote: str) -> str:
        letter = text[index]
        if letter in self.references:
            return self.references[letter]
        if letter == "<":
            return "&lt;"
        if letter == ">":
            return letter if ">" in self.bare or quote else "&gt;"
        if letter == "&":
            is_clear = "&" in self.bare and not _MAY_BE_REFERENCE.match(text, index + 1)
            return letter if is_clear else "&amp;"
        return {'"': "&quot;", "'": "&#39;"}[letter] if letter == quote else letter


def unescaped(markup: str) -> str:
    """Return the text of a text node or of an attribute's value."""
    return html.unescape(markup) if "&" in markup else markup


def signs(markup: str) -> list[str]:
    """Return a text node cut at the references of signs such as `&copy;`, which are every second piece."""
    if "&" not in markup:
        return [markup]
    pieces, done = [], 0
    for found in _REFERENCE.finditer(markup):
        letter = html.unescape(found[0])
        if len(letter) == 1 and letter > "\x7f" and unicodedata.category(letter) in ("So", "Sm"):
            pieces += [markup[done : found.start()], found[0]]
            done = found.end()
    return [*pieces, markup[done:]]
