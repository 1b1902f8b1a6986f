"""`POST /v1/completions`: prompts are scored where that is asked for, and go on token by token."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import numpy as np
from fastapi import Request, Response
from starlette.responses import StreamingResponse

from models import QueryError
from models.tasks.language_model import LanguageModel
from models.tasks.language_results import ScoreQuery
from service.engine.client import Begun
from service.http.errors import FAILED_STATUS, Failing, failure_of
from service.http.requests import caller_of, engine_of
from service.protocols.fields import json_response, read_fields
from service.protocols.openai.continuation import Continuation, LoggedToken, log_probabilities, logged_prompt
from service.protocols.openai.failures import failure_content
from service.protocols.openai.fields import CompletionFields, Prompt
from service.protocols.openai.word_models import word_model

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
    prompts: Sequence[ScoreQuery]
    continuations: list[Continuation]
    echoes: Sequence[Sequence[LoggedToken]] = ()

    @property
    def model(self) -> LanguageModel:
        return cast(LanguageModel, self.begun.served.model)  # only these offer what is asked for

    async def grow(self) -> AsyncIterator[list[Continuation]]:
        """Add a token to each completion that has not ended, and yield them, until all have ended."""
        live = [each for each in self.continuations if each.finish_reason is None]
        if live:
            self.begun.expect_parts("draw", [each.query() for each in live], self.fields.max_tokens)
        while live:
            drawn = await self.begun.compute("draw", [each.query() for each in live])
            self.begun.served.observer.generated(len(live))
            async for each, token in _in_turns(zip(live, drawn, strict=True)):
                each.add(token, self.model)
            yield live
            live = [each for each in live if each.finish_reason is None]

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
    if fields.echo:
        job.echoes = await _echoes(job)
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
        choices = [_choice(job, each) for each in job.continuations]
        return {**head, "choices": choices, "usage": job.usage()}

    tokens = sum(len(each.tokens) for each in job.continuations) + fields.n * sum(map(len, job.echoes))
    return await json_response(request, content, tokens * (1 + (fields.logprobs or 0)))


async def _job(request: Request) -> _Job:
    fields = await read_fields(request, CompletionFields)
    fields.check()
    begun = engine_of(request).begin(caller_of(request), fields.model, "next-word")
    model = word_model(begun.model)
    begun.expect_inputs("score", fields.prompt)
    begun.served.batcher.admit(len(fields.prompt) * fields.n, begun.deadline)

    def query(prompt: Prompt) -> ScoreQuery:
        alternatives = (fields.logprobs or 0) if fields.echo else 0
        if isinstance(prompt, str):
            found: ScoreQuery = model.score_query(prompt, explain=alternatives)
        else:
            found = model.score_token_query(prompt, explain=alternatives)
        if len(found.tokens) + fields.max_tokens > model.longest_input:
            raise QueryError(
                f"a prompt of {len(found.tokens)} tokens and max_tokens={fields.max_tokens} are more than the "
                f"{model.longest_input} tokens of the model's longest text"
            )
        return found

    prompts = await begun.prepare("score", query, fields.prompt)
    items = len(prompts) * fields.n * fields.max_tokens * (1 + (fields.logprobs or 0))
    if fields.echo:
        items += fields.n * sum(each.result_items for each in prompts)
    await begun.reserve(items)
    end = model.config.special_tokens.end
    seeds = fields.seeds()
    continuations = [
        Continuation(
            index=index,
            fields=fields,
            generator=np.random.default_rng(seeds[index]),
            unread=_read(prompts[index // fields.n].tokens, end),
            prompt_tokens=len(prompts[index // fields.n].tokens),
            finish_reason=None if fields.max_tokens else "length",
        )
        for index in range(len(seeds))
    ]
    return _Job(request, fields, begun, prompts, continuations)


def _read(tokens: Sequence[int], end: int) -> tuple[int, ...]:
    """Return what the network reads: a text follows a sentence end, which it may begin with itself."""
    return tuple(tokens) if tokens and tokens[0] == end else (end, *tokens)


async def _echoes(job: _Job) -> list[list[LoggedToken]]:
    """Return the tokens of each prompt, with their log-probabilities where these are asked for."""
    logprobs, end = job.fields.logprobs, job.model.config.special_tokens.end
    words = [job.model.spelled(each.tokens) if not each.text else list(each.words) for each in job.prompts]
    if logprobs is None:
        return [logged_prompt(each, None) for each in words]
    read = [_without_end(each, end) for each in job.prompts]
    scores = await job.begun.compute("explain" if logprobs else "score", read)
    return [logged_prompt(*each) for each in zip(words, scores, strict=True)]


def _without_end(query: ScoreQuery, end: int) -> ScoreQuery:
    """Return a query without a first sentence end, after which every text is read anyway."""
    if query.tokens[:1] != (end,):
        return query
    return replace(query, tokens=query.tokens[1:], words=query.words[1:])


def _choice(job: _Job, found: Continuation) -> dict[str, object]:
    echo = job.echoes[found.index // job.fields.n] if job.echoes else ()
    return {
        "index": found.index,
        "text": _text(echo) + found.text,
        "finish_reason": found.finish_reason,
        "logprobs": _logged(job, [*echo, *found.tokens], 0),
    }


def _text(tokens: Sequence[LoggedToken]) -> str:
    return "".join(token.text for token in tokens)


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
            echo = job.echoes[each.index // job.fields.n]
            lengths[each.index] = len(_text(echo))
            reason, each.finish_reason = each.finish_reason, None if job.fields.max_tokens else each.finish_reason
            yield event(each, _text(echo), echo, 0)
            each.finish_reason = reason
        live = first
        while live:
            async for each in _in_turns(live):
                text, new = each.fresh(), each.tokens[-1:]
                if text or each.finish_reason or job.fields.logprobs is not None:
                    yield event(each, text, new, lengths[each.index])
                lengths[each.index] += len(_text(new))
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
