"""The page of the settings of `softserve serve`, from `service.settings`."""

import json
from collections.abc import Iterator
from pathlib import Path

from docs.generators.markdown import Schema, cell, code, page, table, type_of
from service.settings import BUNDLED, Settings

__all__ = ["GROUPS", "settings_page"]

GROUPS = {
    "host": "Address and processes",
    "model_dirs": "Models",
    "backend": "Devices and threads",
    "max_batch_items": "Batching",
    "prefix_cache_mb": "Caches, priorities and admission",
    "max_queue_items": "Queues and deadlines",
    "api_keys": "Keys",
    "max_body_bytes": "Connections",
    "protocols": "Protocols",
    "access_log": "Observability",
}
"""Headings, by the first setting below each."""

_INTRODUCTION = """
Each setting is a flag of `softserve serve` and an environment variable. Flags take precedence over the environment, the
environment over the defaults; flags of yes and no are negated by `--no-`. [Serving](../serving.md) describes what the
settings do together.
"""


def settings_page() -> str:
    """Return the page; raises `KeyError` for a group that begins with no setting."""
    fields: dict[str, Schema] = Settings.model_json_schema(by_alias=False)["properties"]
    if unknown := GROUPS.keys() - fields.keys():
        raise KeyError(f"no settings: {', '.join(unknown)}")
    groups: list[tuple[str, list[list[str]]]] = []
    for name, schema in fields.items():
        if name in GROUPS:
            groups.append((GROUPS[name], []))
        groups[-1][1].append(list(_row(name, schema)))
    header = ["flag, variable", "type, default", "meaning"]
    parts = [f"## {heading}\n\n{table(header, rows)}" for heading, rows in groups]
    return page("Settings", "service/settings.py", [_INTRODUCTION, *parts])


def _row(name: str, schema: Schema) -> Iterator[str]:
    yield f"`--{name.replace('_', '-')}`<br>`SOFTSERVE_{name.upper()}`"
    kind = type_of({**schema, "pattern": None}, {}).removesuffix(" or null").removesuffix("; null")
    yield f"{kind}<br>{_default(name)}"
    yield cell(schema["description"])


def _default(name: str) -> str:
    value = Settings.model_fields[name].default
    if value in (None, "", ()):
        return "none"
    if isinstance(value, tuple):
        value = [_path(path) for path in value]
    text = value if isinstance(value, str) else json.dumps(value)
    return code(text)


def _path(path: Path) -> str:
    return path.relative_to(BUNDLED.parents[1]).as_posix()
