"""Calls of administrators: each changes what this process serves, and is then passed on to the others of the service.

A call is a value that another process can repeat. `Administration` makes it in all processes: `OneProcess` is that of a
service with a single one, `SeveralProcesses` the common part of others. A process that starts later takes over what
calls have changed (`Changes`); where a process alone fails to make a call, it must be replaced by one that takes over
its outcome.
"""

import abc
import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from models import QueryError
from models.tasks.scope import OutOfScope
from service.engine.client import Engine
from service.engine.experiments import Plan, Record
from service.engine.served_model import Key, ServedModel, names_of
from service.engine.served_models import Administered, ServedModels

__all__ = [
    "Administration",
    "Call",
    "ChangeScope",
    "Changes",
    "DropExperiment",
    "Load",
    "LoadedModel",
    "OneProcess",
    "OutdatedError",
    "PromoteExperiment",
    "ReadChanges",
    "ReadExperiments",
    "SeveralProcesses",
    "StartExperiment",
    "Unload",
    "scoped",
    "take_over",
]

logger = logging.getLogger("softserve")

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Call(abc.ABC, Generic[ResultT_co]):
    """A call of an administrator, which can be pickled, as its result can."""

    changes = True
    """Whether all processes must make the call for their answers to stay the same."""

    @abc.abstractmethod
    async def make(self, engine: Engine) -> ResultT_co:
        """Make the call in a process, and return its result."""

    def resolved(self, result: Any) -> Self:
        """Return the call for the other processes, whose directories may have changed meanwhile; `result` is the first
        process's."""
        del result
        return self


class OutdatedError(Exception):
    """A call to a process that has missed a change."""


class Administration(Protocol):
    """Makes calls in every process of a service."""

    @property
    def outdated(self) -> bool:
        """Whether this process could not make a call that others have made, so that another one must replace it."""
        ...

    async def call(self, call: Call[ResultT]) -> list[ResultT]:
        """Make a call in this process and then in the others; return their results, the first of this one.

        Raises the errors of the call here, after which no other process makes it, and `NotReady` where an earlier call
        does not end. Another process that fails is left out.
        """
        ...

    def run(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Take over what others have changed, and make their calls meanwhile."""
        ...


class OneProcess:
    """The administration of a service that is one process."""

    outdated = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def call(self, call: Call[ResultT]) -> list[ResultT]:
        return [await call.make(self._engine)]

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        yield


class SeveralProcesses(abc.ABC):
    """The administration of a service of several processes, of which one at a time makes a change and passes it on."""

    def __init__(self, engine: Engine) -> None:
        self.outdated = False
        self.revision = 0
        """Number of changes that were made; that of processes which serve the same is equal."""
        self._engine = engine
        self._changing: set[asyncio.Task[Any]] = set()

    async def call(self, call: Call[ResultT]) -> list[ResultT]:
        if not call.changes:
            results = [await call.make(self._engine)]
            return results + await self._passed_on(call)
        task = asyncio.create_task(self._change(call))  # a client that goes away must not stop it half way
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)
        return await asyncio.shield(task)

    async def _change(self, call: Call[ResultT]) -> list[ResultT]:
        async with self._turn():
            result = await call.make(self._engine)
            self.revision += 1
            return [result, *await self._passed_on(call.resolved(result))]

    async def make(self, call: Call[ResultT]) -> ResultT:
        """Make a call of another process; raises its errors, and `OutdatedError` where this one has missed a change.

        This process is outdated after an error of a call that changes anything.
        """
        if self.outdated:
            raise OutdatedError("the process is being replaced")
        try:
            result = await call.make(self._engine)
        except Exception:
            if call.changes:
                logger.exception("a call of an administrator has failed in this process alone: it is replaced")
                self.outdated = True
            raise
        self.revision += call.changes
        return result

    async def finish(self) -> None:
        """Wait until the changes that began here are passed on."""
        if self._changing:
            await asyncio.wait(self._changing)

    @abc.abstractmethod
    def _turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a context in which no other process makes a change."""

    @abc.abstractmethod
    async def _passed_on(self, call: Call[ResultT]) -> list[ResultT]:
        """Let the other processes `make` a call; return the results of those in which it succeeds."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that a process has loaded."""

    key: Key
    digest: str
    """sha256 of its manifest."""


@dataclass(frozen=True, slots=True)
class Load(Call[LoadedModel]):
    """Load a model, `"name"` or `"name:version"`; raises the errors of `ServedModels.add`."""

    name: str

    async def make(self, engine: Engine) -> LoadedModel:
        served = await engine.served_models.add(self.name)
        return LoadedModel(served.key, served.digest)

    def resolved(self, result: LoadedModel) -> Self:
        return dataclasses.replace(self, name=names_of(result.key)[1])


@dataclass(frozen=True, slots=True)
class Unload(Call[list[Key]]):
    """Unload a model, `"name"` (all its versions) or `"name:version"`; raises `UnknownModelError`."""

    name: str

    async def make(self, engine: Engine) -> list[Key]:
        return await engine.served_models.remove(self.name)


def scoped(served_models: ServedModels, name: str) -> tuple[ServedModel, OutOfScope]:
    """Return a served model and its rule; raises `QueryError` where it has none, and `UnknownModelError`."""
    served = served_models.named(name)
    rule: OutOfScope | None = getattr(served.model, "scope", None)
    if rule is None:
        raise QueryError(f"{name} does not tell inputs that are out of scope")
    return served, rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeScope(Call[tuple[Key, OutOfScope]]):
    """Change by one of three numbers when an input of a model is out of scope; raises the errors of `scoped`."""

    name: str
    reject_rate: float | None = None
    pass_rate: float | None = None
    threshold: float | None = None

    async def make(self, engine: Engine) -> tuple[Key, OutOfScope]:
        served, rule = scoped(engine.served_models, self.name)
        if self.reject_rate is not None:
            rule = rule.with_reject_rate(self.reject_rate)
        elif self.pass_rate is not None:
            rule = rule.with_pass_rate(self.pass_rate)
        elif self.threshold is not None:
            rule = rule.with_threshold(self.threshold)
        _set_scope(engine, served, rule)
        return served.key, rule


def _set_scope(engine: Engine, served: ServedModel, rule: OutOfScope) -> None:
    model: Any = served.model
    model.scope = served.changed_scope = rule
    engine.forget_results(served)


@dataclass(frozen=True, slots=True)
class StartExperiment(Call[Record]):
    """Start an experiment; raises the errors of `Experiments.start`."""

    plan: Plan

    async def make(self, engine: Engine) -> Record:
        return (await engine.experiments.start(self.plan)).record

    def resolved(self, result: Record) -> Self:
        primary, candidate = (names_of(key)[1] for key in (result.primary, result.candidate))
        return dataclasses.replace(self, plan=dataclasses.replace(self.plan, primary=primary, candidate=candidate))


@dataclass(frozen=True, slots=True)
class DropExperiment(Call[Record]):
    """End an experiment; raises `UnknownExperimentError`."""

    name: str

    async def make(self, engine: Engine) -> Record:
        return (await engine.experiments.drop(self.name)).record


@dataclass(frozen=True, slots=True)
class PromoteExperiment(Call[Record]):
    """End an experiment in favour of its candidate; raises the errors of `Experiments.promote`."""

    name: str

    async def make(self, engine: Engine) -> Record:
        return (await engine.experiments.promote(self.name)).record


@dataclass(frozen=True, slots=True)
class ReadExperiments(Call[list[Record]]):
    """Return what the experiments have found, or the one of a name; raises `UnknownExperimentError`."""

    name: str | None = None
    changes = False

    async def make(self, engine: Engine) -> list[Record]:
        found = engine.experiments if self.name is None else [engine.experiments.get(self.name)]
        return [experiment.record for experiment in found]


@dataclass(frozen=True, slots=True)
class Changes:
    """What calls have changed since the start of a process."""

    models: Administered
    scopes: Mapping[Key, OutOfScope]
    """Rules that were changed."""
    experiments: Mapping[str, tuple[Record, bool]]
    """The running experiments by name, and whether each one's candidate was loaded for it."""


@dataclass(frozen=True, slots=True)
class ReadChanges(Call[Changes]):
    """Return what calls have changed."""

    changes = False

    async def make(self, engine: Engine) -> Changes:
        served = engine.served_models.served
        scopes = {key: each.changed_scope for key, each in served.items() if each.changed_scope is not None}
        experiments = {each.plan.name: (each.record, each.loaded) for each in engine.experiments}
        return Changes(engine.served_models.administered, scopes, experiments)


async def take_over(changes: Changes, engine: Engine) -> None:
    """Make a process that has loaded its models serve what another one does; raises the errors of loading."""
    begun = changes.experiments.values()
    shadows = {record.candidate for record, loaded in begun if loaded and record.plan.mode == "shadow"}
    await engine.served_models.take_over(changes.models, background=shadows)
    for key, rule in changes.scopes.items():
        if (served := engine.served_models.served.get(key)) is not None:
            _set_scope(engine, served, rule)
    for record, loaded in begun:
        engine.experiments.resume(record, loaded=loaded)
