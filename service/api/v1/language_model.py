"""`POST /v1/next-word` and `POST /v1/score`."""

import math
from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from models.tasks.language_model import (
    LanguageModel,
    NextWord,
    NextWords,
    NextWordsQuery,
    ScoreQuery,
    SentenceScore,
    TokenScore,
)
from service.api.answer import Answer
from service.api.endpoint import answer, register
from service.api.requests import Body, Deadline, ModelName, Priority, Texts, Truncate
from service.api.route import ModelRoute
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)
register("language-model")(router)


class NextWordRequest(Body):
    """Contexts to continue."""

    context: Texts
    top_k: Annotated[int, Field(ge=1, description="Words to return, at most the vocabulary's size.")] = 10
    explain: Annotated[bool, Field(description="Return the weight of each mixture component.")] = False
    truncate: Truncate = False
    model: ModelName = None


class ScoreRequest(Body):
    """Sentences to score."""

    text: Texts
    explain: Annotated[
        bool, Field(description="Return each token's rank, the entropy before it, and the most probable words instead.")
    ] = False
    top_k: Annotated[int, Field(ge=1, le=100, description="Words to return instead of each token, with explain.")] = 5
    truncate: Truncate = False
    model: ModelName = None


class Word(BaseModel):
    """`</s>` is the end of the sentence, `<unk>` any word outside the vocabulary."""

    word: str
    probability: float
    log_probability: float


class ComponentWeight(BaseModel):
    """Weight of one mixture component in this context."""

    kernel: str
    weight: float


class NextWordResult(BaseModel):
    """The next words after one context, most probable first; entropy of the whole distribution in nats.

    Words of probability 0 are left out, so that a sparse-softmax may return fewer words than asked for.
    """

    context: str
    words: list[Word]
    entropy: float
    components: list[ComponentWeight] | None = None


class NextWordResponse(BaseModel):
    """One result per context, in order."""

    model: str
    version: int
    results: list[NextWordResult]


class Token(BaseModel):
    """One word of a scored text; the last is the sentence end."""

    word: str
    log_probability: Annotated[float | None, Field(description="`null` where the probability is 0.")]
    unknown: bool


class ExplainedToken(Token):
    """A word and the distribution that it is drawn from: its entropy in nats, and its most probable words."""

    rank: Annotated[int | None, Field(description="1 for the most probable word; `null` where the probability is 0.")]
    entropy: float
    alternatives: list[Word]


class ScoreResult(BaseModel):
    """Log-probability (base e) of a text and its end, and the perplexity per token.

    Both are `null` where a token has probability 0, which a sparse-softmax gives all words but the best: JSON has no
    infinity.
    """

    text: str
    log_probability: float | None
    perplexity: float | None
    tokens: list[ExplainedToken] | list[Token]


class ScoreResponse(BaseModel):
    """One result per text, in order."""

    model: str
    version: int
    results: list[ScoreResult]


@router.post(
    "/next-word", response_model=NextWordResponse, response_model_exclude_none=True, responses=PROBLEM_RESPONSES
)
async def next_word(
    body: NextWordRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer:
    """Return the most probable next words after each context."""

    def query(model: LanguageModel, context: str) -> NextWordsQuery:
        return model.next_words_query(context, body.top_k, truncate=body.truncate)

    return await answer(
        request,
        "next-word",
        body.context,
        query,
        lambda result: _next_word_result(result, body.explain),
        model=body.model,
        timeout_ms=timeout_ms,
        priority=priority,
        items_per_input=lambda model: min(body.top_k, model.vocab_size),
    )


@router.post("/score", response_model=ScoreResponse, responses=PROBLEM_RESPONSES)
async def score(body: ScoreRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None) -> Answer:
    """Return the log-probability and perplexity of each text, word by word."""

    def query(model: LanguageModel, text: str) -> ScoreQuery:
        return model.score_query(text, explain=body.top_k if body.explain else 0, truncate=body.truncate)

    return await answer(
        request,
        "score",
        body.text,
        query,
        lambda result: _score_result(result, body.explain),
        model=body.model,
        timeout_ms=timeout_ms,
        priority=priority,
        batches="explain" if body.explain else None,
    )


def _next_word_result(result: NextWords, explain: bool) -> NextWordResult:
    shown = explain and len(result.components) > 1
    components = [ComponentWeight(kernel=c.kernel, weight=c.weight) for c in result.components] if shown else None
    return NextWordResult(
        context=result.context, words=_words(result.words), entropy=result.entropy, components=components
    )


def _words(words: Iterable[NextWord]) -> list[Word]:
    return [Word(word=word.word, probability=word.probability, log_probability=word.log_probability) for word in words]


def _score_result(result: SentenceScore, explain: bool) -> ScoreResult:
    make = _explained if explain else _token
    tokens = [make(token) for token in result.tokens]
    return ScoreResult(
        text=result.text,
        log_probability=_finite(result.log_probability),
        perplexity=_finite(result.perplexity),
        tokens=tokens,
    )


def _token(token: TokenScore) -> Token:
    return Token(word=token.word, log_probability=_finite(token.log_probability), unknown=token.unknown)


def _explained(token: TokenScore) -> ExplainedToken:
    plain, alternatives = _token(token).model_dump(), _words(token.alternatives)
    return ExplainedToken(**plain, rank=token.rank, entropy=token.entropy or 0.0, alternatives=alternatives)


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
