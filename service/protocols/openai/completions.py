"""`POST /v1/completions`: prompts are scored where that is asked for, and go on token by token."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from fastapi import Request, Response
from starlette.responses import StreamingResponse

from models import QueryError
from service.engine.client import Begun
from service.http.errors import FAILED_STATUS, Failing, failure_of
from service.http.requests import caller_of, engine_of
from service.protocols.fields import json_response, read_fields
from service.protocols.openai.continuation import Continuation
from service.protocols.openai.failures import failure_content
from service.protocols.openai.fields import CompletionFields, Prompt
from service.protocols.openai.logged import LoggedToken, log_probabilities, ranked_log_probabilities
from service.protocols.openai.writers import Writer, writer_of

__all__ = ["completions"]

EachT = TypeVar("EachT")


_TURN = 32
"""Completions after which the event loop does other work first."""


async def _in_turns(each: Iterable[EachT]) -> AsyncIterator[EachT]:
    """Yield completions, and let the event loop do other work after every few."""
    for place, one in enumerate(each, 1):
        yield one
        if place % _TURN == 0:
            await asyncio.sleep(0)


@dataclass(slots=True)
class _Job:
    """A request: its prompts and their completions, and the tokens of prompts that are part of the answer."""

    request: Request
    fields: CompletionFields
    begun: Begun
    writer: Writer
    prompts: Sequence[Any]
    continuations: list[Continuation]
    echoes: Sequence[tuple[str, Sequence[LoggedToken]]] = ()
    scores: Sequence[Any] = ()
    """The score of each prompt, where log-probabilities of its tokens are asked for."""

    async def grow(self) -> AsyncIterator[list[Continuation]]:
        """Add a token to each completion that has not ended, and yield them, until all have ended.

        Those that have no room in the decoding caches together are written one group after another.
        """
        groups, size = self._groups()
        if groups:
            parts = [each.query() for live in groups for each in live]
            self.begun.expect_parts("draw", parts, self.fields.max_tokens - 1)
            await self.begun.reserve_decoding(size)
        for live in groups:
            function = "draw"
            while live:
                drawn = await self.begun.compute(function, [each.query() for each in live])
                function = "step"
                self.begun.served.observer.generated(len(live))
                async for each, token in _in_turns(zip(live, drawn, strict=True)):
                    each.add(token, self.writer)
                yield live
                live = [each for each in live if each.finish_reason is None]

    def _groups(self) -> tuple[list[list[Continuation]], int]:
        """Return the completions that are to be written, in groups, and the most bytes of decoding caches of a group.

        A group of several leaves half of what completions may have to other requests. Equal prompts are read once.
        """
        size, most = self.begun.model.decoding_bytes, self.begun.decoding_room // 2
        written = size(0, self.fields.max_tokens)
        groups: list[list[Continuation]] = []
        sizes: list[int] = []
        prompts: set[tuple[int, ...]] = set()
        for each in self.continuations:
            if each.finish_reason is not None:
                continue
            read = size(len(each.unread), 0)
            more = written + (0 if each.unread in prompts else read)
            if not groups or sizes[-1] + more > most:
                groups.append([])
                sizes.append(0)
                prompts, more = set(), written + read
            groups[-1].append(each)
            sizes[-1] += more
            prompts.add(each.unread)
        return groups, max(sizes, default=0)

    def chosen(self) -> list[Continuation]:
        """Return the best `n` completions of each prompt, by their log-probability for each token."""
        count, kept = self.fields.candidates, self.fields.n
        if count == kept:
            return self.continuations
        groups = (self.continuations[first : first + count] for first in range(0, len(self.continuations), count))
        return [each for group in groups for each in sorted(group, key=lambda one: -one.mean_log_probability)[:kept]]

    def ranked(self) -> list[object]:
        """Return the member `prompt_logprobs` of the choices of each prompt; none where it is not asked for."""
        count = self.fields.prompt_logprobs
        if count is None:
            return []
        read = zip(self.prompts, self.scores, strict=True)
        return [ranked_log_probabilities(self.writer.ranked(query, score, count)) for query, score in read]

    def usage(self) -> dict[str, int]:
        read = sum(len(prompt.tokens) for prompt in self.prompts)
        made = sum(len(each.tokens) for each in self.continuations)
        return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}


async def completions(request: Request) -> Response:
    """Answer `POST /v1/completions`.

    Raises the errors of `read_fields`, `Engine.begin` and `Begun`.
    """
    job = await _job(request)
    fields = job.fields
    await _read_prompts(job)
    head = {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": fields.model or job.begun.served.manifest.name,
    }
    if fields.stream:
        growing = job.grow()
        first: list[Continuation] = await anext(growing, [])  # an invalid request is refused before its answer begins
        events = _events(job, head, first, growing)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
    async for _ in job.grow():
        pass

    def content() -> dict[str, object]:
        choices = [_choice(job, index, each) for index, each in enumerate(job.chosen())]
        for index, ranked in enumerate(job.ranked()):
            for choice in choices[index * fields.n : (index + 1) * fields.n]:
                choice["prompt_logprobs"] = ranked
        return {**head, "choices": choices, "usage": job.usage()}

    tokens = sum(len(each.tokens) for each in job.continuations)
    read = fields.n * sum(len(each.tokens) for each in job.prompts)
    items = (tokens + (read if fields.echo else 0)) * (1 + (fields.logprobs or 0))
    if fields.prompt_logprobs is not None:
        items += read * (1 + fields.prompt_logprobs)
    return await json_response(request, content, items)


async def _job(request: Request) -> _Job:
    fields = await read_fields(request, CompletionFields)
    fields.check()
    begun = engine_of(request).begin(caller_of(request), fields.model, "next-word")
    writer = writer_of(begun.model)
    begun.expect_inputs("score", fields.prompt)
    if (largest := max(fields.logit_bias, default=0)) >= writer.vocab_size:
        raise QueryError(f"logit_bias: token ids must be from 0 to {writer.vocab_size - 1}, not {largest}")
    begun.served.batcher.admit(len(fields.prompt) * fields.candidates, begun.deadline, flow=begun.flow)

    def query(prompt: Prompt) -> Any:
        found = writer.query(prompt, fields.explain)
        if len(found.tokens) + fields.max_tokens > writer.longest:
            raise QueryError(
                f"a prompt of {len(found.tokens)} tokens and max_tokens={fields.max_tokens} are more than the "
                f"{writer.longest} tokens of the model's longest text"
            )
        return found

    prompts = await begun.prepare("score", query, fields.prompt)
    items = len(prompts) * fields.candidates * fields.max_tokens * (1 + (fields.logprobs or 0))
    shown = fields.echo + (fields.prompt_logprobs is not None)
    items += fields.n * shown * sum(each.result_items for each in prompts)
    await begun.reserve(items)
    read = [writer.read(each) for each in prompts]
    seeds = fields.seeds()
    continuations = [
        Continuation(
            index=index,
            fields=fields,
            generator=np.random.default_rng(seeds[index]),
            unread=read[index // fields.candidates],
            prompt_tokens=len(prompts[index // fields.candidates].tokens),
            salt=writer.salt,
            finish_reason=None if fields.max_tokens else "length",
        )
        for index in range(len(seeds))
    ]
    return _Job(request, fields, begun, writer, prompts, continuations)


async def _read_prompts(job: _Job) -> None:
    """Score the prompts where that is asked for, and add the text and tokens of those that are part of the answer."""
    fields, writer, prompts = job.fields, job.writer, job.prompts
    echoed = fields.echo and fields.logprobs is not None
    if echoed or fields.prompt_logprobs is not None:
        function = "explain" if fields.explain else "score"
        job.scores = await job.begun.compute(function, list(map(writer.scored, prompts)))
    if fields.echo:
        scores = job.scores if echoed else [None] * len(prompts)
        read = zip(prompts, scores, strict=True)
        job.echoes = [writer.echo(query, score, fields.logprobs or 0) for query, score in read]


def _choice(job: _Job, index: int, found: Continuation) -> dict[str, object]:
    text, echo = job.echoes[index // job.fields.n] if job.echoes else ("", ())
    return {
        "index": index,
        "text": text + found.text,
        "finish_reason": found.finish_reason,
        "logprobs": _logged(job, [*echo, *found.tokens], 0),
    }


def _logged(job: _Job, tokens: Sequence[LoggedToken], offset: int) -> dict[str, object] | None:
    if job.fields.logprobs is None:
        return None
    return log_probabilities(tokens, offset, alternatives=job.fields.logprobs > 0)


async def _events(
    job: _Job, head: dict[str, object], first: list[Continuation], growing: AsyncIterator[list[Continuation]]
) -> AsyncIterator[bytes]:
    """Yield server-sent events: the prompts where they are asked for, pieces of the completions, the end."""
    lengths = [0] * len(job.continuations)
    with_usage = job.fields.stream_options is not None and job.fields.stream_options.include_usage
    head = {**head, "usage": None} if with_usage else head

    def event(each: Continuation, text: str, tokens: Sequence[LoggedToken], offset: int) -> bytes:
        logged = _logged(job, tokens, offset)
        choice = {"index": each.index, "text": text, "logprobs": logged, "finish_reason": each.finish_reason}
        return _event({**head, "choices": [choice]})

    try:
        for each in job.continuations if job.echoes else ():
            text, echo = job.echoes[each.index // job.fields.n]
            lengths[each.index] = len(text)
            reason, each.finish_reason = each.finish_reason, None if job.fields.max_tokens else each.finish_reason
            yield event(each, text, echo, 0)
            each.finish_reason = reason
        live = first
        while live:
            async for each in _in_turns(live):
                text, new = each.fresh(), each.tokens[-1:]
                if text or each.finish_reason or job.fields.logprobs is not None:
                    yield event(each, text, new, lengths[each.index])
                lengths[each.index] += sum(map(len, new))
            live = await anext(growing, [])
        if with_usage:
            yield _event({**head, "choices": [], "usage": job.usage()})
    except Exception as error:
        failure = failure_of(Failing.of(job.request.scope), error)
        if failure is None:
            raise
        job.request.scope["state"][FAILED_STATUS] = failure.status
        yield _event(failure_content(failure))
    yield b"data: [DONE]\n\n"


def _event(content: dict[str, object]) -> bytes:
    return f"data: {json.dumps(content, ensure_ascii=False, allow_nan=False)}\n\n".encode()
