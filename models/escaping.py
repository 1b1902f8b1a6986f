"""Texts of bundles and files as they can be shown in a terminal, which obeys control characters."""

import re

__all__ = ["escaped"]

_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that change the direction of the text after them, which reorders letters (Unicode annex 9)."""
_CONTROLS = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{_BIDIRECTIONAL}\ud800-\udfff]")
_CONTROLS_IN_LINES = re.compile(f"(?![\t\n]){_CONTROLS.pattern}")


def escaped(text: str, *, lines: bool = False) -> str:
    """Return a text in which control characters are spelled as in Python, such as `\\x1b`; also lone surrogates.

    With `lines`, tabs and ends of lines are kept as they are.
    """
    return (_CONTROLS_IN_LINES if lines else _CONTROLS).sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
