"""Dotted paths, such as `output_layer.kernels.0.p`, into nested mappings and lists."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["copy_at", "differences", "part_at", "set_at", "short_names"]


def set_at(content: Any, path: str, value: object, *, may_add: bool = False) -> None:
    """Set the item that a path names; `may_add` lets a mapping get a key that it lacks.

    Raises `ValueError` naming the keys there are where the path does not exist.
    """
    *parents, last = path.split(".")
    for key in parents:
        content = content[_key(content, key, path)]
    content[last if may_add and isinstance(content, dict) else _key(content, last, path)] = value


def copy_at(content: dict[str, Any], source: Mapping[str, Any], path: str) -> None:
    """Copy the item that a path names from one nested mapping to another, which gets mappings that it lacks.

    A list on the way is copied as a whole. The path must exist in `source`.
    """
    *parents, last = path.split(".")
    for key in parents:
        if isinstance(source[key], list):
            last = key
            break
        if content.get(key) is None:
            content[key] = {}
        content, source = content[key], source[key]
    content[last] = copy.deepcopy(source[last])


def differences(first: Any, second: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Return the paths at which two nested mappings differ, with both values; None where there is no value."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in {**first, **second}:
            yield from differences(first.get(key), second.get(key), f"{path}.{key}" if path else str(key))
    elif first != second:
        yield path, first, second


def part_at(content: Mapping[str, Any], paths: Iterable[str], depth: int = 2) -> dict[str, Any]:
    """Return the parts of nested mappings that hold the items paths name; whole from the given depth on."""
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


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return the last parts of dotted paths, as many as tell them apart, for columns of a terminal."""
    parts = [path.split(".") for path in paths]
    most = max(map(len, parts))
    ends = (tuple(tuple(part[-count:]) for part in parts) for count in range(1, most + 1))
    shortest = next(end for end in ends if len(set(end)) == len(paths))
    return {path: ".".join(end) for path, end in zip(paths, shortest, strict=True)}
