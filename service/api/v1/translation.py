"""`POST /v1/translate`."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from models.tasks.translation import TranslationQuery, Translator
from service.api.answer import Answer, Result, Results
from service.api.endpoint import answer, register
from service.api.requests import Deadline, Priority, examples
from service.api.route import ModelRoute
from service.api.search import ScoredText, SearchBody
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)
register("translation")(router)


class TranslateRequest(SearchBody):
    """Texts to translate, sentence by sentence, within lines. What has nothing to translate is copied."""

    model_config = examples(
        {"text": "Guten Morgen!"}, {"text": ["Wo ist der Bahnhof?", "Ich habe Hunger."], "beam_size": 4, "n_best": 2}
    )

    target_language: Annotated[
        str | None,
        Field(max_length=16, description="Code of the language to write; by default `languages.target` of the model."),
    ] = None


class TranslateResult(Result):
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


class TranslateResponse(Results[TranslateResult]):
    """One result per text, in order."""


@router.post(
    "/translate", response_model=TranslateResponse, response_model_exclude_none=True, responses=PROBLEM_RESPONSES
)
async def translate(
    body: TranslateRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer[TranslateResult]:
    """Translate each text. Its sentences are translated independently of each other and of other requests."""

    options = body.options()

    def query(model: Translator, text: str) -> TranslationQuery:
        return model.query(
            text,
            body.beam_size,
            options=options,
            truncate=body.truncate,
            max_sentences=request.app.state.settings.max_queue_items,
            target_language=body.target_language,
        )

    result = TranslateResult.of
    return await answer(
        request, "translate", body.text, query, result, model=body.model, timeout_ms=timeout_ms, priority=priority
    )
