"""Translation: parameters and records."""

from typing import Annotated

from pydantic import Field

from models.operations.operation import Record, Truncated
from models.operations.search import ScoredText, SearchParams

__all__ = ["TranslateParams", "TranslateResult"]


class TranslateParams(SearchParams):
    """What can be chosen of a translation."""

    target_language: Annotated[
        str | None,
        Field(max_length=16, description="Code of the language to write; by default `languages.target` of the model."),
    ] = None


class TranslateResult(Record):
    """The translations of one text, best first."""

    text: str
    """The text as it was sent."""
    translations: list[ScoredText]
    """The `n_best` translations, best first."""
    low_confidence: Annotated[
        bool,
        Field(
            description="The best translation is likely to be poor: another language or script, cut off, numbers, "
            "signs, addresses, placeholders, markup or codes are not those of the source, or the model, if it has a "
            "threshold of confidence, is not sure."
        ),
    ]
    detected_language: Annotated[
        str | None,
        Field(description="ISO 639 code of the text's language, only where it is not the model's; und: unclear which."),
    ] = None
    truncated: Truncated = None
