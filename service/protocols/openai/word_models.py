"""Language models that these endpoints can serve."""

from typing import cast

from models import QueryError
from models.tasks.language_model import LanguageModel
from models.tasks.model import AnyModel

__all__ = ["word_model"]


def word_model(model: AnyModel) -> LanguageModel:
    """Return a model whose tokens are words; raises `QueryError` for one of subwords."""
    if not hasattr(model, "spelled"):
        raise QueryError("this model does not write texts here; it answers /v1/next-word and /v1/score")
    return cast(LanguageModel, model)  # only these spell tokens as words
