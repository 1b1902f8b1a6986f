"""Translation: parameters and records."""

import functools
from typing import Annotated, Literal, Self

from pydantic import Field

from models.errors import QueryError
from models.operations.operation import Record, Truncated
from models.operations.search import ScoredText, SearchParams
from models.text.glossary import MAX_ENTRIES, MAX_TERM_LENGTH, Glossary
from models.text.markup import MAX_NAMES, Markup, TextFormat
from models.text.protection import (
    DEFAULT_KINDS,
    DEFAULT_PROTECTION,
    KINDS,
    MAX_PATTERN_LENGTH,
    MAX_PATTERNS,
    Kind,
    Protection,
)

__all__ = [
    "AlignmentLink",
    "GlossaryTerm",
    "RatedSentence",
    "RatedWord",
    "TranslateParams",
    "TranslateResult",
    "TranslatedText",
]


_WITH_ELEMENTS = ("html", "xml")
"""Formats that have elements and attributes."""


class TranslateParams(SearchParams):
    """What can be chosen of a translation."""

    source_language: Annotated[
        str | None,
        Field(
            max_length=16,
            description="Code of the language of the text; by default detected by a model that reads several.",
        ),
    ] = None
    target_language: Annotated[
        str | None,
        Field(max_length=16, description="Code of the language to write; by default `languages.target` of the model."),
    ] = None
    alignment: Annotated[
        bool, Field(description="Return the links between the words of the text and those of each translation.")
    ] = False
    confidences: Annotated[
        bool,
        Field(description="Return the confidence in each sentence, and in each word, of each translation."),
    ] = False
    coverage: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Return in place of `n_best` translations the smallest set that holds an acceptable one with "
            "this probability, such as 0.95, of a text of one sentence. The set is computed from the model's "
            "calibration examples, which must be enough for it.",
        ),
    ] = None
    protect: Annotated[
        list[Annotated[str, Field(max_length=MAX_PATTERN_LENGTH)]] | None,
        Field(
            max_length=MAX_PATTERNS,
            description="Regular expressions of parts that every translation has byte for byte and exactly once.",
        ),
    ] = None
    protect_kinds: Annotated[
        list[Kind] | None,
        Field(
            max_length=len(KINDS),
            description="Kinds of parts that are protected without an expression; all but `measure` by default, none "
            "with an empty list. `measure` are numbers with units or percent signs, `number` are numbers with "
            "separators, with their unit.",
        ),
    ] = None
    numbers: Annotated[
        Literal["copy", "localize"],
        Field(
            description="Whether protected numbers with separators are copied, or written as the target language does: "
            "`1.000,50` is `1,000.50` in English then. Dates and times of day stay as they are."
        ),
    ] = "copy"
    format: Annotated[
        TextFormat,
        Field(
            description="Format of the text, and of each translation. Of one with markup, sentences are translated "
            "across inline tags, which are put around the words that they enclose in the text."
        ),
    ] = "text"
    ignore_tags: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100)]] | None,
        Field(max_length=MAX_NAMES, description="Names of elements of HTML or XML whose content is left as it is."),
    ] = None
    translate_attributes: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100)]] | None,
        Field(
            max_length=MAX_NAMES,
            description="Names of attributes of HTML or XML whose values are translated, such as `alt`, `title` and "
            "`placeholder`; by default none of texts, and in documents those of HTML that people see or hear.",
        ),
    ] = None

    glossary: Annotated[
        dict[
            Annotated[str, Field(min_length=1, max_length=MAX_TERM_LENGTH)],
            Annotated[str, Field(min_length=1, max_length=MAX_TERM_LENGTH)],
        ]
        | None,
        Field(
            max_length=MAX_ENTRIES,
            description="Translations that must be used, by the term of the text: `Vertrag`: `agreement`. Terms are "
            "found by whole words, in any case, in German and English also inflected. A `*` at the end of a "
            "translation lets its word go on, as in a plural. At most 10 terms of a sentence are demanded.",
        ),
    ] = None

    def changed(self, **values: object) -> Self:
        """Return parameters with other values, which are not checked."""
        found = self.model_copy(update=values)
        found.__dict__.pop("terms", None)  # of the former glossary
        return found

    @functools.cached_property
    def terms(self) -> Glossary | None:
        """The glossary, None without one; raises `QueryError` for terms that are empty or there twice."""
        return None if self.glossary is None else Glossary.of(self.glossary)

    def with_glossary(self, entries: dict[str, str], terms: Glossary) -> Self:
        """Return parameters with other entries of the glossary, and the terms that were made of them before."""
        found = self.model_copy(update={"glossary": entries})
        found.__dict__["terms"] = terms
        return found

    def markup(self) -> Markup:
        """Return the format; raises `QueryError` for names of elements or attributes of a text that has none."""
        names = {"ignore_tags": self.ignore_tags, "translate_attributes": self.translate_attributes}
        if self.format not in _WITH_ELEMENTS and (given := [name for name, value in names.items() if value]):
            raise QueryError(f"{given[0]} is for the formats {' and '.join(_WITH_ELEMENTS)}, not for {self.format}")
        return Markup(self.format, tuple(self.ignore_tags or ()), tuple(self.translate_attributes or ()))

    def reading(self) -> dict[str, object]:
        """Return the fields of `models.documents.DocumentOptions` that are chosen, by which a document is read.

        Raises `QueryError` for a coverage, which documents cannot have.
        """
        if self.coverage is not None:
            raise QueryError("coverage: there is none of documents")
        attributes = self.translate_attributes
        return {
            "value_format": self.format,
            "ignore_tags": tuple(self.ignore_tags or ()),
            "translate_attributes": None if attributes is None else tuple(attributes),
        }

    def protection(self) -> Protection:
        """Return the protected kinds and expressions; raises `QueryError` for invalid expressions."""
        if self.protect is None and self.protect_kinds is None and self.numbers == "copy":
            return DEFAULT_PROTECTION
        kinds = DEFAULT_KINDS if self.protect_kinds is None else tuple(self.protect_kinds)
        return Protection(kinds, tuple(self.protect or ()), self.numbers)


class AlignmentLink(Record):
    """A word of the text and a word of the translation that stand for each other."""

    source: list[int]
    """First character of the word in the text, and the one after its last, in code points."""
    target: list[int]
    """First character of the word in the translation, and the one after its last, in code points."""


class RatedWord(Record):
    """A word of a translation."""

    target: list[int]
    """First character of the word in the translation, and the one after its last, in code points."""
    confidence: float
    """Probability that the model gives to the word after the words before it, in [0, 1]."""


class RatedSentence(Record):
    """A sentence of the text and its translation."""

    source: list[int]
    """First character of the sentence in the text, and the one after its last, in code points."""
    target: list[int]
    """First character of its translation, and the one after its last, in code points."""
    confidence: Annotated[
        float | None,
        Field(description="Probability that the translation is acceptable, only of models that know it."),
    ] = None
    words: list[RatedWord]
    """The words of the translation, punctuation marks included."""


class GlossaryTerm(Record):
    """A term of the glossary that the text has."""

    term: str
    """The term, as the glossary has it."""
    translation: str
    """Its translation, in capitals where the text has the term in capitals."""
    used: bool
    """Whether the sentence's translation has it, in any case."""
    source: Annotated[
        list[int] | None,
        Field(description="First character of the term in the text, and the one after its last; not with markup."),
    ] = None
    target: Annotated[
        list[int] | None,
        Field(description="The same in the translation, where it is used; not with markup."),
    ] = None


class TranslatedText(ScoredText):
    """A translation and its score: log-probability / length^length_penalty, summed over sentences."""

    alignment: Annotated[
        list[AlignmentLink] | None,
        Field(description="Links between words, only where `alignment` was asked for. Copied parts have none."),
    ] = None
    sentences: Annotated[
        list[RatedSentence] | None,
        Field(description="Confidence in sentences and words, only where `confidences` was asked for."),
    ] = None
    glossary: Annotated[
        list[GlossaryTerm] | None,
        Field(description="Terms of the glossary that the text has, and whether they are used; only with `glossary`."),
    ] = None


class TranslateResult(Record):
    """The translations of one text, best first."""

    text: str
    """The text as it was sent."""
    translations: list[TranslatedText]
    """The `n_best` translations, best first; with `coverage`, those of the set."""
    low_confidence: Annotated[
        bool,
        Field(
            description="The best translation is likely to be poor: another language or script, cut off, numbers, "
            "signs, addresses, placeholders, markup or codes are not those of the source, branches of a message of ICU "
            "MessageFormat are left as they are, or the model is not sure: "
            "`confidence` is below the threshold that `GET /v1/models` says."
        ),
    ]
    confidence: Annotated[
        float | None,
        Field(
            description="Probability in [0, 1] that the best translation is acceptable, of the sentence where it is "
            "lowest; only of models that know it, where something was translated."
        ),
    ] = None
    detected_language: Annotated[
        str | None,
        Field(description="ISO 639 code of the text's language, only where it is not the model's; und: unclear which."),
    ] = None
    source_language: Annotated[
        str | None,
        Field(description="Code of the language that the text was read as, only of models that read several."),
    ] = None
    via: Annotated[
        str | None,
        Field(description="Code of the third language that the text was translated through, where no model is direct."),
    ] = None
    models: Annotated[
        list[str] | None,
        Field(description="The two models of such a translation, as name:version, in their order."),
    ] = None
    truncated: Truncated = None
    calibration_examples: Annotated[
        int | None,
        Field(description="Examples that the set was calibrated on; absent without the parameter `coverage`."),
    ] = None
