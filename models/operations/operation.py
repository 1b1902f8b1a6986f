"""Operations: parameters, how a model makes a query of an input, and the record of a result.

A model class lists its operations. HTTP endpoints, protocols and commands are made of that table alone, so that an
operation of another package has all of them.
"""

import contextlib
import functools
import json
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, get_args, get_origin

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import to_json

from models.operations.comparison import Comparison
from models.operations.plain import plain_form
from models.operations.query import Query
from models.text.limits import checked_text

__all__ = [
    "AnyOperation",
    "AnyOutput",
    "ArrayForm",
    "BetweenLanguages",
    "InDocuments",
    "Operation",
    "Output",
    "OutputKind",
    "Params",
    "Record",
    "Scalar",
    "Table",
    "Text",
    "TokenForm",
    "Truncate",
    "TruncateParams",
    "Truncated",
    "always",
]

Text = Annotated[str, AfterValidator(checked_text)]
"""A text without half of a surrogate pair."""
Truncate = Annotated[bool, Field(description="Cut a text that is too long instead of refusing it.")]
Truncated = Annotated[
    int | None,
    Field(
        description="Tokens that `truncate` left out of the text, only where it was cut; an estimate for a text of "
        "more than 64 characters for each token of the limit."
    ),
]

Scalar = str | float | int | bool | None
OutputKind = Literal["text", "number", "integer", "flag"]
_KINDS: Mapping[type, OutputKind] = {str: "text", float: "number", int: "integer", bool: "flag"}
_EMPTY: Mapping[OutputKind, Scalar] = {"text": "", "number": 0.0, "integer": 0, "flag": False}


class Params(BaseModel):
    """The parameters of an operation; unknown names are refused. Every parameter has a default."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TruncateParams(Params):
    """The parameter of models that read texts."""

    truncate: Truncate = False


class Record(BaseModel):
    """A result as plain data, made from the attributes of the same names that the result has."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)

    @classmethod
    def of(cls, result: object) -> Self:
        """Return the record of a model's result."""
        return cls.model_validate(result)


_OF = Record.of.__func__  # type: ignore[attr-defined]

ModelT = TypeVar("ModelT")
InputT = TypeVar("InputT")
ParamsT = TypeVar("ParamsT", bound=Params)
ResultT = TypeVar("ResultT")
ReadsModelT = TypeVar("ReadsModelT", contravariant=True)
ReadsResultT = TypeVar("ReadsResultT", contravariant=True)


def always(given: object) -> bool:
    """Return true, of any model or parameters."""
    del given
    return True


@dataclass(frozen=True, kw_only=True)
class Output(Generic[ReadsModelT, ReadsResultT]):
    """A value of each result, or a list of values: a tensor for protocols that have tensors."""

    name: str
    kind: OutputKind
    values: Callable[[ReadsModelT, ReadsResultT], Scalar | Sequence[Scalar]]
    """The value, or the values if there are `several`."""
    several: bool = False
    fill: Scalar = None
    """Stands where other results of a batch have more values; by default empty, 0 or false."""
    told_by: Callable[[ReadsModelT], bool] = always
    """Whether a model has the output."""

    @property
    def filler(self) -> Scalar:
        """What stands where other results have more values."""
        return _EMPTY[self.kind] if self.fill is None else self.fill


@dataclass(frozen=True, kw_only=True)
class TokenForm(Generic[ModelT, ParamsT, ResultT]):
    """An operation on texts that are given as token ids."""

    query: Callable[[ModelT, Sequence[int], ParamsT], Query]
    params: type[ParamsT]
    outputs: tuple[Output[ModelT, ResultT], ...]


@dataclass(frozen=True, kw_only=True)
class Table(Generic[ReadsResultT]):
    """Results as rows of a table, each of which may have several: a row for each word of a text."""

    columns: tuple[str, ...]
    rows: Callable[[ReadsResultT], Sequence[Sequence[Scalar]]]
    """The rows of a result, each with a value for each column; None is an empty one."""


@dataclass(frozen=True, kw_only=True)
class ArrayForm(Generic[ModelT, ParamsT, ResultT]):
    """A list of numbers of a record that is a row of an array: it has one size and type in all results."""

    field: str
    """Name of the list in the record."""
    form: Callable[[ModelT, ParamsT], tuple[int, np.dtype[Any]]]
    """The size and the type of a row. Raises `QueryError`."""
    values: Callable[[ResultT], NDArray[Any]]
    """The row of a result."""


@dataclass(frozen=True, kw_only=True)
class InDocuments(Generic[ModelT, ParamsT, ResultT]):
    """How an operation whose results are texts rewrites documents (`models.documents`)."""

    query: Callable[[ModelT, Any, ParamsT, int | None], Query]
    """Makes a query of a segment, as `Operation.query` does of a text."""
    text: Callable[[ResultT], str]
    """The text that stands in the place of the segment, in its format."""
    target_language: Callable[[ModelT, ParamsT], str]
    """Code of the language that is written."""
    reading: Callable[[ParamsT], Mapping[str, Any]] = lambda params: {}
    """Fields of `models.documents.DocumentOptions` that parameters have, by which a document is read."""
    doubtful: Callable[[ResultT], bool] = lambda result: False
    """Whether a result is likely to be wrong, so that a person should look at it."""


@dataclass(frozen=True, kw_only=True)
class BetweenLanguages(Generic[ModelT, ParamsT, ResultT]):
    """How an operation from one language to another chooses its model, and goes through a third language.

    Through a third language the first model's query is that of `Operation.query` with `first_params`. Its result
    is `first`, of which the second model makes a query, whose result is that of the operation.
    """

    sources: Callable[[ModelT], Sequence[str]]
    """Codes of the languages that a model reads, its default first."""
    targets: Callable[[ModelT], Sequence[str]]
    """Codes of the languages that a model writes, its default first."""
    asked: Callable[[ParamsT], tuple[str | None, str | None]]
    """The source and target language of parameters, None where they name none."""
    chosen: Callable[[ParamsT, str | None, str | None], ParamsT]
    """Makes parameters with other languages."""
    plain: Callable[[ParamsT, str], str]
    """What of an input is read to detect its language."""
    first_params: Callable[[ParamsT], ParamsT]
    """Parameters of the first step, but for its languages."""
    first_query: Callable[[ModelT, Any, ParamsT], Query]
    """Makes a query of the first step return what the second one needs. Raises `QueryError`."""
    first: Callable[[ModelT, Any, Sequence[Any], ParamsT], Any]
    """Makes the result of the first step of the outputs of its query; its `text` is the input of the second one."""
    second_query: Callable[[ModelT, Any, ParamsT, int | None], Query]
    """Makes the query of the second step, as `Operation.query` does."""


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[ModelT, InputT, ParamsT, ResultT]):
    """A computation that a model offers: an input and parameters in, a result out."""

    name: str
    """Such as `classify`, as metrics and commands have it."""
    summary: str
    """Description in a sentence: `Return the vector of each text.`"""
    about: str
    """Description of a request: `Texts to embed.`"""
    query: Callable[[ModelT, InputT, ParamsT, int | None], Query]
    """Makes a query of a model, an input and parameters. The last argument is the largest number of parts, if there is
    one. Raises `QueryError`."""
    queries: Callable[[ModelT, Sequence[InputT], ParamsT], Sequence[Query]] | None = None
    """Makes the same queries of several inputs, where that is faster. Raises `QueryError`."""
    params: type[ParamsT]
    record: type[Record]
    recorded: Callable[[ResultT, ParamsT], Record] | None = None
    """Makes the record of a result, where `record.of` does not."""
    records: tuple[type[Record], ...] = ()
    """The types of records that `recorded` makes, where they are several."""
    input: str = "text"
    """Name of the input."""
    describes_input: str = "A text or a list of texts."
    reads: Literal["text", "image"] = "text"
    """Kind of the input: of images, the bytes of a file or their base64."""
    path: str = ""
    """Last part of its path over HTTP, by default the name."""
    title: str = ""
    """Beginning of the names of its request and response, by default made of the path."""
    result_items: Callable[[ModelT, ParamsT], int] | None = None
    """Largest number of words, labels or tokens of an input's result, where it is known before the query is made."""
    counts_parts: Callable[[ParamsT], bool] | None = None
    """Whether with these parameters the outputs of an input's parts are held together, so that the result items of
    all parts are counted once the query is made, in place of those of the result."""
    slowly_prepared: Callable[[ParamsT], bool] | None = None
    """Whether with these parameters queries of short texts take so long to make that an event loop should not."""
    repeatable: Callable[[ParamsT], bool] | None = None
    """Whether with these parameters the same input always has the same result, so that a service may cache it. Without
    it results are not cached."""
    variant: Hashable = None
    """Tells apart repeatable operations of one name that make other queries of the same input and parameters."""
    computed_by: Callable[[ParamsT], str] | None = None
    """The model's batch function for these parameters, where it is not that of the operation's name. Models without it
    compute all by the latter."""
    omits_null: bool = False
    """Whether records leave out fields that are null."""
    command_defaults: Mapping[str, object] = field(default_factory=dict)
    """Parameters that have another default on the command line."""
    cells: Callable[[ResultT], Sequence[object]] | None = None
    """A result as the cells of a table, by default the single values of its record, or all as JSON where none is."""
    table: Table[ResultT] | None = None
    """A result as rows of CSV."""
    array: "ArrayForm[ModelT, ParamsT, ResultT] | None" = None
    """A result as a row of an array, for files of arrays."""
    outputs: tuple[Output[ModelT, ResultT], ...] = ()
    """By default the values of the record, but the input, that are text, number or truth value, or lists of them."""
    classes: str | None = None
    """The output that says how probable the classes of the first output are."""
    tokens: "TokenForm[ModelT, Any, ResultT] | None" = None
    in_documents: InDocuments[ModelT, ParamsT, ResultT] | None = None
    """How it rewrites documents, where it does."""
    between_languages: BetweenLanguages[ModelT, ParamsT, ResultT] | None = None
    """How it chooses a model by languages, where it does."""
    compare: Callable[[ResultT, ResultT], Comparison] | None = None
    """Compares the results of two models for one input; by default they agree where their records are equal."""
    examples: tuple[Mapping[str, object], ...] = ()
    """Inputs and parameters of example requests."""
    needed: tuple[str, ...] = ()
    """Parameters without which queries are refused; the first example has them."""

    @property
    def last_part(self) -> str:
        """Last part of its path over HTTP."""
        return self.path or self.name

    @property
    def schema_name(self) -> str:
        """Beginning of the names of its request and response."""
        return self.title or "".join(map(str.capitalize, self.last_part.split("-")))

    def function_of(self, model: Any, params: ParamsT) -> str:
        """Return the name of the batch function by which a model computes a job with these parameters."""
        function = self.name if self.computed_by is None else self.computed_by(params)
        return function if function in model.batch_functions else self.name

    def with_query(self, query: Callable[[Any, Any, Any, int | None], Query], **changes: Any) -> Self:
        """Return the operation with another way to make queries, and other changes.

        It is not repeatable unless `repeatable` is among the changes; then `variant` must say what `query` depends on.
        """
        return replace(self, query=query, queries=None, **{"repeatable": None, **changes})

    def record_of(self, result: ResultT, params: ParamsT) -> Record:
        """Return the record of a result."""
        return self.record.of(result) if self.recorded is None else self.recorded(result, params)

    def json_of(self, result: ResultT, params: ParamsT) -> bytes:
        """Return the record of a result as JSON."""
        if self._plain is not None:
            with contextlib.suppress(AttributeError, TypeError, ValueError):  # a result of other types than its record
                return to_json(self._plain(result), inf_nan_mode="null")
        record = self.record_of(result, params)
        return record.__pydantic_serializer__.to_json(record, exclude_none=self.omits_null)

    @functools.cached_property
    def _plain(self) -> Callable[[Any], Any] | None:
        if self.recorded is not None or getattr(self.record.of, "__func__", None) is not _OF:
            return None
        return plain_form(self.record, omits_null=self.omits_null)

    def content_of(self, result: ResultT, params: ParamsT) -> dict[str, object]:
        """Return the record of a result as a JSON object."""
        return self.record_of(result, params).model_dump(mode="json", exclude_none=self.omits_null)

    def cells_of(self, result: ResultT, params: ParamsT) -> Sequence[object]:
        """Return a result as the cells of a table."""
        if self.cells is not None:
            return self.cells(result)
        content = self.content_of(result, params)
        single = ["" if value is None else value for value in content.values() if not isinstance(value, (dict, list))]
        return single or [json.dumps(value) for value in content.values()]

    def comparison_of(self, first: ResultT, second: ResultT, params: ParamsT) -> Comparison:
        """Return how the result of a second model compares with that of a first one for the same input."""
        if self.compare is not None:
            return self.compare(first, second)
        return Comparison(agrees=self.content_of(first, params) == self.content_of(second, params))

    def tensors(self) -> tuple[Output[ModelT, ResultT], ...]:
        """Return the outputs, those of the record where none are listed."""
        return self.outputs or tuple(self._outputs_of_record())

    def _outputs_of_record(self) -> typing.Iterator[Output[ModelT, ResultT]]:
        for name, about in self.record.model_fields.items():
            kind, several = _kind_of(about.annotation)
            if kind is not None and name != self.input:
                empty = () if several else _EMPTY[kind]
                yield Output(name=name, kind=kind, several=several, values=self._value(name, empty))

    def _value(
        self, name: str, empty: Scalar | Sequence[Scalar]
    ) -> Callable[[ModelT, ResultT], Scalar | Sequence[Scalar]]:
        """Return a function that reads a value of a result's record; `empty` stands for null."""

        def value(model: ModelT, result: ResultT) -> Scalar | Sequence[Scalar]:
            del model
            found: Scalar | Sequence[Scalar] = getattr(self.record_of(result, self.params()), name)
            return empty if found is None else found

        return value


AnyOperation = Operation[Any, Any, Any, Any]
AnyOutput = Output[Any, Any]


def _kind_of(annotation: object) -> tuple[OutputKind | None, bool]:
    """Return the kind of the values that an annotation allows, None where it is none; and whether it is a list."""
    if get_origin(annotation) in (types.UnionType, typing.Union):
        kept = [each for each in get_args(annotation) if each is not type(None)]
        return _kind_of(kept[0]) if len(kept) == 1 else (None, False)
    if get_origin(annotation) is list:
        kind, nested = _kind_of(get_args(annotation)[0])
        return (None, False) if nested else (kind, True)
    return (_KINDS.get(annotation), False) if isinstance(annotation, type) else (None, False)
