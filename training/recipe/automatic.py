"""Fields of a recipe with the value `auto`, which get what fits the data."""

from collections.abc import Iterator, Mapping

__all__ = ["automatic_fields"]

_AUTO = "auto"
_OWN_MEANING = frozenset({"loop.precision"})
"""Fields for which `auto` is a value of the recipe itself."""


def automatic_fields(content: object) -> list[str]:
    """Return the dotted paths of the fields of a recipe's file that have the value `auto`."""
    return [path for path, value in _fields(content) if value == _AUTO and path not in _OWN_MEANING]


def _fields(content: object, path: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(content, Mapping):
        yield path, content
        return
    for key, value in content.items():
        yield from _fields(value, f"{path}.{key}" if path else str(key))
