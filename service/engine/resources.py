"""What all models of a process share: budgets of memory, and threads that prepare requests and encode answers."""

from concurrent.futures import ThreadPoolExecutor

from service.engine.budget import Budget, ResultBudget
from service.engine.preparation import Preparation
from service.settings import Settings

__all__ = ["Resources"]

_BODIES = 16
"""Largest request bodies that are held at a time; bodies below `SMALL_BODY` do not count."""


class Resources:
    """One for each process. docs/serving.md, Memory, states what each of these bounds amounts to."""

    def __init__(self, settings: Settings) -> None:
        self.bodies = Budget(_BODIES * settings.max_body_bytes, "bytes of request bodies")
        self.results = ResultBudget(settings.max_result_items)
        self.decoding_cache = Budget(settings.decoding_cache_mb << 20, "bytes of the cache (--decoding-cache-mb)")
        self.preparation = Preparation()
        self.encoder = ThreadPoolExecutor(1, "softserve-json")

    def close(self) -> None:
        """End the threads."""
        self.preparation.close()
        self.encoder.shutdown(wait=False, cancel_futures=True)
