"""The tools that language models can call: their arguments, and how they are answered."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from service.api.endpoint import answer
from service.api.requests import ModelName, Text, timeout_of
from service.api.v1.classification import ClassifyResult
from service.api.v1.language_model import NextWordResult, ScoreResult
from service.api.v1.translation import TranslateResult
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


class ClassifyArguments(Arguments):
    text: Annotated[Text, Field(description="The text to classify.")]
    top_k: Annotated[int, Field(ge=1, le=1000, description="Classes to return.")] = 5
    model: ModelName = None


class ScoreArguments(Arguments):
    text: Annotated[Text, Field(description="A sentence.")]
    model: ModelName = None


class NextWordArguments(Arguments):
    context: Annotated[Text, Field(description="The beginning of a sentence.")]
    top_k: Annotated[int, Field(ge=1, le=1000, description="Words to return.")] = 10
    model: ModelName = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: `run` takes the request and checked arguments, and returns a JSON object."""

    operation: str
    """The operation that a served model must offer for texts; other tools are not listed."""
    description: str
    arguments: type[Arguments]
    run: Callable[[Request, Any], Awaitable[dict[str, Any]]]


async def _one(request: Request, operation: str, text: str, query: Callable[[Any, Any], Any], model: str | None) -> Any:
    """Return the result for one text."""
    found = await answer(
        request,
        operation,
        [text],
        query,
        lambda result: result,
        model=model,
        timeout_ms=timeout_of(request),
        priority=request.headers.get("priority"),
    )
    return next(iter(found.results))


async def _translate(request: Request, arguments: TranslateArguments) -> dict[str, Any]:
    pair = find_pair(request, arguments.source_language, arguments.target_language)
    found = await translated(request, [arguments.text], pair)
    return TranslateResult.of(next(iter(found.results))).model_dump(mode="json", exclude_none=True)


async def _sources(request: Request, arguments: NoArguments) -> dict[str, Any]:
    del arguments
    return {"languages": sorted({two_letters(pair.source) for pair in language_pairs(request)})}


async def _targets(request: Request, arguments: TargetArguments) -> dict[str, Any]:
    source = arguments.source_language
    found = {
        two_letters(pair.target)
        for pair in language_pairs(request)
        if source is None or two_letters(pair.source) == two_letters(source)
    }
    return {"languages": sorted(found)}


async def _classify(request: Request, arguments: ClassifyArguments) -> dict[str, Any]:
    def query(model: Any, text: str) -> Any:
        return model.query(text, min(arguments.top_k, len(model.labels)))

    found = await _one(request, "classify", arguments.text, query, arguments.model)
    return ClassifyResult.of(found).model_dump(mode="json", exclude_none=True)


async def _score(request: Request, arguments: ScoreArguments) -> dict[str, Any]:
    found = await _one(request, "score", arguments.text, lambda model, text: model.score_query(text), arguments.model)
    return ScoreResult.of(found).model_dump(mode="json")


async def _next_word(request: Request, arguments: NextWordArguments) -> dict[str, Any]:
    def query(model: Any, text: str) -> Any:
        return model.next_words_query(text, min(arguments.top_k, model.vocab_size))

    found = await _one(request, "next-word", arguments.context, query, arguments.model)
    return NextWordResult.of(found).model_dump(mode="json", exclude={"components"})


TOOLS: Mapping[str, Tool] = {
    "translate-text": Tool(
        "translate", "Translate a text; says when the translation is doubtful.", TranslateArguments, _translate
    ),
    "get-source-languages": Tool("translate", "The languages that can be translated from.", NoArguments, _sources),
    "get-target-languages": Tool("translate", "The languages that can be translated to.", TargetArguments, _targets),
    "classify": Tool(
        "classify", "Classes of a text and their probabilities, most probable first.", ClassifyArguments, _classify
    ),
    "score": Tool(
        "score", "How probable a sentence is: its log-probability (base e), word by word.", ScoreArguments, _score
    ),
    "next-word": Tool("next-word", "The most probable next words of a sentence.", NextWordArguments, _next_word),
}
