"""Recipe fields that the command line sets: `--set PATH=VALUE`."""

from collections.abc import Iterable
from typing import Annotated, Any

import tyro
import yaml

from training.recipe.dotted_path import copy_at, set_at
from training.softmax.mixture import parse_kernels

__all__ = ["Overrides", "apply_overrides", "check_only", "set_field"]

Overrides = Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="PATH=VALUE")]
"""The option `--set` of a command."""

_TEXTS = frozenset({"export.description", "export.licence"})
"""Fields whose values are taken as they are written: as YAML, `German: news` would be a mapping."""


def apply_overrides(content: dict[str, Any], resolved: dict[str, Any], overrides: Iterable[str]) -> None:
    """Set fields in the content of a recipe's file; `resolved` is the same recipe with all its defaults.

    The content is changed, not the resolved recipe, because defaults may depend on fields that are set, such as sizes
    on `network.preset`. Raises `ValueError` for an override that is no `PATH=VALUE`, a path that does not exist, which
    names the fields there are, and for `task`.
    """
    for override in overrides:
        path, value = _parsed(override)
        if path == "task":
            raise ValueError(f"--set {override}: the task of a recipe cannot be set")
        try:
            if path in _TEXTS:
                value = override.partition("=")[2]
            set_field(resolved, path, value)
            copy_at(content, resolved, path)
        except ValueError as error:
            raise ValueError(f"--set {override}: {error}") from error


def check_only(overrides: Iterable[str], *sections: str) -> None:
    """Raise `ValueError` for an override of a field that is not in some sections of the recipe, such as `export`."""
    for override in overrides:
        if not f"{_parsed(override)[0]}.".startswith(tuple(f"{section}." for section in sections)):
            possible = " and ".join(sections)
            raise ValueError(f"--set {override}: the weights are trained already; only fields of {possible} can be set")


def set_field(content: dict[str, Any], path: str, value: object) -> None:
    """Set a field of a recipe; a kernel's hyperparameters can be set although none are given yet.

    Raises `ValueError` for a path that does not exist.
    """
    in_kernels = path.startswith("output_layer.kernels.")
    if in_kernels:
        # Kernels by name become mappings, which have room for hyperparameters; each component gets its own.
        layer = content["output_layer"]
        layer["kernels"] = [dict(spec) for spec in parse_kernels(layer["kernels"])]
    set_at(content, path, value, may_add=in_kernels)


def _parsed(override: str) -> tuple[str, object]:
    """Return the path and the value, which is written as in YAML."""
    path, equals, text = override.partition("=")
    if not path or not equals:
        raise ValueError(f"--set takes PATH=VALUE, such as loop.epochs=3, not {override!r}")
    try:
        return path, yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"--set {override}: the value is not YAML: {error}") from error
