"""`GET /v1/languages`: which languages the served models translate between, and through which third one."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict

from models.tasks.registry import listed_operations
from models.text.language_codes import same_language
from service.engine.languages import LanguagePair, language_pairs
from service.http.errors import PROBLEM_RESPONSES
from service.http.requests import engine_of

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"])

Source = Annotated[str | None, Query(max_length=16, description="List the targets of this source language alone.")]


class TargetLanguage(BaseModel):
    """A language that a source language is translated to."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    code: str
    """The target language, spelled as in the model's manifest."""
    models: list[str]
    """The model as name:version, or the two models of a translation through a third language in their order."""
    via: str | None
    """Code of the third language; null where a model is direct."""


class SourceLanguage(BaseModel):
    """A language that models read."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    code: str
    """The source language, spelled as in the model's manifest."""
    targets: list[TargetLanguage]
    """The languages that it is translated to, those of direct models first."""


class LanguageList(BaseModel):
    """The languages of the served models."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    languages: list[SourceLanguage]
    """The source languages."""
    default_target: str | None
    """Code of the language to which requests without a target language are translated; null without such a setting."""
    documents: bool
    """Whether documents are translated: `POST /v1/documents`."""


@router.get("/languages", responses={503: PROBLEM_RESPONSES[503]})
def list_languages(request: Request, source: Source = None) -> LanguageList:
    """Return the language pairs that requests without a model can ask for, of which each has the newest version."""
    engine = engine_of(request)
    operation = next(each for each in listed_operations() if each.between_languages is not None)
    pairs = language_pairs(engine.served_models, operation, engine.settings.pivot_language)
    found: dict[str, dict[str, LanguagePair]] = {}
    for pair in pairs:
        if source is None or same_language(pair.source, source):
            found.setdefault(pair.source, {}).setdefault(pair.target, pair)
    return LanguageList(
        languages=[SourceLanguage(code=code, targets=list(map(_target, of.values()))) for code, of in found.items()],
        default_target=engine.settings.default_target_language,
        documents=request.app.state.jobs is not None,
    )


def _target(pair: LanguagePair) -> TargetLanguage:
    return TargetLanguage(code=pair.target, models=list(pair.models), via=pair.via)
