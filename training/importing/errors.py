"""The error of imports."""

from pydantic import ValidationError

__all__ = ["ImportRefused", "described"]


class ImportRefused(ValueError):
    """A model directory that cannot become a bundle; the message says why."""


def described(error: ValidationError) -> str:
    """Return the error of each field, in one line."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
