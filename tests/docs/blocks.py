"""Code blocks of pages in Markdown, and how an HTML comment before a block says that it is run.

Comments are on the line before a block. Readers of the page do not see them; the text tells them the same.

* `<!-- run: with the options of the quick try -->`: those of the block `<!-- quick try -->`, by which the page tells
  readers to try the commands on little data, are appended to `softserve-train run`;
* `<!-- file: NAME -->`: the block is the content of a file that the reader saves;
* `<!-- answer: within N -->`: before the JSON of an answer, how far its numbers may differ; also `any numbers`.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["Block", "blocks", "different"]

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<comment>[^\n]+) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
_NUMBER = r"\d+(?:\.\d+)?(?:e-?\d+)?"
_BY_THE_CLOCK = re.compile(r"^(?:epoch \d+ of \d+, step .* left|[\d,]+ [\w ]+ read)\n", re.MULTILINE)
"""Lines about the progress of training (`training.run.progress`): a slow machine prints them, a fast one does not."""


@dataclass(frozen=True)
class Block:
    """A code block; `answer` is the block of JSON or text that follows it directly, as its output."""

    page: str
    """Path of the page, from the root of the repository."""
    line: int
    """Number of its first line."""
    language: str
    code: str
    comment: str = ""
    answer: "Block | None" = None
    options: str = ""
    """Options that are appended to `softserve-train run`."""

    @property
    def tolerance(self) -> float:
        """How far numbers of this answer may differ."""
        value = self.option("answer") or "within 0.02"
        return float("inf") if value == "any numbers" else float(value.removeprefix("within "))

    def refuses(self, found: str) -> str | None:
        """Return what differs between this answer and the one that came; None where nothing does.

        JSON: `different`. Text: words are equal, numbers are numbers, and `...` stands for anything. Lines that are
        printed every few seconds are left out.
        """
        if self.language == "json":
            return different(self.code, found, self.tolerance)
        pattern = r"\s*".join(map(_pattern, self.code.split()))
        shown = _BY_THE_CLOCK.sub("", found)
        return None if re.fullmatch(pattern, shown.strip(), re.DOTALL) else f"came:\n{found}"

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def option(self, name: str) -> str | None:
        """Return the value of the comment `NAME: VALUE`, or None."""
        found, _, value = self.comment.partition(": ")
        return value if found == name else None


def _pattern(word: str) -> str:
    """Return the expression of a word of a text, whose numbers may be others; `...` is anything."""
    parts = re.split(f"({_NUMBER})", word)  # numbers have the odd places
    return ".*?" if word == "..." else "".join(_NUMBER if at % 2 else re.escape(part) for at, part in enumerate(parts))


def blocks(page: str) -> Iterator[Block]:
    """Yield the code blocks of a page that are no answers."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[tuple[Block, int]] = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        block = Block(page, line, match["language"], match["code"], match["comment"] or "")
        follows = block.language in ("json", "text") and block.comment != "quick try"
        if found and follows and not text[found[-1][1] : match.start()].strip():
            block = replace(found.pop()[0], answer=block)
        found.append((block, match.end()))
    quick = " ".join(block.code for block, _ in found if block.comment == "quick try").replace("\\\n", " ")
    yield from (replace(block, options=quick) if "quick try" in block.comment else block for block, _ in found)


def different(shown: str, found: str, tolerance: float) -> str | None:
    """Return what differs between the JSON that a page shows and the JSON found, one value or several; None if nothing.

    Numbers with a fraction may differ by `tolerance`, relatively or absolutely; everything else is equal.
    """
    return _different(list(_values(shown)), list(_values(found)), tolerance, "answer")


def _values(text: str) -> Iterator[object]:
    while text := text.strip():
        value, end = json.JSONDecoder().raw_decode(text)
        yield value
        text = text[end:]


def _different(shown: object, found: object, tolerance: float, path: str) -> str | None:
    if isinstance(shown, dict) and isinstance(found, dict):
        if list(shown) != list(found):
            return f"{path}: the fields are {list(found)}, not {list(shown)}"
        pairs = [(shown[key], found[key], f"{path}.{key}") for key in shown]
    elif isinstance(shown, list) and isinstance(found, list):
        if len(shown) != len(found):
            return f"{path}: {len(found)} elements, not {len(shown)}"
        pairs = [(one, other, f"{path}[{index}]") for index, (one, other) in enumerate(zip(shown, found, strict=True))]
    elif isinstance(shown, float) and isinstance(found, float):
        return None if abs(shown - found) <= tolerance * max(1.0, abs(shown)) else f"{path}: {found}, not {shown}"
    else:
        return None if (type(shown), shown) == (type(found), found) else f"{path}: {found!r}, not {shown!r}"
    return next(filter(None, (_different(one, other, tolerance, place) for one, other, place in pairs)), None)
