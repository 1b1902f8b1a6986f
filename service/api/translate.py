"""`POST /v1/translate`."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from models import QueryError, Translator
from models.beam_search import Hypothesis, SearchOptions
from models.translator import MAX_BEAM_SIZE, Translation, TranslationQuery
from service.api.requests import (
    Body,
    Deadline,
    ModelName,
    Texts,
    Truncate,
    deadline_of,
    find,
    queries_of,
    say_timing,
)
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"])


class TranslateRequest(Body):
    """Texts to translate, sentence by sentence."""

    text: Texts
    beam_size: Annotated[int, Field(ge=1, le=MAX_BEAM_SIZE, description="1 is greedy search.")] = 5
    n_best: Annotated[int, Field(ge=1, le=MAX_BEAM_SIZE, description="Translations to return.")] = 1
    length_penalty: Annotated[
        float, Field(ge=0, le=10, description="Rank by log-probability / length^this; 0 prefers short translations.")
    ] = 1.0
    temperature: Annotated[
        float | None, Field(gt=0, le=100, description="Sample beam_size translations instead of searching.")
    ] = None
    seed: Annotated[int, Field(ge=0, lt=2**63, description="Of the samples.")] = 0
    sparse: Annotated[bool, Field(description="Keep only the beam_size best words of each step, renormalized.")] = False
    truncate: Truncate = False
    model: ModelName = None


class TranslatedText(BaseModel):
    """A translation and its score: the sum over sentences of log-probability / length^length_penalty."""

    text: str
    score: float


class TranslateResult(BaseModel):
    """The translations of one text, best first."""

    text: str
    translations: list[TranslatedText]


class TranslateResponse(BaseModel):
    """One result per text, in order."""

    model: str
    version: int
    results: list[TranslateResult]


@router.post("/translate", responses=PROBLEM_RESPONSES)
async def translate(
    body: TranslateRequest, request: Request, response: Response, timeout_ms: Deadline = None
) -> TranslateResponse:
    """Translates each text. Its sentences are translated independently of each other and of other requests."""
    served = find(request, body.model, "translation")
    model = served.model
    assert isinstance(model, Translator)
    deadline = deadline_of(request, timeout_ms)
    options = _options(body)
    queries, tokenized = await queries_of(
        served,
        lambda text: model.query(text, body.beam_size, options=options, truncate=body.truncate),
        body.text,
        deadline,
    )
    parts = [part for query in queries for part in query.parts()]
    found, timing = await served.worker.submit(str(body.beam_size), parts, deadline)
    say_timing(response, tokenized, timing)
    rest = iter(found)
    results = [_result(model, query, [next(rest) for _ in query.parts()]) for query in queries]
    return TranslateResponse(model=served.manifest.name, version=served.manifest.version, results=results)


def _options(body: TranslateRequest) -> SearchOptions:
    if body.n_best > body.beam_size:
        raise QueryError(f"n_best must be at most beam_size, which is {body.beam_size}, not {body.n_best}")
    return SearchOptions(
        n_best=body.n_best,
        length_penalty=body.length_penalty,
        temperature=body.temperature,
        seed=body.seed,
        sparse=body.sparse,
    )


def _result(model: Translator, query: TranslationQuery, found: list[list[Hypothesis]]) -> TranslateResult:
    translation: Translation = model.joined(query, found)
    texts = [TranslatedText(text=each.text, score=each.score) for each in translation.translations]
    return TranslateResult(text=translation.text, translations=texts)
