"""Hugging Face Inference's API at `/hf/{model}` (client: `huggingface_hub.InferenceClient`)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from starlette.responses import JSONResponse

from models import QueryError, UnknownModelError, UnsuitableModelError
from models.backend import Array
from models.decoding.sequence_to_sequence import MAX_BEAM_SIZE
from models.operations.classification import TEMPLATE, CandidateLabels, Template, ZeroShotParams
from models.operations.encoding import EmbedParams
from models.operations.generation import GenerateParams
from models.operations.tagging import Aggregation, TagParams
from models.operations.validation import errors_of
from models.tasks.text_classification import ZERO_SHOT
from models.tasks.text_generation import GENERATE, Generation
from models.tasks.token_classification import TAG, Tagging
from models.tasks.zero_shot import ZeroShot
from service.engine.client import Job, Outcome
from service.engine.served_model import ServedModel, full_names, names_of
from service.engine.served_models import NotReady, ServedModels
from service.http.errors import Failure
from service.http.requests import OneOrSeveralTexts, Text, caller_of, engine_of
from service.protocols.classifying import class_scores, classified, function_of
from service.protocols.encoding import embedded
from service.protocols.fields import Fields, json_response, read_fields
from service.protocols.protocol import Protocol
from service.protocols.translating import find_pair, translated

__all__ = ["PROTOCOL"]

router = APIRouter()

ParametersT = TypeVar("ParametersT", bound="Parameters")


class Parameters(BaseModel):
    """Parameters of a task. Unknown ones are refused: they would change the result."""

    model_config = ConfigDict(extra="forbid")


class ClassificationParameters(Parameters):
    top_k: Annotated[int, Field(ge=1)] | None = None
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None


class ZeroShotParameters(Parameters):
    candidate_labels: CandidateLabels
    hypothesis_template: Template = TEMPLATE
    multi_label: bool = False


class TranslationParameters(Parameters):
    src_lang: str | None = None
    tgt_lang: str | None = None
    clean_up_tokenization_spaces: Literal[False] = False


class GenerationParameters(Parameters):
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    num_beams: Annotated[int, Field(ge=1, le=MAX_BEAM_SIZE)] = 5
    num_return_sequences: Annotated[int, Field(ge=1, le=MAX_BEAM_SIZE)] = 1
    return_full_text: Literal[False] = False


class TokenClassificationParameters(Parameters):
    aggregation_strategy: Aggregation = "simple"
    ignore_labels: list[str] = Field(["O"], max_length=1000)
    stride: Annotated[int, Field(ge=0)] | None = None


class SentenceSimilarity(Parameters):
    source_sentence: Text
    sentences: list[Text]


_TEXTS: TypeAdapter[Any] = TypeAdapter(OneOrSeveralTexts)
_SIMILARITY: TypeAdapter[SentenceSimilarity] = TypeAdapter(SentenceSimilarity)


def _one_or_several(value: object) -> object:
    """Return a text, a list of texts, or the sentences that are compared."""
    if isinstance(value, dict):
        return _SIMILARITY.validate_python(value)
    return _TEXTS.validate_python(value)


class InferenceFields(Fields):
    inputs: Annotated[Any, PlainValidator(_one_or_several)]
    """A text, a list of texts, or a `SentenceSimilarity`."""
    parameters: dict[str, object] = Field(default_factory=dict)
    stream: Literal[False] = False
    normalize: bool | None = None
    prompt_name: str | None = None
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None

    def texts(self) -> list[str]:
        """Return the texts; raises `QueryError` for sentences to compare."""
        if isinstance(self.inputs, SentenceSimilarity):
            raise QueryError("inputs must be a text or a list of texts: this model embeds no sentences")
        return [self.inputs] if isinstance(self.inputs, str) else self.inputs

    def checked(self, model: type[ParametersT]) -> ParametersT:
        """Return the parameters of a task; raises `RequestValidationError`."""
        given = {name: value for name, value in self.parameters.items() if value is not None}
        try:
            return model.model_validate(given)
        except ValidationError as error:
            raise RequestValidationError(errors_of(error, "body", "parameters")) from None


async def infer(request: Request) -> Response:
    """Answer `POST /hf/{model}`."""
    served = _find(request)
    fields = await read_fields(request, InferenceFields)
    operation = next(each for each in served.model.offers if each in _TASKS)
    if operation == "classify" and "candidate_labels" in fields.parameters:
        operation = "zero-shot"
    found, shown = await _TASKS[operation](request, served, fields)
    if isinstance(fields.inputs, SentenceSimilarity):
        return await json_response(request, lambda: _cosines([each.vector for each in found.results]), found.items)
    alone = operation in _ALONE and isinstance(fields.inputs, str)

    def content() -> object:
        results = [shown(each) for each in found.results]
        return results[0] if alone else results

    return await json_response(request, content, found.items)


def _find(request: Request) -> ServedModel:
    """Return the model of the path; raises `UnknownModelError` also for one of another task."""
    served_models: ServedModels = request.app.state.served_models
    name = request.path_params["model"]
    fitting = {key: each for key, each in served_models.served.items() if set(each.model.offers) & set(_TASKS)}
    fitting = {key: each for key, each in fitting.items() if each.model.reads == "text"}
    key = max((key for key in fitting if name in names_of(key)), default=None)
    if key is None:
        if not served_models.served and not served_models.ready:
            raise NotReady
        other = next((each for key, each in served_models.served.items() if name in names_of(key)), None)
        if other is None:
            raise UnknownModelError(name, full_names(fitting))
        offers, task = other.model.offers, other.manifest.task
        raise UnsuitableModelError("this API", full_names(fitting), name, offers, task)
    return fitting[key]


Shown = Callable[[Any], object]
_Answered = tuple[Outcome[Any], Shown]


async def _classify(request: Request, served: ServedModel, fields: InferenceFields) -> _Answered:
    parameters = fields.checked(ClassificationParameters)
    applied, asked = function_of(served.model), parameters.function_to_apply
    if asked not in (None, applied):
        raise QueryError(
            f"parameters.function_to_apply must be {applied!r}, not {asked!r}: it is part of this model, which gives "
            "probabilities and no scores"
        )
    model = names_of(served.key)[1]
    return await classified(request, fields.texts(), model=model, top_k=parameters.top_k), class_scores


async def _zero_shot(request: Request, served: ServedModel, fields: InferenceFields) -> _Answered:
    """Return the candidate labels of texts, which are truncated as in the pipeline of transformers."""
    parameters = fields.checked(ZeroShotParameters)

    def shown(found: ZeroShot) -> object:
        return [{"label": each.label, "score": each.probability} for each in found.labels]

    job = Job(
        operation=ZERO_SHOT,
        inputs=fields.texts(),
        params=ZeroShotParams(
            labels=parameters.candidate_labels,
            template=parameters.hypothesis_template,
            multi_label=parameters.multi_label,
            truncate=True,
        ),
        model=names_of(served.key)[1],
        caller=caller_of(request),
    )
    return await engine_of(request).run(job), shown


async def _translate(request: Request, served: ServedModel, fields: InferenceFields) -> _Answered:
    parameters = fields.checked(TranslationParameters)
    pair = find_pair(request, parameters.src_lang, parameters.tgt_lang, model=names_of(served.key)[1])
    found = await translated(request, fields.texts(), pair)
    return found, lambda each: {"translation_text": each.translations[0].text}


async def _generate(request: Request, served: ServedModel, fields: InferenceFields) -> _Answered:
    parameters = fields.checked(GenerationParameters)
    count = parameters.num_return_sequences

    def shown(found: Generation) -> object:
        outputs = [{"generated_text": each.text} for each in found.outputs]
        return outputs[0] if count == 1 else outputs

    job = Job(
        operation=GENERATE,
        inputs=fields.texts(),
        params=GenerateParams(
            beam_size=max(parameters.num_beams, count), n_best=count, max_output_tokens=parameters.max_new_tokens
        ),
        model=names_of(served.key)[1],
        caller=caller_of(request),
    )
    return await engine_of(request).run(job), shown


class EmbeddingParameters(Parameters):
    normalize: bool | None = None
    prompt_name: str | None = None
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


async def _embed(request: Request, served: ServedModel, fields: InferenceFields) -> _Answered:
    """Return vectors. The client sends the parameters of this task on the same level as `inputs`."""
    stated = fields.model_dump(include=set(EmbeddingParameters.model_fields), exclude_none=True)
    given = fields.checked(EmbeddingParameters).model_copy(update=stated)
    sentences, normalize = fields.inputs, given.normalize
    if isinstance(sentences, SentenceSimilarity):
        texts, normalize = [sentences.source_sentence, *sentences.sentences], True
    else:
        texts = fields.texts()
    params = EmbedParams(
        prompt=given.prompt_name,
        dimensions=given.dimensions,
        normalize=normalize,
        truncate=True if given.truncate is None else given.truncate,
    )
    return await embedded(request, texts, params, model=names_of(served.key)[1]), lambda each: each.values()


def _cosines(vectors: Sequence[Array]) -> list[float]:
    """Return the cosines of the first vector with the others; all have length 1."""
    first, others = vectors[0], np.stack([*vectors[1:], vectors[0]])[:-1]
    found: list[float] = (others @ first).tolist()
    return found


async def _tag(request: Request, served: ServedModel, fields: InferenceFields) -> _Answered:
    parameters = fields.checked(TokenClassificationParameters)
    key = "entity" if parameters.aggregation_strategy == "none" else "entity_group"

    def shown(found: Tagging) -> object:
        return [
            {key: each.label, "score": each.score, "word": each.text, "start": each.start, "end": each.end}
            for each in found.entities
        ]

    job = Job(
        operation=TAG,
        inputs=fields.texts(),
        params=TagParams(
            aggregation=parameters.aggregation_strategy,
            ignore_labels=parameters.ignore_labels,
            overlap=parameters.stride,
        ),
        model=names_of(served.key)[1],
        caller=caller_of(request),
    )
    return await engine_of(request).run(job), shown


_TASKS: Mapping[str, Callable[[Request, ServedModel, InferenceFields], Awaitable[_Answered]]] = {
    "classify": _classify,
    "zero-shot": _zero_shot,
    "translate": _translate,
    "generate": _generate,
    "embed": _embed,
    "tag": _tag,
}
_ALONE = frozenset({"tag", "zero-shot"})
"""Operations whose answer to a single text is that text's list, not a list of one."""


async def health(request: Request) -> Response:
    """Answer `GET /hf/{model}/health`: 200 where the model is served."""
    _find(request)
    return await json_response(request, lambda: {"status": "ok"})


async def info(request: Request) -> Response:
    """Answer `GET /hf/{model}/info`."""
    served = _find(request)
    manifest = served.manifest
    content = {
        "model_id": manifest.name,
        "model_sha": served.digest,
        "version": str(manifest.version),
        "task": manifest.task,
        "max_input_length": served.model.longest_input,
    }
    return await json_response(request, lambda: content)


def _error(failure: Failure) -> Response:
    return JSONResponse({"error": failure.detail}, failure.status, failure.headers)


router.add_route("/hf/{model}", infer, methods=["POST"])
router.add_route("/hf/{model}/health", health, methods=["GET"])
router.add_route("/hf/{model}/info", info, methods=["GET"])


PROTOCOL = Protocol(router=router, prefixes=("/hf",), error=_error, open_paths=(r"/hf/[^/]+/health",))
