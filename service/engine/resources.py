"""Resources that all models of a process share: memory budgets, threads that prepare requests and encode answers."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from service.engine.budget import BodyBudget, Budget, ResultBudget
from service.engine.preparation import Preparation
from service.settings import Settings

__all__ = ["GRPC_CALLS", "Resources", "memory_bounds"]

_MEGABYTE = 1 << 20
_BODIES = 16
"""Largest request bodies that are held at a time, counted by the bytes that have arrived; bodies of up to 64 KiB do not
count, for connections are bounded."""
GRPC_CALLS = 128
"""Calls over gRPC at a time, each of which may hold a message of the largest size before it is admitted."""
_COPIES_OF_BODY = 4
"""A body as bytes, as texts, as tokens, and as the texts of its answer."""
_ITEM_BYTES = 400
"""A result item as an object and as JSON, measured on `/v1/next-word`."""
_SMALL_RESULTS = 5 / 4
"""Small requests have a quarter of the result items beyond the budget."""
_PREPARATION = 2 * 30 * _MEGABYTE + 160 * _MEGABYTE
"""Two texts that are tokenized and an image of 16 megapixels that is decoded, measured."""
_BATCHES = 150 * _MEGABYTE
"""The arena of onnxruntime, measured with the bundled models."""


def memory_bounds(settings: Settings) -> Mapping[str, int]:
    """Return the most memory that the requests of one process need, in bytes, in addition to the models.

    This is the one budget of memory, which docs/serving.md (Memory) states for the default settings.
    """
    over_grpc = {} if settings.grpc_port is None else {"messages over gRPC": GRPC_CALLS * settings.max_body_bytes}
    return {
        **over_grpc,
        "request bodies": _BODIES * _COPIES_OF_BODY * settings.max_body_bytes,
        "texts and images that are prepared": _PREPARATION,
        "batches": _BATCHES,
        "decoding caches": settings.decoding_cache_mb * _MEGABYTE,
        "results and answers": round(_SMALL_RESULTS * settings.max_result_items * _ITEM_BYTES),
        "prefix cache of a language model": settings.prefix_cache_mb * _MEGABYTE,
    }


class Resources:
    """The budgets and threads of one process."""

    def __init__(self, settings: Settings) -> None:
        self.bodies = BodyBudget(_BODIES * settings.max_body_bytes, settings.max_body_bytes)
        self.results = ResultBudget(settings.max_result_items)
        self.decoding_cache = Budget(
            settings.decoding_cache_mb * _MEGABYTE, "bytes of decoding cache (--decoding-cache-mb)"
        )
        self.preparation = Preparation()
        self.encoder = ThreadPoolExecutor(1, "softserve-json")

    def close(self) -> None:
        """End the threads."""
        self.preparation.close()
        self.encoder.shutdown(wait=False, cancel_futures=True)
