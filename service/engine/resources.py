"""Resources that all models of a process share: memory budgets, threads that prepare requests and encode answers."""

from concurrent.futures import ThreadPoolExecutor

from service.engine.budget import BodyBudget, Budget, ResultBudget
from service.engine.memory import available_memory
from service.engine.preparation import Preparation
from service.settings import Settings

__all__ = ["GRPC_CALLS", "Resources"]

_BODIES = 16
"""Largest request bodies that are held at a time, counted by the bytes that have arrived; bodies of up to 64 KiB do not
count, for connections are bounded."""
GRPC_CALLS = 128
"""Calls over gRPC at a time, each of which may hold a message of the largest size before it is admitted."""


class Resources:
    """The budgets and threads of one process."""

    def __init__(self, settings: Settings) -> None:
        self.bodies = BodyBudget(_BODIES * settings.max_body_bytes, settings.max_body_bytes)
        self.results = ResultBudget(settings.max_result_items, "result items (--max-result-items)")
        cache = settings.decoding_cache_bytes(available_memory() / settings.workers)
        self.decoding_cache = Budget(cache, "bytes of decoding cache (--decoding-cache-mb)")
        self.completions = Budget(cache // 2, "bytes of decoding cache for completions (half of --decoding-cache-mb)")
        """The part of the decoding caches that completions may have, so that they leave the rest to other models."""
        self.preparation = Preparation()
        self.encoder = ThreadPoolExecutor(1, "softserve-json")

    def close(self) -> None:
        """End the threads."""
        self.preparation.close()
        self.encoder.shutdown(wait=False, cancel_futures=True)
