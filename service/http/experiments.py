"""`/v1/admin/experiments`: compare a candidate with the model that answers, and let the candidate take its place."""

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from models import BundleError, UnknownModelError, UnsupportedDeviceError
from service.engine.administration import DropExperiment, PromoteExperiment, ReadExperiments, StartExperiment
from service.engine.experiments import ExperimentError, Plan, Record, UnknownExperimentError
from service.http.admin import administration_of
from service.http.auth import ADMIN_PREFIX
from service.http.errors import PROBLEM_RESPONSES, problem_schema
from service.http.requests import Body, ModelName

__all__ = ["router"]

router = APIRouter(prefix=f"{ADMIN_PREFIX.rstrip('/')}/experiments", tags=["admin"])

_REFUSALS: dict[int | str, dict[str, object]] = {status: PROBLEM_RESPONSES[status] for status in (401, 404)}
_MAX_KEPT = 1000

ExperimentName = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Name of the experiment, a label of its metrics.")
]


RunningName = Annotated[str, Path(description="Name of a running experiment.", examples=["intents-3"])]


class ExperimentRequest(Body):
    """An experiment to start."""

    name: ExperimentName
    primary: Annotated[ModelName, Field(description="The model that answers: a name, or `name:version`.")]
    candidate: Annotated[
        ModelName,
        Field(description="The model to compare, which is loaded where it is not served: `name:version`, or a name."),
    ]
    mode: Annotated[
        Literal["shadow", "canary"],
        Field(
            description="Whether the candidate computes the requests that the primary has answered, without an effect "
            "on answers, or answers in its place."
        ),
    ] = "shadow"
    share: Annotated[float, Field(gt=0, le=1, description="Fraction of the requests, above 0 and up to 1.")] = 1.0
    by: Annotated[
        Literal["request", "key"],
        Field(description="Whether the share is one of requests, or of API keys, which always get the same side."),
    ] = "request"
    keep_disagreements: Annotated[
        int,
        Field(
            ge=0,
            le=_MAX_KEPT,
            description="Number of the last texts with different answers to keep in memory, with both answers.",
        ),
    ] = 0


class _Described(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Estimate(_Described):
    """A number with the interval that holds it with a confidence of 95 %."""

    value: float | None
    """The number; null where too little was compared."""
    low: float | None
    """Lower end of the interval."""
    high: float | None
    """Upper end of the interval."""
    total: int
    """Inputs that the number is of."""


class Times(_Described):
    """Inference times of the last 1,000 requests, in seconds."""

    p50: float | None
    """Their median."""
    p99: float | None
    """Their 99th percentile."""


class ExperimentState(_Described):
    """An experiment, and its comparisons so far."""

    name: str
    """Name of the experiment."""
    primary: str
    """The model that answers, with its version."""
    candidate: str
    """The model that is compared, with its version."""
    mode: str
    """shadow or canary."""
    share: float
    """Fraction of the requests."""
    by: str
    """request or key."""
    seconds: float
    """Time since it was started."""
    inputs: dict[str, int]
    """Inputs of a shadow: agree, disagree, compared (answers that are numbers), failed, shed."""
    requests: dict[str, int]
    """Requests of a canary that each side has answered: primary, candidate."""
    compared: int
    """Inputs whose answers were compared."""
    agreement: Estimate | None
    """Fraction of the inputs with the same answer (Wilson interval); null where answers are numbers."""
    measures: dict[str, Estimate]
    """Means of the numbers that the operation compares, candidate minus primary where they are differences."""
    pearson: Estimate
    """Correlation of the scores of the last 1,000 inputs."""
    spearman: Estimate
    """The same of the ranks of the scores."""
    inference_seconds: dict[str, Times]
    """Inference times of primary and candidate."""
    disagreements: list[dict[str, object]]
    """The last texts with different answers, where they are kept."""


class ExperimentList(_Described):
    """The running experiments."""

    experiments: list[ExperimentState]
    """One for each."""


def _state(records: Sequence[Record]) -> ExperimentState:
    """Return the state of an experiment that several processes have records of."""
    return ExperimentState.model_validate(Record.together(records).summary())


@router.post("", responses={**_REFUSALS, 409: problem_schema("It cannot be started")})
async def start(body: ExperimentRequest, request: Request) -> ExperimentState:
    """Start an experiment: a shadow by default, which changes no answer.

    The name of the primary goes on to be answered by the primary, also where the candidate is a newer version of it.
    """
    plan = Plan(**body.model_dump())
    try:
        return _state(await administration_of(request).call(StartExperiment(plan)))
    except UnknownModelError:
        raise
    except (ExperimentError, BundleError, UnsupportedDeviceError, TimeoutError) as error:
        raise HTTPException(409, f"the experiment cannot be started: {error}") from error


@router.get("", responses={401: PROBLEM_RESPONSES[401]})
async def list_experiments(request: Request) -> ExperimentList:
    """Return all running experiments."""
    here, *others = await administration_of(request).call(ReadExperiments())
    found = [[first, *(each for each in chain(*others) if each.plan.name == first.plan.name)] for first in here]
    return ExperimentList(experiments=[_state(records) for records in found])


@router.get("/{name}", responses=_REFUSALS)
async def show(name: RunningName, request: Request) -> ExperimentState:
    """Return an experiment: how far the answers of both models agree, and how sure that is."""
    try:
        return _state(list(chain(*await administration_of(request).call(ReadExperiments(name)))))
    except UnknownExperimentError as error:
        raise HTTPException(404, str(error)) from error


@router.delete("/{name}", responses=_REFUSALS)
async def drop(name: RunningName, request: Request) -> ExperimentState:
    """End an experiment; a candidate that was loaded for it is unloaded."""
    try:
        return _state(await administration_of(request).call(DropExperiment(name)))
    except UnknownExperimentError as error:
        raise HTTPException(404, str(error)) from error


@router.post("/{name}/promote", responses={**_REFUSALS, 409: problem_schema("The candidate does not load")})
async def promote(name: RunningName, request: Request) -> ExperimentState:
    """End an experiment, and let the candidate answer the name of the primary from now on."""
    try:
        return _state(await administration_of(request).call(PromoteExperiment(name)))
    except UnknownExperimentError as error:
        raise HTTPException(404, str(error)) from error
    except (BundleError, UnsupportedDeviceError, TimeoutError) as error:
        raise HTTPException(409, f"the candidate does not load: {error}") from error
