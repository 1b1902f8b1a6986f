"""Recipes as YAML with comments that say why a value was chosen."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Planned", "Wishes"]

_WIDTH = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """What the user says of a recipe that is made for some data, and what a trial found."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """The file's name of a column, by its role, such as `label`."""
    languages: tuple[str, str] | None = None
    """Those of source and target."""
    from_scratch: bool = False
    """Whether the training should start without a model that is there."""
    data_dir: Path = Path("data")
    """Where paths in files start."""
    epochs: int | None = None
    """The number that is wanted."""
    epoch_steps: int | None = None
    """Updates an epoch, where they are known."""


@dataclass(kw_only=True, slots=True)
class Planned:
    """A recipe that was made for some data."""

    content: dict[str, Any]
    """The recipe, as `training.recipe.loading.parse_recipe` takes it."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why fields have their values, by dotted paths."""
    found: list[str] = field(default_factory=list)
    """Findings about the data, in sentences."""

    def choose(self, path: str, value: Any, reason: str = "") -> None:
        """Set a field, and say why it has this value."""
        *parents, last = path.split(".")
        section = self.content
        for key in parents:
            section = section.setdefault(key, {})
        section[last] = value
        if reason:
            self.reasons[path] = reason
        else:
            self.reasons.pop(path, None)

    def document(self, head: str) -> str:
        """Return the YAML file; `head` is the text of the comment that it begins with."""
        lines = [f"# {line}" for line in textwrap.wrap(head, _WIDTH - 2)]
        lines += [f"# {line}" for sentence in self.found for line in textwrap.wrap(sentence, _WIDTH - 2)]
        return "\n".join([*lines, *self._section(self.content, "")]) + "\n"

    def _section(self, content: Mapping[str, Any], path: str) -> Iterator[str]:
        indent = "  " * (path.count(".") + 1 if path else 0)
        for key, value in content.items():
            own = f"{path}.{key}" if path else key
            reason = self.reasons.get(own, "")
            text = f"{indent}{key}:" if isinstance(value, dict) else f"{indent}{_item(key, value)}"
            if reason and len(text) + len(reason) + 4 > _WIDTH:
                yield from (f"{indent}# {line}" for line in textwrap.wrap(reason, _WIDTH - len(indent) - 2))
                reason = ""
            yield f"{text}  # {reason}" if reason else text
            if isinstance(value, dict):
                yield from self._section(value, own)


def _item(key: str, value: Any) -> str:
    if isinstance(value, list):
        return f"{key}: {yaml.safe_dump(value, allow_unicode=True, width=10_000, default_flow_style=True).strip()}"
    return yaml.safe_dump({key: value}, allow_unicode=True, width=10_000, default_flow_style=False).strip()
