"""Tests of records as plain data: they are what their records are dumped as."""

import json
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BeforeValidator, Field, ValidationError, field_serializer, field_validator

from models.operations.operation import Operation, Params, Record
from models.operations.plain import plain_form


class Inner(Record):
    name: str
    value: float


class Outer(Record):
    text: str | None = None
    count: int
    inners: list[Inner]
    names: list[str]
    best: Inner | None
    sure: Annotated[bool | None, Field(description="Whether it is.")] = None


@dataclass
class Result:
    text: str | None
    count: int
    inners: list[Inner]
    names: tuple[str, ...]
    best: Inner | None


floats = st.floats() | st.integers(-5, 5)
inners = st.builds(Inner, name=st.text(), value=st.floats())
results = st.builds(
    Result,
    text=st.none() | st.text(),
    count=st.integers(),
    inners=st.lists(inners),
    names=st.lists(st.text()).map(tuple),
    best=st.none() | inners,
)


def operation(record, **options):
    return Operation(name="some", summary="", about="", query=None, params=Params, record=record, **options)


@given(results, st.booleans())
def test_it_is_the_json_of_the_record(result, omits_null):
    asked = operation(Outer, omits_null=omits_null)
    record = Outer.of(result)
    assert asked._plain is not None
    assert asked.json_of(result, Params()) == record.model_dump_json(exclude_none=omits_null).encode()


def test_infinities_are_null_and_integers_are_written_as_floats():
    assert operation(Inner).json_of(Inner.model_construct(name="a", value=-math.inf), Params()) == (
        b'{"name":"a","value":null}'
    )
    assert operation(Inner).json_of(Inner.model_construct(name="a", value=1), Params()) == b'{"name":"a","value":1.0}'


def test_a_result_of_other_types_is_validated():
    result = SimpleNamespace(name=np.str_("a"), value="0.5")
    assert operation(Inner).json_of(result, Params()) == b'{"name":"a","value":0.5}'


@pytest.mark.parametrize(
    "changed", [{"text": 1}, {"count": True}, {"count": None}, {"inners": None}, {"names": ["a", None]}]
)
def test_a_result_that_its_record_refuses_or_converts_is_left_to_it(changed):
    result = Result(**({"text": "a", "count": 2, "inners": [], "names": ("b",), "best": None} | changed))
    asked = operation(Outer)
    try:
        expected = Outer.of(result).model_dump_json().encode()
    except ValidationError:
        with pytest.raises(ValidationError):
            asked.json_of(result, Params())
    else:
        assert asked.json_of(result, Params()) == expected


def test_a_missing_attribute_is_an_error_unless_it_has_a_default():
    result = SimpleNamespace(inners=[], names=[], best=None)
    with pytest.raises(ValidationError, match="count"):
        operation(Outer).json_of(result, Params())
    result.count = 3
    assert json.loads(operation(Outer).json_of(result, Params()))["text"] is None


class Validated(Record):
    number: int

    @field_validator("number")
    @classmethod
    def _positive(cls, number):
        return abs(number)


class Serialized(Record):
    number: int

    @field_serializer("number")
    def _text(self, number):
        return str(number)


class Constrained(Record):
    number: Annotated[int, BeforeValidator(abs)]


class Aliased(Record):
    number: int = Field(alias="count")


class Hidden(Record):
    number: int = Field(exclude_if=lambda value: value == 0)


class Mapping(Record):
    numbers: dict[str, int]


@pytest.mark.parametrize("record", [Validated, Serialized, Constrained, Aliased, Hidden, Mapping])
def test_records_that_do_more_have_none(record):
    assert plain_form(record, omits_null=False) is None


class Own(Record):
    number: int

    @classmethod
    def of(cls, result):
        return cls(number=2 * result.number)


def test_a_record_that_is_made_otherwise_is_made_so():
    assert operation(Own).json_of(Own(number=2), Params()) == b'{"number":4}'
    made = operation(Inner, recorded=lambda result, params: Inner(name="made", value=result))
    assert made.json_of(2.0, Params()) == b'{"name":"made","value":2.0}'
