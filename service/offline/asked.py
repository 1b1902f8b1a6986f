"""An operation with the parameters that a command has chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pydantic import ValidationError

from models.operations.operation import AnyOperation, Params
from models.operations.validation import named_sentence
from models.tasks.model import AnyModel, Query
from service.offline.options import UsageError
from service.offline.outputs import Shown

__all__ = ["Asked"]


@dataclass(frozen=True, slots=True)
class Asked:
    """An operation and its parameters: texts become queries, and results lines."""

    operation: AnyOperation
    params: Params

    @classmethod
    def of(cls, operation: AnyOperation, chosen: Mapping[str, object]) -> "Asked":
        """Check parameters; raises `UsageError`."""
        try:
            return cls(operation, operation.params.model_validate(chosen))
        except ValidationError as error:
            first = error.errors()[0]
            option = "--" + str(first["loc"][0]).replace("_", "-")
            raise UsageError(named_sentence(first, [option, *first["loc"][1:]])) from None

    @property
    def name(self) -> str:
        """Name of the operation."""
        return self.operation.name

    def function_of(self, model: AnyModel) -> str:
        """Return the name of the model's function that computes it."""
        return self.operation.function_of(model, self.params)

    def query(self, model: AnyModel, text: str) -> Query:
        """Make a query of a text; raises `QueryError`."""
        query: Query = self.operation.query(model, text, self.params, None)
        return query

    def shown(self, result: object) -> Shown:
        """Return the line of a result."""
        cells = self.operation.cells_of(result, self.params)
        return Shown(cells, partial(self.operation.content_of, result, self.params))
