"""Calls of administrators in several replicas, without a cluster: their broadcasts are calls of functions here."""

import asyncio
import contextlib
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from service.deploy import replica_administration
from service.deploy.replica_administration import Question, ReplicaAdministration
from service.engine.administration import Call


class Replica(ReplicaAdministration):
    """A replica of a fake application, whose turn is an asyncio lock."""

    def __init__(self, application, name, *, listed=True):
        engine = SimpleNamespace(name=name, made=[], fails=False, settings=SimpleNamespace(load_timeout=1.0))
        super().__init__(engine, "answer")
        self.name, self.application = name, application
        if listed:
            application.replicas.append(self)

    @property
    def made(self):
        return self._engine.made

    async def _asked(self, call):
        question = Question(self.name, self.revision, call)
        found = []
        for replica in self.application.replicas:
            replica_administration._own_name = lambda name=replica.name: name
            with contextlib.suppress(Exception):
                found.append(await replica.answer(question))
        replica_administration._own_name = lambda: self.name
        return found

    @contextlib.asynccontextmanager
    async def _turn(self):
        async with self.application.lock:
            yield


@dataclass(frozen=True)
class Note(Call):
    value: str

    async def make(self, engine):
        if engine.fails:
            raise ValueError("it fails")
        engine.made.append(self.value)
        return f"{engine.name} {self.value}"


@dataclass(frozen=True)
class ReadNotes(Call):
    changes = False

    async def make(self, engine):
        return list(engine.made)


@pytest.fixture
def application(monkeypatch):
    async def take_over(notes, engine):
        engine.made[:] = notes

    monkeypatch.setattr(replica_administration, "_own_name", lambda: "")
    monkeypatch.setattr(replica_administration, "ReadChanges", ReadNotes)
    monkeypatch.setattr(replica_administration, "take_over", take_over)
    monkeypatch.setattr(replica_administration, "_CHECK_SECONDS", 0.01)
    return SimpleNamespace(replicas=[], lock=asyncio.Lock())


def test_a_call_is_made_in_all_replicas(application):
    first, second, third = (Replica(application, name) for name in "abc")
    assert asyncio.run(second.call(Note("x"))) == ["b x", "a x", "c x"]
    assert [each.made for each in (first, second, third)] == [["x"]] * 3
    assert [each.revision for each in (first, second, third)] == [1, 1, 1]
    assert asyncio.run(third.call(ReadNotes())) == [["x"]] * 3
    assert third.revision == 1


def test_a_replica_that_fails_alone_is_outdated(application):
    first, second, third = (Replica(application, name) for name in "abc")
    second._engine.fails = True
    assert asyncio.run(first.call(Note("x"))) == ["a x", "c x"]
    assert [each.outdated for each in (first, second, third)] == [False, True, False]
    assert asyncio.run(third.call(ReadNotes())) == [["x"], ["x"]]


def test_a_replica_that_has_missed_a_change_is_outdated_by_the_next(application):
    first, late = Replica(application, "a"), Replica(application, "b", listed=False)
    asyncio.run(first.call(Note("x")))
    application.replicas.append(late)
    assert asyncio.run(first.call(Note("y"))) == ["a y"]
    assert (late.outdated, late.made) == (True, [])


def test_a_replica_that_starts_takes_over_from_the_one_with_the_most_changes(application):
    first, second = (Replica(application, name) for name in "ab")
    asyncio.run(first.call(Note("x")))
    second._engine.fails = True
    asyncio.run(first.call(Note("y")))
    late = Replica(application, "c", listed=False)

    async def start():
        async with late.run():
            application.replicas.append(late)
            return await first.call(Note("z"))

    assert asyncio.run(start()) == ["a z", "c z"]
    assert (late.made, late.revision, late.outdated) == (["x", "y", "z"], 3, False)


def test_a_change_that_was_missed_while_a_replica_started_is_found(application):
    first, late = Replica(application, "a"), Replica(application, "b", listed=False)

    async def start():
        async with late.run():
            await first.call(Note("x"))
            application.replicas.append(late)
            while not late.outdated:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(start(), 60))
    assert first.outdated is False
