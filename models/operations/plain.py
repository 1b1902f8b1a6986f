"""Records as plain data without their validation: results of models have the types that their records say."""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

__all__ = ["plain_form"]

Plain = Callable[[Any], Any]
"""Returns an attribute, or a whole result, as JSON has it."""


def plain_form(record: type[BaseModel], *, omits_null: bool) -> Plain | None:
    """Return a function that makes the object of a result which its record is dumped as.

    It raises `AttributeError`, `TypeError` or `ValueError` for a result that its record would convert or refuse.
    `omits_null` leaves out null values. None for a record of which more than attributes is read: with validators,
    serializers, constraints, aliases, or fields of other types than texts, numbers, truth values, records and lists.
    """
    decorators = record.__pydantic_decorators__
    if any(getattr(decorators, each.name) for each in dataclasses.fields(decorators)):
        return None
    fields: list[tuple[str, tuple[object, ...], Plain]] = []
    for name, field in record.model_fields.items():
        if field.metadata or field.alias or field.serialization_alias or field.exclude or field.default_factory:
            return None
        if field.exclude_if:
            return None
        form = _form(field.annotation, omits_null)
        if form is None:
            return None
        default = () if field.default is PydanticUndefined else (field.default,)
        fields.append((name, default, form))

    def plain(result: Any) -> dict[str, Any]:
        made = {}
        for name, default, form in fields:
            value = form(getattr(result, name, *default))
            if value is not None or not omits_null:
                made[name] = value
        return made

    return plain


def _exactly(kind: type) -> Plain:
    def same(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{kind.__name__} is expected, not {type(value).__name__}")
        return value

    return same


def _form(annotation: Any, omits_null: bool) -> Plain | None:
    """Return the function for a value, which raises `TypeError` for one of another type; None where there is none."""
    origin = get_origin(annotation)
    if origin in (types.UnionType, typing.Union):
        kept = [each for each in get_args(annotation) if each is not type(None)]
        some = _form(kept[0], omits_null) if len(kept) == 1 else None
        return None if some is None else lambda value: None if value is None else some(value)
    if origin is list:
        each = _form(get_args(annotation)[0], omits_null)
        return None if each is None else lambda values: [each(value) for value in values]
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, BaseModel):
        return plain_form(annotation, omits_null=omits_null)
    return float if annotation is float else _exactly(annotation) if annotation in (str, int, bool) else None
