"""Softserve's own endpoints: next words, scores, models."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from models import QueryError, UnknownModelError
from models.language_model import NextWords, SentenceScore
from models.manifest import Limits, Quality
from service.engine.registry import Registry, ServedModel
from service.errors import PROBLEM_RESPONSES
from service.settings import Settings

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"])


_INLINE_CHARACTERS = 20_000
"""Longer requests are tokenized on another thread, so that they do not hold up everybody else's."""


def _no_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text holds half of a surrogate pair, which is no character") from None
    return text


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise ValueError("must be a text or a list of texts")
    return value


Text = Annotated[str, AfterValidator(_no_surrogates)]
Texts = Annotated[
    list[Text],
    BeforeValidator(_as_list),
    Field(min_length=1),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        mode="validation",
    ),
]
"""One text or a list of them."""

ModelName = Annotated[
    Text | None, Field(description='Such as "next-word" or "next-word:1"; optional where one model serves the task.')
]
Truncate = Annotated[bool, Field(description="Cut a text that is too long instead of refusing it.")]
Deadline = Annotated[
    int | None, Header(alias="X-Request-Timeout-Ms", ge=1, le=3_600_000, description="Deadline in milliseconds.")
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NextWordRequest(_Body):
    """Contexts to continue."""

    context: Texts
    top_k: Annotated[int, Field(ge=1, description="Words to return, at most the vocabulary's size.")] = 10
    explain: Annotated[bool, Field(description="Return the weight of each mixture component.")] = False
    truncate: Truncate = False
    model: ModelName = None


class ScoreRequest(_Body):
    """Sentences to score."""

    text: Texts
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
    """What may follow one context, most probable first; entropy of the whole distribution in nats.

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


class ScoreResult(BaseModel):
    """Log-probability (base e) of a text and its end, and the perplexity per token.

    Both are `null` where a token has probability 0, which a sparse-softmax gives all words but the best: JSON has no
    infinity.
    """

    text: str
    log_probability: float | None
    perplexity: float | None
    tokens: list[Token]


class ScoreResponse(BaseModel):
    """One result per text, in order."""

    model: str
    version: int
    results: list[ScoreResult]


class ModelInfo(BaseModel):
    """A served model."""

    name: str
    version: int
    task: str
    description: str
    licence: str
    state: str
    digest: str
    """sha256 of the manifest."""
    vocab_size: int
    kernels: list[str]
    limits: Limits
    quality: list[Quality]


class ModelList(BaseModel):
    """All served models."""

    models: list[ModelInfo]


@router.post("/next-word", response_model_exclude_none=True, responses=PROBLEM_RESPONSES)
async def next_word(
    body: NextWordRequest, request: Request, response: Response, timeout_ms: Deadline = None
) -> NextWordResponse:
    """The most probable next words after each context."""
    served = _find(request, body.model)
    results = await _run(
        request,
        response,
        served,
        "next-word",
        lambda text: served.model.next_words_query(text, body.top_k, truncate=body.truncate),
        body.context,
        timeout_ms,
    )
    name, version = served.manifest.name, served.manifest.version
    return NextWordResponse(
        model=name, version=version, results=[_next_word_result(result, body.explain) for result in results]
    )


@router.post("/score", responses=PROBLEM_RESPONSES)
async def score(body: ScoreRequest, request: Request, response: Response, timeout_ms: Deadline = None) -> ScoreResponse:
    """Log-probability and perplexity of each text, word by word."""
    served = _find(request, body.model)
    results = await _run(
        request,
        response,
        served,
        "score",
        lambda text: served.model.score_query(text, truncate=body.truncate),
        body.text,
        timeout_ms,
    )
    name, version = served.manifest.name, served.manifest.version
    return ScoreResponse(model=name, version=version, results=[_score_result(result) for result in results])


@router.get("/models")
async def list_models(request: Request) -> ModelList:
    """Every served model."""
    registry: Registry = request.app.state.registry
    return ModelList(models=[_model_info(served) for _, served in sorted(registry.served.items())])


@router.get("/models/{name}", responses={404: PROBLEM_RESPONSES[404]})
async def get_models(name: str, request: Request) -> ModelList:
    """Every served version of one model; `name:version` for one of them."""
    registry: Registry = request.app.state.registry
    found = {key: served for key, served in registry.served.items() if name in (key[0], f"{key[0]}:{key[1]}")}
    if not found:
        raise UnknownModelError(name, [f"{known}:{version}" for known, version in sorted(registry.served)])
    return ModelList(models=[_model_info(served) for _, served in sorted(found.items())])


def _find(request: Request, name: str | None) -> ServedModel:
    registry: Registry = request.app.state.registry
    served = registry.find(name, "language-model")
    request.state.model = served.manifest.name  # for the metrics
    return served


async def _run(
    request: Request,
    response: Response,
    served: ServedModel,
    operation: str,
    query: Callable[[str], Any],
    texts: list[str],
    timeout_ms: int | None,
) -> list[Any]:
    """Checks and tokenizes the texts, has them computed, says in `Server-Timing` where the time went."""
    settings: Settings = request.app.state.settings
    started = time.monotonic()
    deadline = started + (timeout_ms or settings.request_timeout_ms) / 1000
    try:
        if sum(map(len, texts)) <= _INLINE_CHARACTERS:
            queries = [query(text) for text in texts]
        else:
            queries = await asyncio.to_thread(lambda: [query(text) for text in texts])
    except QueryError:
        served.observer.rejected("invalid", len(texts))
        raise
    tokenized = time.monotonic() - started
    served.observer.tokenized(tokenized)
    results, timing = await served.worker.submit(operation, queries, deadline)
    parts = {"queue": timing.queue, "tokenize": tokenized, "infer": timing.inference}
    response.headers["Server-Timing"] = ", ".join(f"{name};dur={1000 * s:.3f}" for name, s in parts.items())
    return results


def _next_word_result(result: NextWords, explain: bool) -> NextWordResult:
    words = [
        Word(word=word.word, probability=word.probability, log_probability=word.log_probability)
        for word in result.words
    ]
    shown = explain and len(result.components) > 1
    components = [ComponentWeight(kernel=c.kernel, weight=c.weight) for c in result.components] if shown else None
    return NextWordResult(context=result.context, words=words, entropy=result.entropy, components=components)


def _score_result(result: SentenceScore) -> ScoreResult:
    tokens = [
        Token(word=token.word, log_probability=_finite(token.log_probability), unknown=token.unknown)
        for token in result.tokens
    ]
    return ScoreResult(
        text=result.text,
        log_probability=_finite(result.log_probability),
        perplexity=_finite(result.perplexity),
        tokens=tokens,
    )


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def _model_info(served: ServedModel) -> ModelInfo:
    manifest = served.manifest
    return ModelInfo(
        name=manifest.name,
        version=manifest.version,
        task=manifest.task,
        description=manifest.description,
        licence=manifest.licence,
        state="ready",
        digest=served.digest,
        vocab_size=manifest.vocab_size,
        kernels=[kernel.name for kernel in manifest.softmax.kernels],
        limits=manifest.limits,
        quality=list(manifest.quality),
    )
