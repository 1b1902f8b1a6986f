"""Ray Serve's own batching of the library, which `benchmarks.ray_serve` compares with the service's."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ray import serve
from ray.serve import Application
from starlette.requests import Request

from models import ModelStore
from models.store import BUNDLED

__all__ = ["application"]

Method = TypeVar("Method", bound=Callable[..., Any])

_batched: Callable[[Method], Method] = serve.batch(max_batch_size=32, batch_wait_timeout_s=0.005)


class _Models:
    def __init__(self, threads: int) -> None:
        store = ModelStore(BUNDLED)
        self._translator: Any = store.load("de-en", threads=threads)
        self._classifier: Any = store.load("intents", threads=threads)

    @_batched
    async def translate(self, texts: Sequence[str]) -> list[Any]:
        found = await asyncio.to_thread(self._translator.translate, texts)
        return [each.translations[0].text for each in found]

    @_batched
    async def classify(self, texts: Sequence[str]) -> list[Any]:
        found = await asyncio.to_thread(self._classifier.classify, texts)
        return [each.labels[0].label for each in found]

    async def __call__(self, request: Request) -> Any:
        operation = self.translate if request.url.path.endswith("/translate") else self.classify
        return {"result": await operation((await request.json())["text"])}


def application(args: dict[str, int]) -> Application:
    """Return the application; `args` has the number of `threads`."""
    options = {"max_ongoing_requests": 256, "ray_actor_options": {"num_cpus": args["threads"]}}
    return serve.deployment(_Models, name="models", **options).bind(args["threads"])
