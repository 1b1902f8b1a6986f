"""What all sections of a recipe have in common."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

__all__ = ["ENTRY", "Fraction", "PositiveInt", "QuantizationName", "Settings", "read_entries"]

T = TypeVar("T")

Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveInt = Annotated[int, Field(ge=1)]

QuantizationName = Literal["none", "int8", "int4"]
"""Integers that a bundle stores its weights as."""

ENTRY = ConfigDict(extra="forbid")
"""Configuration of the dataclasses that `read_entries` reads: an unknown field is an error."""


class Settings(BaseModel):
    """A section: frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def ineffective_fields(self) -> Iterator[str]:
        """Yield a line for each field that is not its default and has no effect, given the others."""
        for names, reason in self._ineffective():
            for name in names:
                if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                    yield f"{name} has no effect {reason}"

    def _ineffective(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield fields without effect, given the others, and the reason, such as `with average: 1`."""
        yield from ()


def read_entries(kind: type[T], path: Path) -> dict[str, T]:
    """Return the entries of a YAML file by name; an entry is a mapping with the fields of `kind` other than `name`.

    Raises pydantic's `ValidationError` for a field that is unknown, missing or of another type.
    """
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    adapter = TypeAdapter(kind)
    return {name: adapter.validate_python({"name": name, **fields}) for name, fields in entries.items()}
