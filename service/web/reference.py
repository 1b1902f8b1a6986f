"""The OpenAPI document of the API reference: the operations that the loaded models offer."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

__all__ = ["offered_document"]

_SCHEMAS = "#/components/schemas/"
_ABOUT = (
    "The operations of the models that are loaded now: reload the page after another was loaded. "
    "[openapi.json](openapi.json) describes all operations."
)


def offered_document(
    document: Mapping[str, Any], operations: Mapping[str, Collection[str]], offered: Collection[str]
) -> dict[str, Any]:
    """Return an OpenAPI document without the paths, and their schemas, whose operations no model offers.

    `operations` are the names of the operations of each path that runs models; other paths are kept.
    """
    paths = {
        path: item
        for path, item in document["paths"].items()
        if path not in operations or not set(operations[path]).isdisjoint(offered)
    }
    components = document.get("components", {})
    schemas, used = components.get("schemas", {}), set[str]()
    found = list(_references(paths))
    while found:
        if (name := found.pop()) not in used:
            used.add(name)
            found += _references(schemas[name])
    kept = {name: schema for name, schema in schemas.items() if name in used}
    about = {**document["info"], "description": _ABOUT}
    return {**document, "info": about, "paths": paths, "components": {**components, "schemas": kept}}


def _references(part: object) -> Iterator[str]:
    """Return the names of the schemas to which a part of a document refers."""
    if isinstance(part, Mapping):
        if isinstance(name := part.get("$ref"), str):
            yield name.removeprefix(_SCHEMAS)
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _references(each)
