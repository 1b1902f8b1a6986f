"""Scrapes neither block the event loop nor pile up."""

import asyncio
import gc
import threading
import time

import pytest

from service.observability.exposition import Exposition


class Collector:
    """Takes its time, on whatever thread; counts how often it was asked."""

    def __init__(self, error=None):
        self.calls, self.threads, self.error = 0, set(), error

    def __call__(self):
        self.calls += 1
        self.threads.add(threading.current_thread().name)
        time.sleep(0.1)
        if self.error:
            raise self.error
        return b"%d" % self.calls


def test_concurrent_scrapes_share_a_collection_off_the_loop():
    async def run():
        collect = Collector()
        exposition = Exposition(collect)
        assert await asyncio.gather(*(exposition.text() for _ in range(20))) == [b"1"] * 20
        assert collect.threads == {"softserve-metrics_0"}
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


def test_scrapes_do_not_wait_for_what_else_blocks_the_threads_of_the_loop():
    async def run():
        loop, blocked = asyncio.get_running_loop(), threading.Event()
        others = [loop.run_in_executor(None, blocked.wait, 20) for _ in range(64)]
        exposition = Exposition(Collector())
        try:
            async with asyncio.timeout(10):
                assert await exposition.text() == b"1"
        finally:
            blocked.set()
            await asyncio.gather(*others)
            exposition.close()

    asyncio.run(run())


def test_a_failure_after_the_only_client_has_disconnected_is_not_warned_of(caplog):
    async def run():
        exposition = Exposition(Collector(OSError("disk")))
        scrape = asyncio.create_task(exposition.text())
        await asyncio.sleep(0.02)
        scrape.cancel()
        await asyncio.sleep(0.3)
        exposition.close()

    asyncio.run(run())
    gc.collect()
    assert caplog.records == []
