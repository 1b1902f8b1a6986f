"""Operations as a table: defaults that follow from the record."""

from dataclasses import dataclass, replace

import pytest
from pydantic import ValidationError

from models.operations.operation import Operation, Params, Record
from models.tasks.registry import TASKS


class Chosen(Params):
    shout: bool = False


class Spelled(Record):
    text: str
    letters: list[str]
    length: int
    odd: bool | None = None
    nested: dict[str, int] | None = None


@dataclass(frozen=True)
class Result:
    text: str
    letters: tuple[str, ...]
    length: int
    odd: bool


SPELL = Operation["Speller", str, Chosen, Result](
    name="spell-out",
    summary="Spell each text.",
    about="Texts to spell.",
    query=lambda model, text, params, _: model.query(text, params.shout),
    params=Chosen,
    record=Spelled,
)
FOUND = Result("ab", ("a", "b"), 2, False)


def test_tensors_are_the_values_of_the_record():
    outputs = {each.name: each for each in SPELL.tensors()}
    described = {name: (each.kind, each.several, each.filler) for name, each in outputs.items()}
    assert described == {"letters": ("text", True, ""), "length": ("integer", False, 0), "odd": ("flag", False, False)}
    assert [outputs[name].values(None, FOUND) for name in described] == [["a", "b"], 2, False]


def test_null_is_the_empty_value():
    class Perhaps(Record):
        name: str | None = None
        numbers: list[float] | None = None

    found = replace(SPELL, record=Perhaps).tensors()
    assert [each.values(None, Perhaps()) for each in found] == ["", ()]


def test_names_follow_from_the_operation():
    assert (SPELL.last_part, SPELL.schema_name) == ("spell-out", "SpellOut")


def test_the_cells_are_the_single_values():
    assert list(SPELL.cells_of(FOUND, Chosen())) == ["ab", 2, False, ""]


def test_unknown_parameters_are_refused():
    with pytest.raises(ValidationError):
        Chosen(loud=True)


def test_every_task_lists_operations_with_examples_and_defaults():
    for task in TASKS.values():
        assert task.offers == tuple(each.name for each in task.operations)
        for each in task.operations:
            each.params()
            assert each.tensors()
            assert all(each.input in example for example in each.examples)
