"""Sentences of this project about wrong fields of a request, in place of those of pydantic."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

__all__ = ["FieldError", "errors_of", "named_sentence", "sentence", "shown_name"]

FieldError = Mapping[str, Any]
"""An error of a field, as pydantic has it."""

_MAX_NAME = 80
"""Characters of one name of a field, which may be a client's."""
_OWN = {"value_error": "Value error, ", "assertion_error": "Assertion failed, "}
"""Types of errors whose sentences are those of this project's validators, after a prefix of pydantic's."""
_OTHER = "is not valid"
_SENTENCES: Mapping[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "unknown field",
    "string_type": "must be a text",
    "string_sub_type": "must be a text",
    "string_unicode": "holds half of a surrogate pair, which is no character",
    "string_too_short": "must have {min_length} or more characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "has too many digits",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "mapping_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dataclass_type": "must be an object",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "none_required": "must be null",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "too_short": "must have {min_length} or more items",
    "too_long": "must have at most {max_length} items",
    "invalid_key": "must be a text",
    "recursion_loop": "is nested too deeply",
}
"""The sentence of each type of error; its fields are those of the error's context."""
_JSON_NAMES = {"True": "true", "False": "false", "None": "null"}


def errors_of(error: ValidationError, *place: str) -> list[FieldError]:
    """Return the errors of fields, as `RequestValidationError` takes them, of an object that is at `place`."""
    found = error.errors(include_url=False, include_input=False)
    return [{**each, "loc": (*place, *each["loc"])} for each in found]


def sentence(error: FieldError) -> str:
    """Return the sentence of an error, to follow the name of its field."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _OWN:
        return str(error["msg"]).removeprefix(_OWN[kind])
    try:
        text = _SENTENCES.get(kind, _OTHER).format_map(context)
    except KeyError:
        return _OTHER
    if "expected" in context:
        for name, spelling in _JSON_NAMES.items():
            text = text.replace(name, spelling)
    return f"{text} (known: {', '.join(context['known'])})" if "known" in context else text


def shown_name(name: str) -> str:
    """Return a name, which may be a client's, shortened, and with lone surrogates replaced."""
    short = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
    return short.encode("utf-8", "replace").decode()


def named_sentence(error: FieldError, location: Sequence[str | int]) -> str:
    """Return the place of an error and its sentence."""
    place = ".".join(shown_name(str(part)) for part in location)
    return f"{place}: {sentence(error)}" if place else sentence(error)
