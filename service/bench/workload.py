"""What a load test asks for: endpoint, texts or images, and bodies made of them."""

import base64
import io
import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from service.bench.options import Load, UsageError
from service.bench.sentences import ENGLISH, GERMAN
from service.bench.served import Served

__all__ = ["Workload"]

_PATHS = {
    "translation": "/v1/translate",
    "text-generation": "/v1/generate-text",
    "text-classification": "/v1/classify",
    "image-classification": "/v1/classify",
}
_WRITES = {"translation", "text-generation"}
_MOST_WORDS = 40
_IMAGES = 8
_SIDE = 256
"""Pixels of a generated image, where the model takes as many."""


class Workload:
    """An endless row of requests for one model. Raises `UsageError` for what does not fit it."""

    def __init__(self, model: Served, options: Load) -> None:
        self.path = _path_of(model, options)
        self.texts = options.texts_per_request
        """Texts, or images, of each request."""
        self.described = "built-in texts" if options.file is None else f"texts of {options.file}, in turn"
        self._field = "context" if self.path == "/v1/next-word" else "text"
        self._more: dict[str, object] = {"model": f"{model.name}:{model.version}"}
        if options.beam_size is not None:
            if model.task not in _WRITES:
                raise UsageError(f"--beam-size is for models that write texts; {model.name} is for {model.task}")
            self._more["beam_size"] = options.beam_size
        if model.task == "image-classification":
            if options.file is not None:
                raise UsageError(f"--file is for texts; {model.name} reads images")
            self._field, self.described = "image", "generated images"
            self._inputs: Iterator[str] = itertools.cycle(_images(model.limits.max_pixels))
        elif options.file is not None:
            self._inputs = itertools.cycle(_lines(options.file))
        else:
            self._more["truncate"] = True
            self._inputs = _built_in(model)

    def body(self) -> bytes:
        """Of the next request."""
        inputs = list(itertools.islice(self._inputs, self.texts))
        return json.dumps({self._field: inputs, **self._more}).encode()

    def wrong(self, content: bytes) -> str | None:
        """What is wrong with the body of an answer of status 200; None where it has a result for each text."""
        try:
            answer = json.loads(content)
        except ValueError:
            return "the answer is no JSON"
        results = answer.get("results") if isinstance(answer, Mapping) else None
        if not isinstance(results, list):
            return "the answer has no results"
        return None if len(results) == self.texts else f"{len(results)} results for {self.texts} texts"


def _path_of(model: Served, options: Load) -> str:
    if model.task == "language-model":
        return f"/v1/{options.endpoint or 'next-word'}"
    if options.endpoint is not None:
        raise UsageError(f"--endpoint is for language models; {model.name} is for {model.task}")
    if model.task not in _PATHS:
        raise UsageError(f"{model.name} is for {model.task}, which this version cannot ask for")
    return _PATHS[model.task]


def _built_in(model: Served) -> Iterator[str]:
    """Sentences; for a language model words at random, others in each run: it caches what it answered."""
    generator = random.Random(None if model.task == "language-model" else 0)
    source = model.languages.source if model.languages else "en"
    sentences = GERMAN if source == "de" else ENGLISH
    words = " ".join(sentences).split()
    while True:
        if model.task == "language-model":
            yield " ".join(generator.choices(words, k=generator.randint(1, _MOST_WORDS)))
        else:
            yield generator.choice(sentences)


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").split("\n")]
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not of UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    texts = [line for line in lines if line]
    if not texts:
        raise UsageError(f"{path} holds no text")
    return texts


def _images(max_pixels: int | None) -> list[str]:
    """PNG files in base64: coloured gradients."""
    side = min(_SIDE, math.isqrt(max_pixels or _SIDE**2))
    rows, columns = np.mgrid[0:side, 0:side] * (255 // max(1, side - 1))
    images = []
    for shift in range(0, 256, 256 // _IMAGES):
        pixels = np.stack([rows, columns, np.full_like(rows, shift)], axis=-1).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        images.append(base64.b64encode(file.getvalue()).decode())
    return images
