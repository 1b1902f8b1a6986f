"""What every part of a manifest is."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Contract", "PositiveInt"]

PositiveInt = Annotated[int, Field(ge=1)]


class Contract(BaseModel):
    """Frozen; unknown keys are refused, so that a misspelt key is never silently without effect."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, strict=True, allow_inf_nan=False
    )
