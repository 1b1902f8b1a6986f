"""Scrapes neither block the event loop nor pile up."""

import asyncio
import threading
import time

import pytest

from service.exposition import Exposition


class Collector:
    """Takes its time, on whatever thread; counts how often it was asked."""

    def __init__(self, error=None):
        self.calls, self.threads, self.error = 0, set(), error

    def __call__(self):
        self.calls += 1
        self.threads.add(threading.get_ident())
        time.sleep(0.1)
        if self.error:
            raise self.error
        return b"%d" % self.calls


def test_concurrent_scrapes_share_a_collection_off_the_loop():
    async def run():
        collect = Collector()
        exposition = Exposition(collect)
        assert await asyncio.gather(*(exposition.text() for _ in range(20))) == [b"1"] * 20
        assert threading.get_ident() not in collect.threads
        assert await exposition.text() == b"2"

    asyncio.run(run())


def test_a_client_that_disconnects_leaves_the_others_their_answer():
    async def run():
        exposition = Exposition(Collector())
        first, second = (asyncio.create_task(exposition.text()) for _ in range(2))
        await asyncio.sleep(0.02)
        first.cancel()
        assert await second == b"1"
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(run())


def test_a_failure_is_raised_and_the_next_scrape_tries_again():
    async def run():
        collect = Collector(OSError("disk"))
        exposition = Exposition(collect)
        with pytest.raises(OSError, match="disk"):
            await exposition.text()
        collect.error = None
        assert await exposition.text() == b"2"

    asyncio.run(run())
