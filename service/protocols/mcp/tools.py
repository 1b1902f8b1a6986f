"""The tools that language models can call: their arguments, and how they are answered."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, create_model

from models import QueryError
from models.operations.operation import AnyOperation, Params, Text
from models.operations.translation import TranslateResult
from models.tasks.model import AnyModel
from models.tasks.registry import listed_operations
from service.engine.client import Job
from service.http.requests import ModelName, caller_of, engine_of
from service.protocols.languages import two_letters
from service.protocols.translating import find_pair, language_pairs, translated

__all__ = ["TOOLS", "Tool"]


class Arguments(BaseModel):
    """Arguments of a tool; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


class TranslateArguments(Arguments):
    text: Annotated[Text, Field(description="The text to translate, of one or more sentences.")]
    target_language: Annotated[str, Field(description="ISO 639 code of the language to translate to.")]
    source_language: Annotated[str | None, Field(description="ISO 639 code of the text's language.")] = None


class NoArguments(Arguments):
    pass


class TargetArguments(Arguments):
    source_language: Annotated[str | None, Field(description="ISO 639 code; without it, all targets.")] = None


_TRANSLATE = "translate"
_MOST_ITEMS = 1000
"""Classes or words of an answer."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: `run` takes the request and checked arguments, and returns a JSON object."""

    operation: str
    """The operation that a served model must offer for texts; other tools are not listed."""
    description: str
    arguments: type[Arguments]
    run: Callable[[Request, Any], Awaitable[dict[str, object]]]


async def _translate(request: Request, arguments: TranslateArguments) -> dict[str, object]:
    pair = find_pair(request, arguments.source_language, arguments.target_language, read=lambda: arguments.text)
    found = await translated(request, [arguments.text], pair)
    return TranslateResult.of(next(iter(found.results))).model_dump(mode="json", exclude_none=True)


async def _sources(request: Request, arguments: NoArguments) -> dict[str, object]:
    del arguments
    return {"languages": sorted({two_letters(pair.source) for pair in language_pairs(request)})}


async def _targets(request: Request, arguments: TargetArguments) -> dict[str, object]:
    source = arguments.source_language
    found = {
        two_letters(pair.target)
        for pair in language_pairs(request)
        if source is None or two_letters(pair.source) == two_letters(source)
    }
    return {"languages": sorted(found)}


def _tool(operation: AnyOperation) -> Tool:
    """Return the tool of an operation: one input, its parameters, and the name of a model."""
    fields: dict[str, Any] = {
        operation.input: (Text, Field(description=operation.describes_input)),
        **{name: (field.annotation, field) for name, field in operation.params.model_fields.items()},
        "model": (ModelName, None),
    }
    bounded = replace(operation, result_items=_bounded(operation))

    async def run(request: Request, arguments: Any) -> dict[str, object]:
        params = operation.params.model_construct(
            **{name: getattr(arguments, name) for name in operation.params.model_fields}
        )
        job = Job(
            operation=bounded,
            inputs=[getattr(arguments, operation.input)],
            params=params,
            model=arguments.model,
            caller=caller_of(request),
        )
        found = await engine_of(request).run(job)
        return operation.content_of(next(iter(found.results)), params)

    arguments = create_model(f"{operation.schema_name}Arguments", __base__=Arguments, **fields)
    return Tool(operation.name, operation.summary, arguments, run)


def _bounded(operation: AnyOperation) -> Callable[[AnyModel, Params], int] | None:
    """Return an operation's number of items, which refuses more than a language model should read."""
    items = operation.result_items

    def bounded(model: AnyModel, params: Params) -> int:
        found = 0 if items is None else items(model, params)
        if found > _MOST_ITEMS:
            raise QueryError(f"a tool returns at most {_MOST_ITEMS} items, not {found}")
        return found

    return None if items is None else bounded


def tools() -> Mapping[str, Tool]:
    """Return the tools by name: those of languages, and one for each other operation on texts that a task lists."""
    found = [each for each in listed_operations() if each.reads == "text"]
    return _OF_LANGUAGES | {each.name: _tool(each) for each in found if each.name != _TRANSLATE}


_OF_LANGUAGES: dict[str, Tool] = {
    "translate-text": Tool(
        "translate", "Translate a text; says when the translation is doubtful.", TranslateArguments, _translate
    ),
    "get-source-languages": Tool("translate", "The languages that can be translated from.", NoArguments, _sources),
    "get-target-languages": Tool("translate", "The languages that can be translated to.", TargetArguments, _targets),
}

TOOLS: Mapping[str, Tool] = tools()
