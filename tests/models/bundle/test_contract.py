"""What every part of a manifest is."""

import pytest
from pydantic import ValidationError

from models.bundle.contract import Contract, PositiveInt


class Part(Contract):
    count: PositiveInt
    share: float = 0.5


@pytest.mark.parametrize(
    "content", [{}, {"count": 0}, {"count": "1"}, {"count": 1, "size": 2}, {"count": 1, "share": float("nan")}], ids=str
)
def test_what_does_not_fit_is_refused(content):
    with pytest.raises(ValidationError):
        Part.model_validate(content)


def test_a_part_does_not_change():
    part = Part(count=1)
    with pytest.raises(ValidationError, match="frozen"):
        part.count = 2
