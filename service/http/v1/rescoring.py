"""`POST /v1/rescore`: n-best lists, ranked by the scores of a first pass and of a language model.

The hypotheses of all lists are texts of one job, the operation `score`: limits, deadlines and metrics are those of
`/v1/score`, and hypotheses with the same beginning share its computation.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, FailFast, Field, PlainValidator, TypeAdapter

from models.decoding.rescoring import Hypothesis, Weights, rescored
from models.operations.language import SCORE, ScoreParams
from models.operations.operation import Text
from models.operations.rescoring import RescoredHypothesis, RescoreParams, RescoreResult
from service.engine.client import Job
from service.http.answer import Answer, Results
from service.http.endpoint import register
from service.http.errors import PROBLEM_RESPONSES
from service.http.requests import Body, Deadline, ModelName, Priority, caller_of, engine_of, examples
from service.http.route import ModelRoute
from service.http.v1.operations import OPERATIONS, REQUESTS

__all__ = ["RescoreRequest", "RescoreResponse", "router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)
register("rescoring")(router)


class FirstPassHypothesis(BaseModel):
    """A hypothesis of a first pass."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: Annotated[Text, Field(description="The text.")]
    score: Annotated[
        float,
        Field(
            allow_inf_nan=False,
            description="Its score in the first pass, such as a log-probability; higher is better.",
        ),
    ] = 0.0


OneList = Annotated[list[FirstPassHypothesis], Field(min_length=1)]
SeveralLists = Annotated[list[OneList], Field(min_length=1)]
_ONE: TypeAdapter[list[FirstPassHypothesis]] = TypeAdapter(Annotated[OneList, FailFast()])
_SEVERAL: TypeAdapter[list[list[FirstPassHypothesis]]] = TypeAdapter(
    Annotated[list[Annotated[OneList, FailFast()]], FailFast(), Field(min_length=1)]
)


def _lists(value: object) -> list[list[FirstPassHypothesis]]:
    """Return the lists of a field, which holds a list of hypotheses, or a list of such lists."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return _SEVERAL.validate_python(value)
    return [_ONE.validate_python(value)]


Lists = Annotated[
    list[list[FirstPassHypothesis]],
    PlainValidator(_lists, json_schema_input_type=OneList | SeveralLists),
    Field(description="The hypotheses of an utterance with the scores of a first pass, or a list of such lists."),
]

_EXAMPLE = [
    {"text": "sea you tomorrow", "score": -4.1},
    {"text": "see you tomorrow", "score": -4.6},
    {"text": "see you to borrow", "score": -5.9},
]


class RescoreRequest(Body, RescoreParams):
    """N-best lists to rank.

    The rank follows from score + lm_weight * log-probability of the model + length_reward * number of words.
    """

    model_config = examples(
        {"hypotheses": _EXAMPLE, "lm_weight": 0.5},
        {
            "hypotheses": [_EXAMPLE, [{"text": "he has two dogs"}, {"text": "he has too dogs"}]],
            "lm_weight": 0.5,
            "length_reward": 1.0,
        },
    )

    hypotheses: Lists
    model: ModelName = None


class RescoreResponse(Results[RescoreResult]):
    """One result per list, in order."""


async def rescore(
    body: RescoreRequest, request: Request, timeout_ms: Deadline = None, priority: Priority = None
) -> Answer[bytes]:
    """Rank the hypotheses of each list by a language model and the scores of a first pass."""
    job = Job(
        operation=SCORE,
        inputs=[each.text for some in body.hypotheses for each in some],
        params=ScoreParams(truncate=body.truncate),
        model=body.model,
        caller=caller_of(request, timeout_ms, priority),
    )
    found = await engine_of(request).run(job)
    return Answer(found.served, _ranked(body.hypotheses, found.results, body.weights()), found.items)


def _ranked(lists: Sequence[Sequence[FirstPassHypothesis]], scores: Iterable[Any], weights: Weights) -> Iterator[bytes]:
    """Yield the JSON of each list; `scores` are those of all hypotheses."""
    rest = iter(scores)
    for some in lists:
        found = list(itertools.islice(rest, len(some)))
        hypotheses = [Hypothesis(each.text, each.score) for each in some]
        ranking = rescored(hypotheses, [each.log_probability for each in found], weights)
        records = []
        for each in ranking:
            record = RescoredHypothesis.of(each)
            record.truncated = found[each.place].truncated
            records.append(record)
        result = RescoreResult(hypotheses=records)
        yield result.__pydantic_serializer__.to_json(result)


REQUESTS["/v1/rescore"] = RescoreRequest
OPERATIONS["/v1/rescore"] = frozenset({SCORE.name})
router.add_api_route("/rescore", rescore, methods=["POST"], response_model=RescoreResponse, responses=PROBLEM_RESPONSES)
