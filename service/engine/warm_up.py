"""Warm-up: every operation of a model runs before the first request, to avoid cold-start latency."""

import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from models import Classifier, Generator, ImageClassifier, Translator
from models.decoding.sequence_to_sequence import SequenceToSequenceModel
from models.bundle.store import Model
from service.engine.priority import lower_thread_priority

__all__ = ["warm_up"]

_BATCH_ITEMS = 8
"""Texts of the larger of the two batches that are tried."""
_BLACK = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
)
"""A PNG file of one pixel."""


def warm_up(model: Model, *, max_batch_items: int, parallel_batches: int) -> None:
    """Run every operation of a model on batches of several sizes and lengths, concurrently where it will be used so.

    Raises what the model does.
    """
    concurrently = parallel_batches > 1 and not isinstance(model, SequenceToSequenceModel)
    with ThreadPoolExecutor(2, initializer=lower_thread_priority) as pool:
        for count in (1, min(_BATCH_ITEMS, max_batch_items)):
            for words in _lengths(model):
                texts = [" ".join(["a"] * words)] * count
                _run(model, texts)
                if concurrently:
                    list(pool.map(_run, [model] * 2, [texts] * 2))


def _lengths(model: Model) -> list[int]:
    """Return the lengths of texts to try, in words; few for models that write, which takes long."""
    if isinstance(model, ImageClassifier):
        return [1]
    lengths = (1, 32) if isinstance(model, SequenceToSequenceModel) else (1, 8, 32, 128)
    return [length for length in lengths if length < model.manifest.text.max_tokens] or [1]


def _run(model: Model, texts: Sequence[str]) -> None:
    """Run everything that the model can do, on these texts or as many images; a word may be several tokens."""
    if isinstance(model, Translator):
        model.translate(texts, truncate=True)
    elif isinstance(model, Generator):
        model.generate(texts, truncate=True)
    elif isinstance(model, ImageClassifier):
        model.classify([_BLACK] * len(texts))
    elif isinstance(model, Classifier):
        model.classify(texts, truncate=True)
    else:
        model.next_words(texts)
        model.score(texts)
