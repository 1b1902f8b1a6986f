"""A request leaves no reference cycles: the garbage collector, which would stop others, has nothing to do."""

import asyncio
import gc
import json

import pytest

from service.server.app import create_app
from service.settings import Settings


async def ask(app, path, body):
    messages, sent = [{"type": "http.request", "body": body, "more_body": False}], []
    end = asyncio.Event()

    async def receive():
        if messages:
            return messages.pop()
        await end.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"x"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path}
    await app({**scope, "query_string": b"", "root_path": "", "scheme": "http", "headers": headers}, receive, send)
    return sent[0]["status"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/classify", {"text": ["play some music", "book a table"]}, 200),
        ("/v1/next-word", {"context": ["we had a"]}, 200),
        ("/v1/translate", {"text": "Guten Morgen"}, 200),
        ("/v1/classify", {"texts": "a"}, 422),
    ],
)
def test_a_request_leaves_no_cycles(path, body, status):
    async def run():
        app = create_app(Settings(models=("intents", "next-word", "de-en"), threads=1))
        async with app.router.lifespan_context(app):
            while not app.state.served_models.ready:
                await asyncio.sleep(0.05)
            content = json.dumps(body).encode()
            assert {await ask(app, path, content) for _ in range(3)} == {status}
            gc.collect()
            gc.disable()
            try:
                for _ in range(20):
                    await ask(app, path, content)
                await asyncio.sleep(0)
                return gc.collect()
            finally:
                gc.enable()

    assert asyncio.run(run()) < 20, "less than an object for each request"
