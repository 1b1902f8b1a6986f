"""The duration of a request is the service's: its client's time to send and to read is none of it."""

import asyncio
import time

from service.http.middleware import RequestMiddleware
from service.observability.metrics import Metrics


def test_the_time_that_a_client_takes_to_send_and_to_read_does_not_count():
    metrics, parts = Metrics(), [0.2, 0.2]

    async def receive():
        await asyncio.sleep(parts.pop(0))
        return {"type": "http.request", "body": b"a", "more_body": bool(parts)}

    async def send(message):
        await asyncio.sleep(0.2)

    async def app(scope, receive, send):
        while (await receive())["more_body"]:
            pass
        await asyncio.sleep(0.1)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"transfer-encoding", b"chunked")]}
    middleware = RequestMiddleware(app, metrics=metrics, max_body_bytes=100)
    began = time.monotonic()
    asyncio.run(middleware(scope, receive, send))
    whole = time.monotonic() - began
    name, labels = "softserve_request_duration_seconds_sum", {"model": "", "endpoint": "unmatched"}
    assert 0.09 < metrics.registry.get_sample_value(name, labels) <= whole - 0.79
