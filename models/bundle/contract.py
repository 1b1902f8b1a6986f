"""The parts that manifests are made of."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = ["Contract", "FileName", "PositiveInt", "SpecialTokens", "TaskConfig"]

PositiveInt = Annotated[int, Field(ge=1)]


def _plain_file_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(f"{name!r} is not a plain file name")
    return name


FileName = Annotated[str, AfterValidator(_plain_file_name)]


class Contract(BaseModel):
    """A frozen model that refuses unknown keys, so that a misspelt key is never silently without effect."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, strict=True, allow_inf_nan=False
    )


class SpecialTokens(Contract):
    """Ids with a meaning beyond their spelling."""

    unknown: Annotated[int, Field(ge=0)]
    """The end where no text has unknown tokens."""
    end: Annotated[int, Field(ge=0)]
    """The end of a sentence or output; of an encoder the token after every input."""
    start: Annotated[int, Field(ge=0)] | None = None
    """The token before every input of an encoder, where it is not spelt `[CLS]`; of a model that generates, the token
    that every output starts after, where it is not the end.
    """


class TaskConfig(Contract):
    """The section of a manifest that belongs to the task: network, vocabulary, labels, limits."""

    required_graphs: ClassVar[frozenset[str]] = frozenset()
    """Names of the graphs that a bundle of the task must have."""
    has_output_layer: ClassVar[bool] = True
    """Whether a bundle of the task must describe its output layer over classes; embeddings have none."""

    def files(self) -> frozenset[str]:
        """Return the files of the bundle that the section names."""
        return frozenset()

    def summary(self) -> Mapping[str, object]:
        """Return the facts of the section that `GET /v1/models` lists, by name."""
        return {}

    def description(self) -> Mapping[str, str]:
        """Return the lines that `softserve inspect` prints of the section, by heading."""
        return {}
