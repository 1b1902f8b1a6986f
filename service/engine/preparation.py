"""Preparation of queries: texts are checked and tokenized, and images decoded, on threads of their own."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from models.native import native_errors
from service.engine.batcher import DeadlineExceeded
from service.engine.priority import lower_thread_priority

__all__ = ["Preparation"]

QueryT = TypeVar("QueryT")

_THREADS = 2
"""Threads of each kind: a text of 1 MB takes some 70 MB while it is tokenized, an image of 16 megapixels some 100."""
_WAITED = 0.1
"""A request whose deadline passes while it is prepared has waited for others where it waited longer than this fraction
of its time."""
_INLINE_CHARACTERS, _INLINE_TEXTS = 20_000, 64
"""Requests of fewer are tokenized on the event loop: to pass them to a thread costs more."""


class Preparation:
    """Makes the queries of requests. One for all models, so that all of them together are bounded."""

    def __init__(self) -> None:
        self._texts = ThreadPoolExecutor(_THREADS, "softserve-texts", initializer=lower_thread_priority)
        self._images = ThreadPoolExecutor(_THREADS, "softserve-images", initializer=lower_thread_priority)

    async def texts(self, query: Callable[[str], QueryT], texts: Sequence[str], deadline: float) -> list[QueryT]:
        """Return the query of each text; raises the errors of `query`, and `DeadlineExceeded`."""
        if len(texts) <= _INLINE_TEXTS and sum(map(len, texts)) <= _INLINE_CHARACTERS:
            return _prepared(query, texts, deadline, threading.Event())
        return await _run(self._texts, query, texts, deadline)

    async def images(self, query: Callable[[str], QueryT], images: Sequence[str], deadline: float) -> list[QueryT]:
        """Return the query of each image, as `texts` does; images are always decoded on a thread."""
        return await _run(self._images, query, images, deadline)

    def close(self) -> None:
        """Start nothing more."""
        for pool in (self._texts, self._images):
            pool.shutdown(wait=False, cancel_futures=True)


async def _run(
    pool: ThreadPoolExecutor, query: Callable[[str], QueryT], inputs: Sequence[str], deadline: float
) -> list[QueryT]:
    """Prepare inputs on a thread. A request that is cancelled or expires ends before its next input."""
    given_up, given = threading.Event(), time.monotonic()
    begun = math.inf

    def prepared() -> list[QueryT]:
        nonlocal begun
        begun = time.monotonic()
        return _prepared(query, inputs, deadline, given_up)

    try:
        async with asyncio.timeout(max(0.0, deadline - given)):
            return await asyncio.get_running_loop().run_in_executor(pool, prepared)
    except (TimeoutError, DeadlineExceeded):
        raise DeadlineExceeded(preparing=begun - given < _WAITED * (deadline - given)) from None
    finally:
        given_up.set()


def _prepared(
    query: Callable[[str], QueryT], inputs: Sequence[str], deadline: float, given_up: threading.Event
) -> list[QueryT]:
    queries: list[QueryT] = []
    for each in inputs:
        if given_up.is_set() or time.monotonic() > deadline:
            raise DeadlineExceeded
        with native_errors("the preparation of an input"):
            queries.append(query(each))
    return queries
