"""`POST /v1/next-word` and `POST /v1/score`."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BeforeValidator, Field

from models.tasks.language_model import LanguageModel
from models.tasks.language_results import NextWords, NextWordsQuery, ScoreQuery
from service.api.answer import Answer, Result, Results
from service.api.endpoint import answer, register
from service.api.requests import Body, Deadline, ModelName, Priority, Texts, Truncate, examples
from service.api.route import ModelRoute
from service.errors import PROBLEM_RESPONSES

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)
register("language-model")(router)


class NextWordRequest(Body):
    """Contexts to continue."""

    model_config = examples(
        {"context": "we had a very", "top_k": 5}, {"context": ["we had a", "I am"], "explain": True}
    )

    context: Annotated[Texts, Field(description="A text to continue, or a list of texts.")]
    top_k: Annotated[int, Field(ge=1, description="Words to return, at most the vocabulary's size.")] = 10
    explain: Annotated[bool, Field(description="Return the weight of each mixture component.")] = False
    truncate: Truncate = False
    model: ModelName = None


class ScoreRequest(Body):
    """Sentences to score."""

    model_config = examples(
        {"text": ["books can be outdated", "he goed home"]},
        {"text": "we had a very good time", "explain": True, "top_k": 3},
    )

    text: Annotated[Texts, Field(description="A sentence, or a list of sentences.")]
    explain: Annotated[
        bool, Field(description="Return each token's rank, the entropy before it, and the most probable words instead.")
    ] = False
    top_k: Annotated[int, Field(ge=1, le=100, description="Words to return instead of each token, with explain.")] = 5
    truncate: Truncate = False
    model: ModelName = None


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


Finite = Annotated[float | None, BeforeValidator(_finite)]
"""A number, or `null` where it is infinite: JSON has no infinity."""


class Word(Result):
    """A word of the vocabulary, or the end of the sentence, which is spelled `</s>`."""

    word: str
    """The word, or `</s>`."""
    probability: float
    """Its probability, above 0."""
    log_probability: float
    """Natural logarithm of the probability."""
    sentence_end: bool
    """Whether it is the end of the sentence."""


class ComponentWeight(Result):
    """Weight of one mixture component in this context."""

    kernel: str
    """Name of the component's kernel."""
    weight: float
    """Its weight, 0 to 1; the weights of all components sum to 1."""


class NextWordResult(Result):
    """The next words after one context, most probable first; entropy of the whole distribution in nats.

    Words of probability 0 are left out, so that a sparse-softmax may return fewer words than asked for.
    """

    context: str
    """The context as it was sent."""
    words: list[Word]
    """The next words, most probable first."""
    unknown: Annotated[list[str], Field(description="Words of the context that are outside the vocabulary.")]
    unknown_probability: Annotated[
        float, Field(description="Probability of any word outside the vocabulary; with all words it sums to 1.")
    ]
    entropy: float
    """Entropy of the whole distribution, in nats."""
    components: list[ComponentWeight] | None = None
    """Weights of a mixture's components, with `explain`."""


class NextWordResponse(Results[NextWordResult]):
    """One result per context, in order."""


class Token(Result):
    """One word of a scored text; the last is the sentence end."""

    word: str
    """The word as the model reads it, or `</s>`."""
    log_probability: Annotated[Finite, Field(description="`null` where the probability is 0.")]
    unknown: Annotated[bool, Field(description="The word is outside the vocabulary.")]
    sentence_end: bool
    """Whether it is the end of the sentence."""


class ExplainedToken(Token):
    """A word and the distribution that it is drawn from: its entropy in nats, and its most probable words."""

    rank: Annotated[int | None, Field(description="1 for the most probable word; `null` where the probability is 0.")]
    entropy: float
    """Entropy of the distribution that the word is drawn from, in nats."""
    alternatives: list[Word]
    """The most probable words at this position."""


class ScoreResult(Result):
    """Log-probability (base e) of a text and its end, and the perplexity per token.

    Most sentences end with punctuation: compare texts that end alike.

    Both are `null` where a token has probability 0, which a sparse-softmax gives all words but the best: JSON has no
    infinity.
    """

    text: str
    """The text as it was sent."""
    log_probability: Finite
    """Natural logarithm of the probability of the text and its end; `null` where it is minus infinity."""
    perplexity: Finite
    """Perplexity per token, the sentence end included; `null` where it is infinite."""
    tokens: Sequence[Token]
    """The words of the text and the sentence end, in order."""


class ExplainedScore(ScoreResult):
    """A score with the distribution that each word is drawn from."""

    tokens: Sequence[ExplainedToken]
    """The words of the text and the sentence end, in order."""


class ScoreResponse(Results[ScoreResult | ExplainedScore]):
    """One result per text, in order."""


@router.post(
    "/next-word", response_model=NextWordResponse, response_model_exclude_none=True, responses=PROBLEM_RESPONSES
)
async def next_word(
    body: NextWordRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer[Any]:
    """Return the most probable next words after each context."""

    def query(model: LanguageModel, context: str) -> NextWordsQuery:
        return model.next_words_query(context, body.top_k, truncate=body.truncate)

    def result(found: NextWords) -> NextWordResult:
        response = NextWordResult.of(found)
        if not body.explain or len(found.components) == 1:
            response.components = None
        return response

    return await answer(
        request,
        "next-word",
        body.context,
        query,
        result,
        model=body.model,
        timeout_ms=timeout_ms,
        priority=priority,
        items_per_input=lambda model: min(body.top_k, model.vocab_size),
    )


@router.post("/score", response_model=ScoreResponse, responses=PROBLEM_RESPONSES)
async def score(
    body: ScoreRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer[Any]:
    """Return the log-probability and perplexity of each text, word by word."""

    def query(model: LanguageModel, text: str) -> ScoreQuery:
        return model.score_query(text, explain=body.top_k if body.explain else 0, truncate=body.truncate)

    return await answer(
        request,
        "score",
        body.text,
        query,
        ExplainedScore.of if body.explain else ScoreResult.of,
        model=body.model,
        timeout_ms=timeout_ms,
        priority=priority,
        batches="explain" if body.explain else None,
    )
