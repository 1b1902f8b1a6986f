"""Vectors of texts, and numbers of pairs of texts, for the protocols of other services."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from models.operations.classification import ClassifyParams
from models.operations.encoding import EmbedParams, RerankParams
from models.operations.operation import always
from models.tasks.text_classification import CLASSIFY, Classification
from models.tasks.text_embedding import EMBED, Embedding
from models.tasks.text_regression import RERANK, Regression
from service.engine.client import Job, Outcome
from service.http.requests import caller_of, engine_of
from service.protocols.classifying import ALL_CLASSES

__all__ = ["TextPair", "classified_pairs", "embedded", "reranked"]

_OF_TOKENS = EMBED.with_query(
    lambda model, ids, params, _: model.token_query(ids, params.dimensions, params.normalize, params.precision),
    repeatable=always,
    variant="token ids",
)
_OF_PAIRS = CLASSIFY.with_query(
    lambda model, pair, params, _: model.pair_queries(
        [(pair.text, pair.text_pair)], params.top_k, truncate=params.truncate
    )[0],
    repeatable=always,
    variant="pairs",
)


@dataclass(frozen=True, slots=True)
class TextPair:
    """Two texts that a model reads together."""

    text: str
    text_pair: str

    def __len__(self) -> int:
        return len(self.text) + len(self.text_pair)


async def embedded(
    request: Request, inputs: Sequence[Any], params: EmbedParams, *, model: str | None = None
) -> Outcome[Embedding]:
    """Embed texts, or lists of token ids; raises the errors of `Engine.run`."""
    operation = EMBED if all(isinstance(each, str) for each in inputs) else _OF_TOKENS
    job = Job(operation=operation, inputs=inputs, params=params, model=model, caller=caller_of(request))
    return await engine_of(request).run(job)


async def reranked(
    request: Request, texts: Sequence[str], params: RerankParams, *, model: str | None = None
) -> Outcome[Regression]:
    """Return how well each text answers the query of `params`, in order; raises the errors of `Engine.run`."""
    job = Job(operation=RERANK, inputs=texts, params=params, model=model, caller=caller_of(request))
    return await engine_of(request).run(job)


async def classified_pairs(
    request: Request, pairs: Sequence[TextPair], *, truncate: bool = False
) -> Outcome[Classification]:
    """Classify each pair of texts, all classes; raises the errors of `Engine.run`."""
    params = ClassifyParams(top_k=ALL_CLASSES, truncate=truncate)
    job = Job(operation=_OF_PAIRS, inputs=pairs, params=params, caller=caller_of(request))
    return await engine_of(request).run(job)
