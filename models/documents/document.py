"""A document: an ordered list of texts, and a function that writes the file with other texts in their places."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from models.errors import QueryError
from models.text.markup import PLAIN, Markup, TextFormat, has_branches
from models.text.markup import Document as TakenApart

__all__ = [
    "Document",
    "DocumentError",
    "DocumentOptions",
    "Limits",
    "MarkupInPlace",
    "Segment",
    "message_markup",
    "missing_package",
]


class DocumentError(QueryError):
    """A file that cannot be read as a document of its format, or that exceeds a limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds on what reading a document may take, checked before it is unpacked or parsed where possible."""

    max_bytes: int = 32 << 20
    """Size of the file."""
    max_members: int = 5000
    """Files in an archive (docx)."""
    max_unpacked_bytes: int = 256 << 20
    """Size of all files of an archive, unpacked."""
    max_ratio: int = 200
    """Unpacked size of a file of an archive relative to its packed size; files below 1 MiB are not looked at."""
    max_depth: int = 200
    """Elements of XML, or lists and objects of JSON, within each other."""
    max_elements: int = 2_000_000
    """Elements of one XML file."""
    max_segments: int = 200_000
    """Texts to translate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentOptions:
    """What of a document is read, and how."""

    encoding: str | None = None
    """Encoding of a text file. Without it UTF-8, or what a byte order mark or a declaration in the file says."""
    columns: tuple[str, ...] = ()
    """Columns of CSV that are translated: names in the header, or numbers from 1 on. By default `text`, else `source`,
    else the only column."""
    paths: tuple[str, ...] = ()
    """Values of JSON that are translated, such as `title`, `items.*.name` or `**.text`; all strings by default."""
    value_format: TextFormat = "text"
    """Format of the values of JSON and of the cells of CSV."""
    ignore_tags: tuple[str, ...] = ()
    """Names of elements of HTML or XML whose content is left as it is."""
    translate_attributes: tuple[str, ...] | None = None
    """Names of attributes of HTML or XML whose values are translated; by default those of HTML that people see or
    hear."""
    overwrite: bool = False
    """Whether texts that have a translation in the file (PO, XLIFF) are translated again."""
    join_lines: bool = False
    """Whether the lines of a paragraph of a text file are joined: files with hard line breaks within sentences."""
    target_language: str | None = None
    """Code of the language that is written, which PO and XLIFF files name."""
    limits: Limits = field(default_factory=Limits)

    def markup(self, form: TextFormat) -> Markup:
        """Return how texts of a format are read."""
        return Markup(form, self.ignore_tags, self.translate_attributes)

    def value_markup(self, text: str) -> Markup:
        """Return how a text in `value_format` is read; see `message_markup` for one without markup."""
        return message_markup(text) if self.value_format == "text" else self.markup(self.value_format)


def message_markup(text: str) -> Markup:
    """Return how a string of a program is read: as a message of ICU MessageFormat where it has branches."""
    return Markup("icu") if has_branches(text) else PLAIN


@dataclass(frozen=True, slots=True)
class MarkupInPlace(Markup):
    """Markup of a text that was taken apart with the document that it stands in, without which it reads otherwise."""

    text: str = ""
    parts: TakenApart = field(default_factory=lambda: TakenApart((), ()))
    """The text taken apart."""

    def document(self, text: str, *, places_tags: bool = True) -> TakenApart:
        """Return a text taken apart; another text, such as a translation, is read without the document around it."""
        has_tags = any(block.elements for block in self.parts.blocks)
        if text == self.text and (places_tags or not has_tags):
            return self.parts
        return Markup.document(self, text, places_tags=places_tags)


@dataclass(frozen=True, slots=True)
class Segment:
    """A text of a document that is translated as a whole."""

    text: str
    """The text in its format, as the translation must be written too."""
    markup: Markup = PLAIN
    """The format, and how the text is read."""
    context: str = ""
    """Where it stands: a key, a line, a column; for people."""
    join_lines: bool = False
    """Whether sentences may go on in the next line."""

    @property
    def key(self) -> tuple[str, str, bool]:
        """The same of segments of a document that have one translation."""
        return self.text, self.markup.format, self.join_lines


class Document(Protocol):
    """A file that was read."""

    @property
    def segments(self) -> Sequence[Segment]:
        """The texts to translate, in the order of the file."""
        ...

    def written(self, translations: Sequence[str | None]) -> bytes:
        """Return the file with translations in place of the segments; those without one keep their text."""
        ...


def missing_package(name: str, form: str) -> DocumentError:
    """Return the error for a format whose package is not installed."""
    return DocumentError(f"{form}: this needs the package {name}: pip install 'softserve[documents]'")
