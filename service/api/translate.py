"""`POST /v1/translate`."""

from fastapi import APIRouter, Request
from pydantic import BaseModel

from models import TextTooLongError, Translator
from models.decoding.beam_search import Hypothesis
from models.tasks.translation import Translation, TranslationQuery
from service.api.answer import Answer
from service.api.requests import (
    Deadline,
    Priority,
    deadline_of,
    find,
    note_timing,
    queries_of,
    reserve_results,
    urgency_of,
)
from service.api.route import ModelRoute
from service.api.search import ScoredText, SearchBody
from service.engine.queue import QueueFull
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

_CHARACTERS_PER_ITEM = 8
"""White space counts as a token for so many characters."""

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)


class TranslateRequest(SearchBody):
    """Texts to translate, sentence by sentence."""


class TranslateResult(BaseModel):
    """The translations of one text, best first."""

    text: str
    translations: list[ScoredText]


class TranslateResponse(BaseModel):
    """One result per text, in order."""

    model: str
    version: int
    results: list[TranslateResult]


@router.post("/translate", response_model=TranslateResponse, responses=PROBLEM_RESPONSES)
async def translate(
    body: TranslateRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer:
    """Translates each text. Its sentences are translated independently of each other and of other requests."""
    served = find(request, body.model, "translation")
    model = served.model
    assert isinstance(model, Translator)
    deadline = deadline_of(request, timeout_ms)
    options = body.options()

    def query(text: str) -> TranslationQuery:
        most = served.worker.limits.max_queue_items
        try:
            return model.query(text, body.beam_size, options=options, truncate=body.truncate, max_sentences=most)
        except TextTooLongError as error:
            if error.unit == "sentences":
                raise QueueFull(never=True) from error
            raise

    queries, tokenized = await queries_of(
        request,
        served,
        query,
        body.text,
        deadline,
    )
    parts = [part for query in queries for part in query.parts()]
    white_space = sum(query.white_space for query in queries)
    items = sum(part.result_items for part in parts) + body.n_best * white_space // _CHARACTERS_PER_ITEM
    await reserve_results(request, items, deadline)
    found, timing = await served.worker.submit(str(body.beam_size), parts, deadline, urgency_of(priority))
    note_timing(request, tokenized, timing)
    rest = iter(found)
    results = (_result(model, query, [next(rest) for _ in query.parts()]) for query in queries)
    return Answer(served, results, items)


def _result(model: Translator, query: TranslationQuery, found: list[list[Hypothesis]]) -> TranslateResult:
    translation: Translation = model.joined(query, found)
    texts = [ScoredText(text=each.text, score=each.score) for each in translation.translations]
    return TranslateResult(text=translation.text, translations=texts)
