"""Computes jobs, one after the other, by the engine: the texts of a document with the least urgency of all requests."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from models import ModelError, NativeError, QueryError, UnknownModelError
from models.documents import Document, DocumentOptions, Limits, Segment, format_of, read_document
from models.operations.operation import AnyOperation
from models.tasks.registry import listed_operations
from service.engine.batcher import DeadlineExceeded, EngineFailed, Stopped
from service.engine.budget import OverBudget
from service.engine.caller import Account, Caller
from service.engine.client import Engine
from service.engine.client import Job as Task
from service.engine.computations import ComputationTimeout, ModelStuck
from service.engine.languages import Through
from service.engine.priority import lower_thread_priority
from service.engine.queue import QueueFull
from service.engine.served_models import NotReady
from service.jobs.database import Computed, DoubtfulText, Held, JobDatabase

__all__ = ["LEAST_URGENT", "Worker", "document_options"]

logger = logging.getLogger("softserve")
T = TypeVar("T")

LEAST_URGENT = 7
"""Urgency of the texts of documents (RFC 9218)."""
_IDLE_SECONDS = 1.0
"""Between two looks for a job, which other processes may have stored."""
_EXPIRY_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_BEGINNING = 2000
"""Characters of a document by which its language is detected."""
_FEWEST, _MOST = 4, 64
"""Texts that are computed together: a hundredth of those of the document, at least and at most."""
_MOST_CHARACTERS = 20_000
"""Characters of these, but for a single text."""
_REFUSALS = (QueryError, OverBudget, NativeError)
"""Errors of a text, which another attempt would meet too."""
_TRANSIENT = (DeadlineExceeded, QueueFull, ComputationTimeout, ModelStuck, EngineFailed, NotReady)
_MOST_ATTEMPTS = 3
"""Attempts with a text that alone misses the deadline."""


_DOUBTFUL_CHARACTERS = 200
"""Characters of a text whose result is likely to be wrong, and of its place, that a job keeps."""


class _LostLease(Exception):
    """The job was deleted, or another process has taken it."""


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of a text."""

    text: str | None
    """None where it was refused."""
    doubtful: bool = False
    """Whether it is likely to be wrong."""


@dataclass(frozen=True, slots=True)
class _Text:
    """Segments of a document that are equal: the first one is computed."""

    place: int
    segment: Segment
    places: tuple[int, ...]

    @property
    def characters(self) -> int:
        return len(self.segment.text) * len(self.places)


def document_options(options: Mapping[str, Any], limits: Limits) -> DocumentOptions:
    """Return the options of reading a document, by those that a job has stored.

    A job without `translate_attributes` is of a version that translated none, by whose segments its results are stored.
    """
    known = {each.name for each in fields(DocumentOptions)}
    given: dict[str, Any] = {"translate_attributes": ()}
    given |= {name: value for name, value in options.items() if name in known}
    given |= {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return DocumentOptions(**given, limits=limits)


class Worker:
    """The task that computes jobs in a process."""

    def __init__(self, engine: Engine, database: JobDatabase, limits: Limits) -> None:
        self._engine, self._database, self._limits = engine, database, limits
        self._new = asyncio.Event()
        self._documents = ThreadPoolExecutor(1, "softserve-documents", initializer=lower_thread_priority)
        self._queries = ThreadPoolExecutor(1, "softserve-jobs")

    def wake(self) -> None:
        """Look for a job at once."""
        self._new.set()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function of the database on its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._queries, lambda: function(*arguments))

    async def beginning(self, form: str, content: bytes, document: Mapping[str, Any]) -> str:
        """Return the first texts of a document without their markup. Raises `DocumentError`."""
        options = document_options(document, self._limits)

        def read() -> str:
            segments = read_document(content, format_of(form), options).segments
            texts = (each.markup.plain(each.text) for each in segments)
            found, length = [], 0
            for text in texts:
                found.append(text)
                length += len(text)
                if length > _BEGINNING:
                    break
            return "\n".join(found)

        return await asyncio.get_running_loop().run_in_executor(self._documents, read)

    async def run(self) -> None:
        """Compute jobs until cancelled; a job in progress is given back."""
        checked = 0.0
        try:
            while True:
                try:
                    if time.monotonic() - checked >= _EXPIRY_SECONDS:
                        checked = time.monotonic()
                        await self.call(self._database.remove_expired)
                    held = await self.call(self._database.claim) if self._engine.served_models.ready else None
                    if held is not None:
                        await self._hold(held)
                        continue
                except Exception:
                    logger.exception("the worker of document jobs failed, and goes on")
                self._new.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._new.wait(), _IDLE_SECONDS)
        finally:
            self._documents.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End the thread of the database."""
        self._queries.shutdown(wait=True)

    async def _hold(self, held: Held) -> None:
        """Compute a job while its lease is renewed; give it back where this process stops."""
        identifier = held.job.id
        computing = asyncio.create_task(self._compute(held))
        try:
            while not computing.done():
                await asyncio.wait([computing], timeout=self._database.lease_seconds / 4)
                if not computing.done() and not await self.call(self._database.renew, identifier):
                    computing.cancel()
                    return
            await computing
        except _LostLease:
            return
        except (asyncio.CancelledError, Stopped):
            computing.cancel()
            with contextlib.suppress(RuntimeError):  # the executor has ended
                self._queries.submit(self._database.release, identifier)
            raise
        except (ModelError, OverBudget) as error:
            await self.call(self._database.finish, identifier, None, str(error)[:1000])
        except Exception:
            logger.exception("a document job failed")
            await self.call(self._database.finish, identifier, None, "an error in the service; its log has the details")

    async def _compute(self, held: Held) -> None:
        job, loop = held.job, asyncio.get_running_loop()
        operation = next(each for each in listed_operations() if each.name == job.operation)
        options = document_options(job.options["document"], self._limits)
        document: Document = await loop.run_in_executor(
            self._documents, read_document, held.content, format_of(job.form), options
        )
        texts = _texts(document)
        if job.characters is None:
            await self._checked(self._database.renew, job.id, characters=sum(each.characters for each in texts))
        results = dict(held.results)
        for batch in _batches([each for each in texts if each.place not in results], len(texts)):
            found = await self._results(batch, held, operation)
            results |= {place: each.text for place, each in found.items()}
            await self._checked(self._database.store, job.id, _computed(batch, found))
        written: list[str | None] = [None] * len(document.segments)
        for text in texts:
            for place in text.places:
                written[place] = results[text.place]
        content = await loop.run_in_executor(self._documents, document.written, written)
        await self._checked(self._database.finish, job.id, content)

    async def _checked(self, function: Callable[..., bool], *arguments: Any, **values: Any) -> None:
        if not await self.call(lambda: function(*arguments, **values)):
            raise _LostLease

    async def _results(self, batch: Sequence[_Text], held: Held, operation: AnyOperation) -> dict[int, _Result]:
        """Return the result of each text of a batch by its place."""
        attempts = 0
        while True:
            try:
                return await self._run(batch, held, operation)
            except UnknownModelError:
                raise
            except _REFUSALS:
                if len(batch) == 1:
                    return {batch[0].place: _Result(None)}
                break
            except _TRANSIENT as error:
                attempts += isinstance(error, (DeadlineExceeded, ComputationTimeout)) or (
                    isinstance(error, QueueFull) and error.never
                )
                if attempts and len(batch) > 1:
                    break
                if attempts == _MOST_ATTEMPTS:
                    return {batch[0].place: _Result(None)}
                await asyncio.sleep(_RETRY_SECONDS)
        middle = len(batch) // 2
        first, second = batch[:middle], batch[middle:]
        return {**await self._results(first, held, operation), **await self._results(second, held, operation)}

    async def _run(self, batch: Sequence[_Text], held: Held, operation: AnyOperation) -> dict[int, _Result]:
        in_documents, job = operation.in_documents, held.job
        assert in_documents is not None
        segments = {each.segment.text: each.segment for each in batch}
        params = operation.params.model_validate(job.options["params"])

        def query(model: Any, text: str, params: Any, most: int | None) -> Any:
            return in_documents.query(model, segments[text], params, most)

        account = Account()
        caller = Caller(account, self._engine.settings.max_request_timeout_ms, LEAST_URGENT, job.owner)
        through = None if (first := job.options.get("through")) is None else Through(**first)
        asked = operation.with_query(query, slowly_prepared=lambda _: True)
        inputs = [each.segment.text for each in batch]
        try:
            outcome = await self._engine.run(
                Task(operation=asked, inputs=inputs, params=params, model=job.model, caller=caller, through=through)
            )
            results = [_Result(in_documents.text(each), in_documents.doubtful(each)) for each in outcome.results]
        finally:
            account.close()
        return {each.place: result for each, result in zip(batch, results, strict=True)}


def _computed(batch: Sequence[_Text], found: Mapping[int, _Result]) -> Computed:
    doubtful = [each for each in batch if found[each.place].doubtful]
    return Computed(
        results={place: each.text for place, each in found.items()},
        characters=sum(each.characters for each in batch),
        failed=sum(len(each.places) for each in batch if found[each.place].text is None),
        doubtful=sum(len(each.places) for each in doubtful),
        doubtful_texts=[
            DoubtfulText(each.segment.context[:_DOUBTFUL_CHARACTERS], each.segment.text[:_DOUBTFUL_CHARACTERS])
            for each in doubtful
        ],
    )


def _texts(document: Document) -> list[_Text]:
    places: dict[tuple[str, str, bool], list[int]] = {}
    for place, each in enumerate(document.segments):
        places.setdefault(each.key, []).append(place)
    return [_Text(those[0], document.segments[those[0]], tuple(those)) for those in places.values()]


def _batches(texts: Sequence[_Text], total: int) -> Iterator[list[_Text]]:
    """Yield texts that are computed and stored together: at most a hundredth of all is computed again."""
    most = min(max(_FEWEST, total // 100), _MOST)
    batch: list[_Text] = []
    characters = 0
    for text in texts:
        size = len(text.segment.text)
        if batch and (len(batch) == most or characters + size > _MOST_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += size
    if batch:
        yield batch
