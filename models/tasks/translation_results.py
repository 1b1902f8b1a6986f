"""Results of translation: texts with their translations, and their words, sentences and terms."""

from dataclasses import dataclass

from models.text.words import Span

__all__ = ["GlossaryUse", "Link", "Translated", "TranslatedSentence", "TranslatedWord", "Translation"]


@dataclass(frozen=True, slots=True)
class Link:
    """A word of a text and a word of its translation that stand for each other."""

    source: Span
    """Characters of the text."""
    target: Span
    """Characters of the translation."""


@dataclass(frozen=True, slots=True)
class TranslatedWord:
    """A word of a translation."""

    target: Span
    """Characters of the translation."""
    confidence: float
    """Probability that the model gives to the word's tokens after the words before it."""


@dataclass(frozen=True, slots=True)
class TranslatedSentence:
    """A sentence of a text and its translation."""

    source: Span
    """Characters of the text."""
    target: Span
    """Characters of the translation."""
    confidence: float | None
    """Probability that the translation is acceptable; None of a model without `confidence`."""
    words: tuple[TranslatedWord, ...]
    """The words of the translation, punctuation marks included."""


@dataclass(frozen=True, slots=True)
class GlossaryUse:
    """A term of a glossary that a text has, and whether its translation has what the glossary says."""

    term: str
    """The term, as the glossary has it."""
    translation: str
    """Its translation, in capitals where the text has the term in capitals."""
    used: bool
    """Whether the sentence's translation has it, in any case of its letters."""
    source: Span | None = None
    """Characters of the term in the text; None in a text with markup."""
    target: Span | None = None
    """Characters of the translation; None where it is not used, and in a text with markup."""


@dataclass(frozen=True, slots=True)
class Translated:
    """One translation of a text."""

    text: str
    """The translation."""
    score: float
    """Sum of its sentences' scores: log-probability / length^alpha."""
    alignment: tuple[Link, ...] | None = None
    """Links between words, where they were asked for."""
    sentences: tuple[TranslatedSentence, ...] | None = None
    """Confidence in the sentences and their words, where it was asked for."""
    glossary: tuple[GlossaryUse, ...] | None = None
    """The terms that the text has, where there is a glossary."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A text and its translations, best first."""

    text: str
    """The text as it was given."""
    translations: tuple[Translated, ...]
    """The `n_best` translations."""
    low_confidence: bool
    """Whether the best translation is likely to be poor: the text, or a part of it, is in another language or script,
    the length limit cut a sentence's translation off, the model's confidence is below the threshold of its manifest, or
    numbers, signs, addresses, placeholders, markup or codes are not those of the source."""
    detected_language: str | None = None
    """ISO 639 code of the text's language where it is not the model's, `und` where it is unclear which."""
    truncated: int | None = None
    """Tokens of sentences that `truncate` left out, an estimate for very long ones; None where none was cut."""
    confidence: float | None = None
    """Probability that the best translation of the sentence that is least likely to be right is acceptable; None of a
    model without `confidence`, and where nothing was translated."""
    source_language: str | None = None
    """Code of the language that the text was read as; None of a model that reads one."""
    via: str | None = None
    """Code of the third language that the text was translated through; None where one model translates directly."""
    models: tuple[str, ...] | None = None
    """`name:version` of the models of both steps, where there is a third language."""
    calibration_examples: int | None = None
    """Examples that a set was calibrated on; None where no coverage was chosen."""
