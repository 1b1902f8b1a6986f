"""The page of the HTTP API, from the OpenAPI document of the service."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from docs.generators.markdown import Schema, cell, code, field_table, page, paragraphs, reference, table, type_of
from service.server.app import create_app
from service.settings import Settings

__all__ = ["STATUSES", "HttpPage", "http_page", "openapi"]

_INTRODUCTION = """
The endpoints of Softserve itself; a running server documents them at `/openapi.json` too, and at `/docs` those of the
models that it has loaded. APIs of other services, such as Open Inference and OpenAI completions:
[Clients of other services](../clients.md).

* Bodies are JSON in UTF-8. Where a field takes a text or a list of texts, results have the order of the inputs.
* With `--api-keys`, requests carry `Authorization: Bearer KEY` or `X-API-Key: KEY`. Health, metrics and the API
  documentation need no key. The endpoints of `/v1/admin/` exist with `--admin-keys` only, and need a key of that file.
* A `top_k` above the number of words or classes of a model returns all of them. The results of a request are limited by
  `--max-result-items`.
* `HEAD` works wherever `GET` does.
* Every response has an `X-Request-Id`, that of the request or a new one. Responses of models have `Server-Timing`.
"""

STATUSES = {
    400: "The body is not a JSON object.",
    401: "The API key is missing or unknown.",
    404: "There is no such model, or none for this task; the answer names those that there are.",
    408: "The body did not arrive within `--body-timeout`.",
    409: "The model does not load; the answer says why.",
    413: "The body is larger than `--max-body-bytes`, or the request larger than the queue.",
    415: "The body is compressed.",
    422: "A field is invalid, or a text or a result exceeds a limit; the answer names it.",
    429: "The request is not expected to meet its deadline, or the queue or the memory for request bodies is full; "
    "`Retry-After` says when to retry.",
    500: "An error in the service; its log has the details.",
    503: "The service is starting or shutting down, or has no free connection.",
    504: "The deadline passed before the result was computed.",
}


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of a service with all native endpoints."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write("the-key-of-this-document-only\n")
        file.flush()
        return create_app(Settings(protocols="native", admin_keys=Path(file.name))).openapi()


def http_page() -> str:
    """Return the page of the service's OpenAPI document."""
    return page("HTTP API", "the OpenAPI document of service/server/app.py", HttpPage(openapi()).parts())


class HttpPage:
    """The parts of the page, from an OpenAPI document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._objects: Mapping[str, Schema] = document["components"]["schemas"]
        self._names = {name: f"[{code(name)}](#{name.lower()})" for name in self._objects}
        self._operations = [
            (f"{method.upper()} {path}", operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]

    def parts(self) -> Iterator[str]:
        """Yield the introduction, each endpoint, then what they share: headers, errors, objects."""
        yield _INTRODUCTION
        for heading, operation in self._operations:
            yield f"## {heading}\n\n{paragraphs(operation.get('description'))}"
            yield from self._endpoint(operation)
        headers = {each["name"]: each for _, operation in self._operations for each in _headers(operation)}
        yield f"## Request headers\n\n{self._parameters(headers.values())}"
        statuses = [[str(status), HTTPStatus(status).phrase, meaning] for status, meaning in STATUSES.items()]
        yield "## Errors\n\nErrors are problem details (`application/problem+json`, RFC 9457), with the request's id."
        yield table(["status", "", "meaning"], statuses)
        yield self._fields("Problem")
        yield "## Objects"
        for name in self._referred():
            yield f"### {name}\n\n{paragraphs(self._objects[name].get('description'))}\n\n{self._fields(name)}"

    def _endpoint(self, operation: Mapping[str, Any]) -> Iterator[str]:
        if named := [each for each in operation.get("parameters", ()) if each["in"] != "header"]:
            yield f"Parameters:\n\n{self._parameters(named)}"
        if headers := ", ".join(code(each["name"]) for each in _headers(operation)):
            yield f"[Headers](#request-headers): {headers}."
        if request := _json(operation.get("requestBody")):
            name = reference(request["schema"])
            assert name is not None
            yield f"Request body:\n\n{field_table(self._objects[name], self._names, self._objects)}"
            yield from map(_example, _examples(request, self._objects[name]))
        answer = _json(operation["responses"].get("200"))
        if answer is not None and (name := reference(answer["schema"])) is not None:
            yield f"Response:\n\n{self._fields(name)}"
        errors = ", ".join(sorted(status for status in operation["responses"] if int(status) >= 400))
        yield f"[Errors](#errors): {errors}."

    def _fields(self, name: str) -> str:
        return field_table(self._objects[name], self._names, self._objects, defaults=False)

    def _parameters(self, parameters: Iterable[Mapping[str, Any]]) -> str:
        rows = [
            [code(each["name"]), type_of(each["schema"], self._names), cell(each.get("description", ""))]
            for each in parameters
        ]
        return table(["name", "type", "meaning"], rows)

    def _referred(self) -> list[str]:
        """Return the objects that fields of bodies refer to, in the order of the page."""
        bodies = [reference(body["schema"]) for _, operation in self._operations for body in _bodies(operation)]
        pending = [name for name in dict.fromkeys(bodies) if name is not None]
        found: dict[str, None] = {}
        while pending:
            new = dict.fromkeys(_references(self._objects[pending.pop(0)].get("properties", {})))
            pending = [*(name for name in new if name not in found), *pending]
            found |= new
        return list(found)


def _headers(operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in operation.get("parameters", ()) if each["in"] == "header"]


def _json(body: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = (body or {}).get("content", {}).get("application/json")
    return found if found is not None and found.get("schema") else None


def _bodies(operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = [_json(operation.get("requestBody")), _json(operation["responses"].get("200"))]
    return [body for body in found if body is not None]


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    elif isinstance(schema, dict):
        if isinstance(target := schema.get("$ref"), str):
            yield target.rpartition("/")[2]
        for value in schema.values():
            yield from _references(value)


def _examples(body: Mapping[str, Any], schema: Schema) -> Iterator[tuple[str, Any]]:
    """Yield the examples of a request body, each with its summary: OpenAPI has three places for them."""
    for each in body.get("examples", {}).values():
        yield each.get("summary", ""), each["value"]
    for value in (*([body["example"]] if "example" in body else []), *schema.get("examples", ())):
        yield "", value


def _example(example: tuple[str, Any]) -> str:
    summary, value = example
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return f"Example{f', {summary}' if summary else ''}:\n\n```json\n{text}\n```"
