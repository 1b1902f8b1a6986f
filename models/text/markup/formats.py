"""Formats of texts that are translated, and how a text in one is taken apart."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from models.text.markup.blocks import DETECTED, BlockTags
from models.text.markup.document import Document
from models.text.markup.html import html_document
from models.text.markup.icu import icu_document
from models.text.markup.markdown import markdown_document
from models.text.markup.xml import xml_document

__all__ = ["MAX_NAMES", "PLAIN", "Markup", "TextFormat"]

TextFormat = Literal["text", "html", "xml", "markdown", "icu"]

MAX_NAMES = 100
"""Elements that are left alone, or attributes that are translated."""


@dataclass(frozen=True, slots=True)
class Markup:
    """The format of a text, and what of its markup is translated."""

    format: TextFormat = "text"
    """Name of the format; `text` has no markup."""
    ignore_tags: tuple[str, ...] = ()
    """Names of elements whose content is left alone."""
    translate_attributes: tuple[str, ...] | None = ()
    """Names of attributes whose values are texts; None for those of HTML that people see or hear."""
    block_tags: BlockTags = DETECTED
    """Elements of HTML or XML that end a block of text, or do not."""

    def document(self, text: str, *, places_tags: bool = True) -> Document:
        """Return a text taken apart; without `places_tags`, inline tags stay between texts translated apart.

        Raises `QueryError` for markup that cannot be read, or has too many tags.
        """
        assert self.format != "text"
        return _READ[self.format](
            text,
            ignore_tags=self.ignore_tags,
            translate_attributes=self.translate_attributes,
            block_tags=self.block_tags,
            places_tags=places_tags,
        )

    def plain(self, text: str) -> str:
        """Return what of a text is translated, a line for each block; raises the errors of `document`."""
        if self.format == "text":
            return text
        return "\n".join(block.text for block in self.document(text).blocks)


PLAIN = Markup()
"""Texts without markup."""

_READ: Mapping[str, Callable[..., Document]] = {
    "html": html_document,
    "xml": xml_document,
    "markdown": markdown_document,
    "icu": icu_document,
}
