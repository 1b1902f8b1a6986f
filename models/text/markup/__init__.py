"""Texts with markup: HTML, XML, Markdown and ICU MessageFormat."""

from models.text.markup.blocks import BlockTags
from models.text.markup.document import Block, Document, filled
from models.text.markup.formats import MAX_NAMES, PLAIN, Markup, TextFormat
from models.text.markup.icu import has_branches, seems_to_have_branches
from models.text.markup.placement import Aligned

__all__ = [
    "MAX_NAMES",
    "PLAIN",
    "Aligned",
    "Block",
    "BlockTags",
    "Document",
    "Markup",
    "TextFormat",
    "filled",
    "has_branches",
    "seems_to_have_branches",
]
