"""Preparation of queries: texts are checked and tokenized, and images decoded, on threads of their own."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from models.backend.interruption import interruptible
from models.native import native_errors
from service.engine.batcher import DeadlineExceeded
from service.engine.computations import Computations
from service.engine.priority import lower_thread_priority

__all__ = ["Preparation"]

QueryT = TypeVar("QueryT")
Queries = Callable[[Sequence[str]], Sequence[QueryT]]
"""Makes the queries of several texts at once."""

_AT_ONCE = 2
"""Preparations of each kind: a text of 1 MB takes some 70 MB while it is tokenized, an image of 16 megapixels some
100."""
_WAITED = 0.1
"""A request whose deadline passes while it is prepared has waited for others where it waited longer than this fraction
of its time."""
_INLINE_CHARACTERS, _INLINE_TEXTS = 20_000, 64
"""Requests of fewer are tokenized on the event loop: to pass them to a thread costs more."""
_GROUP_TEXTS = 32
"""Texts that are tokenized together at most."""


class Preparation:
    """Makes the queries of requests. One for all models, so that all of them together are bounded."""

    def __init__(self) -> None:
        self._texts, self._images = _Threads("softserve-texts"), _Threads("softserve-images")

    async def texts(
        self,
        query: Callable[[str], QueryT],
        texts: Sequence[str],
        deadline: float,
        computations: Computations | None = None,
        queries: Queries[QueryT] | None = None,
        *,
        on_thread: bool = False,
    ) -> list[QueryT]:
        """Return the query of each text; raises the errors of `query`, `DeadlineExceeded`, and those of `computations`.

        `computations` are those of the model, which is given up where `query` does not return. `queries` makes those of
        several texts faster. `on_thread` says that also few short texts are prepared on a thread.
        """
        if not on_thread and len(texts) <= _INLINE_TEXTS and sum(map(len, texts)) <= _INLINE_CHARACTERS:
            return _prepared(query, queries, texts, deadline, None)
        return await self._texts.run(query, queries, texts, deadline, computations or Computations())

    async def images(
        self,
        query: Callable[[str], QueryT],
        images: Sequence[str],
        deadline: float,
        computations: Computations | None = None,
    ) -> list[QueryT]:
        """Return the query of each image, as `texts` does; images are always decoded on a thread."""
        return await self._images.run(query, None, images, deadline, computations or Computations())

    def close(self) -> None:
        """Start nothing more."""
        for threads in (self._texts, self._images):
            threads.close()


class _Threads:
    """Threads that prepare a bounded number of requests at a time; one that is given up is replaced."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: set[ThreadPoolExecutor] = set()
        self._free: asyncio.Queue[ThreadPoolExecutor] = asyncio.LifoQueue()  # the fewer are used, the less memory
        for _ in range(_AT_ONCE):
            self._add()

    def _add(self) -> None:
        thread = ThreadPoolExecutor(1, self._name, initializer=lower_thread_priority)
        self._threads.add(thread)
        self._free.put_nowait(thread)

    def _release(self, thread: ThreadPoolExecutor, returned: bool) -> None:
        if returned:
            self._free.put_nowait(thread)
            return
        self._threads.discard(thread)
        thread.shutdown(wait=False)
        self._add()

    async def run(
        self,
        query: Callable[[str], QueryT],
        queries: Queries[QueryT] | None,
        inputs: Sequence[str],
        deadline: float,
        computations: Computations,
    ) -> list[QueryT]:
        """Prepare inputs on a thread. A request that is cancelled or expires ends before its next input."""
        given_up, given = threading.Event(), time.monotonic()
        begun, arguments = math.inf, (query, queries, inputs, deadline, given_up)
        try:
            async with asyncio.timeout(max(0.0, deadline - given)):
                thread = await self._free.get()
                release = partial(self._release, thread)
                if computations.stuck:
                    release(True)
                begun = time.monotonic()
                return await computations.run(thread, _prepared, *arguments, on_end=release)
        except (TimeoutError, DeadlineExceeded):
            raise DeadlineExceeded(preparing=begun - given < _WAITED * (deadline - given)) from None
        finally:
            given_up.set()

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)


def _prepared(
    query: Callable[[str], QueryT],
    queries: Queries[QueryT] | None,
    inputs: Sequence[str],
    deadline: float,
    given_up: threading.Event | None,
) -> list[QueryT]:
    made: list[QueryT] = []
    for group in [[each] for each in inputs] if queries is None else _groups(inputs):
        if (given_up is not None and given_up.is_set()) or time.monotonic() > deadline:
            raise DeadlineExceeded
        with interruptible(), native_errors("the preparation of an input"):
            if queries is None:
                made.append(query(group[0]))
            else:
                made += queries(group)
    return made


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield texts that are tokenized together, between which a request can end."""
    if len(texts) == 1:
        yield texts
        return
    group: list[str] = []
    characters = 0
    for text in texts:
        if group and (len(group) == _GROUP_TEXTS or characters + len(text) > _INLINE_CHARACTERS):
            yield group
            group, characters = [], 0
        group.append(text)
        characters += len(text)
    if group:
        yield group
