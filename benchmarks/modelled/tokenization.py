"""The ceiling of requests of many texts: a process that only tokenizes."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.sides import Work, side
from models.reading import read_manifest
from models.tasks.text_classification import ClassifierConfig
from models.text.config import load_tokenizer
from models.text.tokenization import EncoderTokenizer

__all__ = ["tokenized"]

_PASSES = 4


def tokenized(bundle: Path, texts: Sequence[str], many: int) -> float:
    """Return the requests/s of a process with one thread that only tokenizes, so many texts a request."""
    groups = [texts[first : first + many] for first in range(0, len(texts), many)]
    with side(_make, bundle) as tokenizer:
        tokenizer.time(groups)
        seconds, _ = tokenizer.time(groups * _PASSES)
    return _PASSES * len(groups) / seconds


def _make(bundle: Path) -> Work:
    manifest = read_manifest(bundle)
    assert isinstance(manifest.config, ClassifierConfig)
    tokenizer = load_tokenizer(EncoderTokenizer, bundle, manifest.config)
    return lambda texts: [len(tokenizer.encode(text)) for text in texts]
