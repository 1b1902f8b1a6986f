"""Translations of texts with markup, without a model."""

from models.text.markup import Aligned, Markup
from models.text.words import words_of

__all__ = ["linked_translation"]


def linked_translation(markup: Markup, source: str, text: str, links: list[tuple[str, str]]) -> str:
    """Return a text of one block with a translation in which pairs of words are linked."""
    document = markup.document(source)
    (block,) = document.blocks
    spans = {block.text[start:end]: (start, end) for start, end in words_of(block.text)}
    target = {text[start:end]: (start, end) for start, end in words_of(text)}
    pairs = [(spans[ours], target[theirs]) for ours, theirs in links]
    found = Aligned(block.text, text, [((0, len(block.text)), (0, len(text)))], pairs)
    return document.joined([block.translated(found, [])])
