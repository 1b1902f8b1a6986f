"""Texts that are read in windows: parameters and a field of records."""

from typing import Annotated, Literal

from pydantic import Field

from models.operations.operation import TruncateParams

__all__ = ["Aggregation", "WindowCount", "WindowParams", "in_windows"]

Aggregation = Literal["mean", "max"]
"""How the results of windows become that of their text."""

WindowCount = Annotated[
    int | None, Field(description="Windows that the text was read in; absent without the parameter `windows`.")
]


class WindowParams(TruncateParams):
    """The parameters of models that read long texts in windows."""

    windows: Annotated[
        Aggregation | None,
        Field(
            description="Read a text that is longer than the limit in windows, and return the mean or the maximum of "
            "what the model computes of them: of each element of the vectors, which are normalized again where they "
            "have length 1, of the probability of each class, or of the numbers. Without it such a text is refused, or "
            "cut with `truncate`. Not for pairs."
        ),
    ] = None
    overlap: Annotated[
        int | None,
        Field(
            ge=0,
            description="Last tokens of a window with which the next one begins; by default an eighth of a window.",
        ),
    ] = None


def in_windows(params: object) -> bool:
    """Return whether parameters, which may be of another form of the operation, ask for windows."""
    return isinstance(params, WindowParams) and params.windows is not None
