"""Dotted paths, such as `output_layer.kernels.0.p`, into nested mappings and lists."""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["part_at", "set_at"]


def set_at(content: Any, path: str, value: object, *, may_add: bool = False) -> None:
    """Sets the item that a path names; `may_add` lets a mapping get a key that it lacks.

    Raises `ValueError`, with what there is instead, where the path leads nowhere.
    """
    *parents, last = path.split(".")
    for key in parents:
        content = content[_key(content, key, path)]
    content[last if may_add and isinstance(content, dict) else _key(content, last, path)] = value


def part_at(content: Mapping[str, Any], paths: Iterable[str], depth: int = 2) -> dict[str, Any]:
    """What holds the items that paths name, as nested mappings; whole from the given depth on."""
    part: dict[str, Any] = {}
    for path in paths:
        *parents, last = path.split(".")[:depth]
        source, target = content, part
        for key in parents:
            source, target = source[key], target.setdefault(key, {})
        target[last] = source[last]
    return part


def _key(outer: Any, key: str, path: str) -> str | int:
    if isinstance(outer, list) and key.isdecimal() and int(key) < len(outer):
        return int(key)
    if isinstance(outer, dict) and key in outer:
        return key
    known = outer if isinstance(outer, dict) else range(len(outer)) if isinstance(outer, list) else ["nothing"]
    raise ValueError(f"there is no {path}: instead of {key!r} there is {', '.join(map(str, known))}")
