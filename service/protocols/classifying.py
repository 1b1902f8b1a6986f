"""Classification of texts for protocols that ask for the scores of all classes."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request

from models.tasks.text_classification import Classification, Classifier, ClassifyQuery
from service.api.answer import Answer
from service.api.endpoint import answer
from service.api.requests import timeout_of

__all__ = ["class_scores", "classified", "function_of", "tells_out_of_scope"]


def _classes(model: Any) -> Any:
    """Return the section of a classifier's manifest about its classes; None for a model of another distribution."""
    return getattr(model.config, "classes", None)


def function_of(model: Any) -> str:
    """Return how a classifier makes probabilities of scores: `sigmoid`, each by itself, or `softmax`, all together."""
    return "sigmoid" if getattr(_classes(model), "independent", False) else "softmax"


def tells_out_of_scope(model: Any) -> bool:
    """Return whether a classifier has a rule for inputs of no class."""
    return getattr(_classes(model), "out_of_scope", None) is not None


async def classified(
    request: Request,
    texts: Sequence[str],
    *,
    model: str | None = None,
    top_k: int | None = None,
    truncate: bool = False,
) -> Answer[Classification]:
    """Classify each text; all classes without `top_k`. Raises the errors of `answer`."""

    def most(classifier: Classifier) -> int:
        return len(classifier.labels) if top_k is None else min(top_k, len(classifier.labels))

    def query(classifier: Classifier, text: str) -> ClassifyQuery:
        return classifier.query(text, most(classifier), truncate=truncate)

    def as_it_is(result: Classification) -> Classification:
        return result

    return await answer(
        request,
        "classify",
        texts,
        query,
        as_it_is,
        model=model,
        timeout_ms=timeout_of(request),
        priority=request.headers.get("priority"),
        items_per_input=most,
    )


def class_scores(result: Classification) -> list[dict[str, Any]]:
    """Return label and probability of each class, most probable first; those of probability 0 are left out."""
    return [{"score": each.probability, "label": each.label} for each in result.labels]
