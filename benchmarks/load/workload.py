"""The requests of a load test: endpoint, texts or images, and request bodies."""

import base64
import io
import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.load.model_list import ListedModel
from benchmarks.load.options import LoadOptions, UsageError

__all__ = ["Workload", "texts_of"]

_TEXTS = Path(__file__).parent / "texts"
"""Built-in sentences of 1 to 40 words, `en.txt` and `de.txt`."""

_PATHS = {
    "classify": "/v1/classify",
    "generate": "/v1/generate-text",
    "next-word": "/v1/next-word",
    "score": "/v1/score",
    "translate": "/v1/translate",
}
"""Endpoint of each operation."""
_BEAM_SEARCH = {"generate", "translate"}
_CACHED = {"next-word", "score"}
"""Operations of which the server reuses what texts have in common; repeated sentences would measure its cache."""
_MAX_WORDS = 40
_IMAGES = 8
_SIDE = 256
"""Height and width of a generated image, in pixels, unless the model's limit is lower."""


class Workload:
    """An endless sequence of requests for one model; raises `UsageError` for options that do not fit the model."""

    def __init__(self, model: ListedModel, options: LoadOptions) -> None:
        operation = _operation(model, options.endpoint)
        self.path = _PATHS[operation]
        self.inputs_per_request = options.texts_per_request
        """Texts or images in each request."""
        self.description = "built-in texts" if options.file is None else f"texts of {options.file}, in turn"
        self._field = "context" if operation == "next-word" else "text"
        self._parameters: dict[str, object] = {"model": f"{model.name}:{model.version}"}
        if options.beam_size is not None:
            if operation not in _BEAM_SEARCH:
                raise UsageError(f"--beam-size has no effect on {operation}, which {model.name} is tested with")
            self._parameters["beam_size"] = options.beam_size
        if model.reads == "image":
            if options.file is not None:
                raise UsageError(f"--file is for texts; {model.name} reads images")
            self._field, self.description = "image", "generated images"
            self._inputs: Iterator[str] = itertools.cycle(_images(model.limits.max_pixels))
        elif options.file is not None:
            self._inputs = itertools.cycle(texts_of(options.file))
        else:
            self._parameters["truncate"] = True
            self._inputs = _built_in(operation, model.languages.source if model.languages else "en")

    def body(self) -> bytes:
        """Return the body of the next request."""
        inputs = list(itertools.islice(self._inputs, self.inputs_per_request))
        return json.dumps({self._field: inputs, **self._parameters}).encode()

    def error_in(self, content: bytes) -> str | None:
        """Return the error in the body of a response of status 200; None where it has a result for each input."""
        try:
            response = json.loads(content)
        except ValueError:
            return "the response is not JSON"
        results = response.get("results") if isinstance(response, dict) else None
        if not isinstance(results, list):
            return "the response has no results"
        expected = self.inputs_per_request
        return None if len(results) == expected else f"{len(results)} results for {expected} texts"


def _operation(model: ListedModel, wanted: str | None) -> str:
    """Return the operation to test: the wanted one, or else the model's first that has an endpoint here."""
    if wanted is not None and wanted not in model.operations:
        raise UsageError(f"--endpoint {wanted}: {model.name} offers {', '.join(model.operations)}")
    for operation in model.operations:
        if operation in _PATHS and wanted in (None, operation):
            return operation
    raise UsageError(f"{model.name} offers {', '.join(model.operations)}, which this version cannot request")


def _built_in(operation: str, language: str) -> Iterator[str]:
    """Yield sentences, the same in each run; random words, others in each run, where the server would reuse results."""
    sentences = texts_of(_TEXTS / ("de.txt" if language == "de" else "en.txt"))
    if operation not in _CACHED:
        generator = random.Random(0)
        while True:
            yield generator.choice(sentences)
    words, generator = " ".join(sentences).split(), random.Random()
    while True:
        yield " ".join(generator.choices(words, k=generator.randint(1, _MAX_WORDS)))


def texts_of(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file that are not empty; raises `UsageError` where there are none."""
    try:
        texts = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if not texts:
        raise UsageError(f"{path} holds no text")
    return texts


def _images(max_pixels: int | None) -> list[str]:
    """Return PNG files of coloured gradients in base64."""
    side = min(_SIDE, math.isqrt(max_pixels or _SIDE**2))
    rows, columns = np.mgrid[0:side, 0:side] * (255 // max(1, side - 1))
    images = []
    for shift in range(0, 256, 256 // _IMAGES):
        pixels = np.stack([rows, columns, np.full_like(rows, shift)], axis=-1).astype(np.uint8)
        Image.fromarray(pixels).save(file := io.BytesIO(), "PNG")
        images.append(base64.b64encode(file.getvalue()).decode())
    return images
