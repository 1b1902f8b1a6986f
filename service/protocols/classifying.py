"""Classification of texts for protocols that ask for the scores of all classes."""

import sys
from collections.abc import Sequence
from typing import Any

from fastapi import Request

from models.operations.classification import ClassifyParams
from models.tasks.model import AnyModel
from models.tasks.text_classification import CLASSIFY, Classification
from service.engine.client import Job, Outcome
from service.http.requests import caller_of, engine_of

__all__ = ["ALL_CLASSES", "class_scores", "classified", "function_of", "tells_out_of_scope"]


ALL_CLASSES = sys.maxsize
"""More classes than a model has."""


def _classes(model: AnyModel) -> Any:
    """Return the section of a classifier's manifest about its classes; None for a model of another distribution."""
    return getattr(model.config, "classes", None)


def function_of(model: AnyModel) -> str:
    """Return how a classifier makes probabilities of scores: `sigmoid`, each by itself, or `softmax`, all together."""
    return "sigmoid" if getattr(_classes(model), "independent", False) else "softmax"


def tells_out_of_scope(model: AnyModel) -> bool:
    """Return whether a classifier has a rule for inputs of no class."""
    return getattr(_classes(model), "out_of_scope", None) is not None


async def classified(
    request: Request,
    texts: Sequence[str],
    *,
    model: str | None = None,
    top_k: int | None = None,
    truncate: bool = False,
) -> Outcome[Classification]:
    """Classify each text; all classes without `top_k`. Raises the errors of `Engine.run`."""

    params = ClassifyParams(top_k=ALL_CLASSES if top_k is None else top_k, truncate=truncate)
    job = Job(operation=CLASSIFY, inputs=texts, params=params, model=model, caller=caller_of(request))
    return await engine_of(request).run(job)


def class_scores(result: Classification) -> list[dict[str, object]]:
    """Return label and probability of each class, most probable first; those of probability 0 are left out."""
    return [{"score": each.probability, "label": each.label} for each in result.labels]
