"""Processes that pass on calls to each other: several in one event loop, of which each has its own engine."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from service.engine.administration import Call
from service.engine.served_models import NotReady
from service.server import peers
from service.server.peers import Peers


class Engine:
    def __init__(self, name):
        self.name, self.made, self.fails = name, [], False
        self.settings = SimpleNamespace(load_timeout=1.0, workers=3)


@dataclass(frozen=True)
class Note(Call):
    """Notes a value, and lets other calls go first meanwhile."""

    value: str

    async def make(self, engine):
        if engine.fails:
            raise ValueError("it fails")
        await asyncio.sleep(0)
        engine.made.append(self.value)
        return f"{engine.name} {self.value}"

    def resolved(self, result):
        return Note(f"{self.value} of {result[0]}")


@dataclass(frozen=True)
class Read(Call):
    changes = False

    async def make(self, engine):
        if engine.fails:
            raise ValueError("it fails")
        return list(engine.made)


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    """Run a scenario with a function that starts processes; they take over the notes of another one."""

    async def take_over(notes, engine):
        engine.made.extend(notes)

    monkeypatch.setattr(peers, "ReadChanges", Read)
    monkeypatch.setattr(peers, "take_over", take_over)

    def run(function, directory=tmp_path):
        async def main():
            async with contextlib.AsyncExitStack() as running:

                async def start(index):
                    peer = Peers(Engine("abc"[index]), directory, index)
                    await running.enter_async_context(peer.run())
                    return peer

                await asyncio.wait_for(function(start), 60)

        asyncio.run(main())

    return run


def made(peer):
    return peer._engine.made


def test_a_call_is_made_here_and_then_in_the_others(scenario):
    async def function(start):
        first, second, third = [await start(index) for index in range(3)]
        assert await second.call(Note("x")) == ["b x", "a x of b", "c x of b"]
        assert (made(first), made(second), made(third)) == (["x of b"], ["x"], ["x of b"])
        assert await third.call(Read()) == [["x of b"], ["x of b"], ["x"]]

    scenario(function)


def test_a_call_that_fails_here_is_made_nowhere_else(scenario):
    async def function(start):
        first, second = await start(0), await start(1)
        first._engine.fails = True
        with pytest.raises(ValueError, match="it fails"):
            await first.call(Note("x"))
        assert made(second) == []
        assert not first.outdated
        assert await second.call(Read()) == [[]]

    scenario(function)


def test_a_process_that_fails_alone_is_outdated_and_answers_no_more(scenario):
    async def function(start):
        first, second = await start(0), await start(1)
        second._engine.fails = True
        assert await first.call(Note("x")) == ["a x"]
        assert (first.outdated, second.outdated) == (False, True)
        second._engine.fails = False
        assert await first.call(Note("y")) == ["a y"]
        third = await start(2)
        assert made(third) == ["x", "y"]
        assert made(second) == []

    scenario(function)


def test_reading_never_outdates(scenario):
    async def function(start):
        first, second = await start(0), await start(1)
        second._engine.fails = True
        assert await first.call(Read()) == [[]]
        assert not second.outdated

    scenario(function)


def test_calls_at_the_same_time_are_made_in_the_same_order(scenario):
    async def function(start):
        all_peers = [await start(index) for index in range(3)]
        await asyncio.gather(*(peer.call(Note(f"{number}")) for number in range(5) for peer in all_peers))
        first, second, third = (["".join(value[:1]) for value in made(peer)] for peer in all_peers)
        assert first == second == third
        assert len(first) == 15

    scenario(function)


def test_a_client_that_goes_away_stops_no_call(scenario):
    async def function(start):
        first, second = await start(0), await start(1)
        asking = asyncio.create_task(first.call(Note("x")))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while made(second) != ["x of a"]:
            await asyncio.sleep(0.01)

    scenario(function)


def test_processes_that_are_gone_are_left_out(scenario, tmp_path):
    """The socket of a process that was killed is there until another one has its index."""

    async def function(start):
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(tmp_path / "administration-1"))
        first = await start(0)
        assert await first.call(Note("x")) == ["a x"]
        second = await start(1)
        assert made(second) == ["x"]
        assert await first.call(Note("y")) == ["a y", "b y of a"]

    scenario(function)


def test_a_process_that_answers_nothing_does_not_stop_the_others(scenario, tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "_READ_TIMEOUT", 0.2)

    async def function(start):
        with socket.socket(socket.AF_UNIX) as paused:
            paused.bind(str(tmp_path / "administration-1"))
            paused.listen()
            first, third = await start(0), await start(2)
            assert await first.call(Read()) == [[], []]
            assert await first.call(Note("x")) == ["a x", "c x of a"]
            assert made(third) == ["x of a"]

    scenario(function)


def test_the_directory_may_have_a_long_path(scenario, tmp_path):
    directory = tmp_path / ("long" * 30)
    directory.mkdir()

    async def function(start):
        first, _ = await start(0), await start(1)
        assert await first.call(Note("x")) == ["a x", "b x of a"]

    scenario(function, directory)


def test_a_call_that_waits_too_long_for_another_one_is_refused(scenario):
    async def function(start):
        first, second = await start(0), await start(1)
        second._patience = 0.1
        async with first._turn():
            with pytest.raises(NotReady, match="another call of an administrator does not end"):
                await second.call(Note("x"))
        assert await second.call(Note("x")) == ["b x", "a x of b"]

    scenario(function)
