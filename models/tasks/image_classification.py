"""Image classification: PNG or JPEG files in, probabilities of their classes out.

Shapes: `B` images, `S` height and width, `k` classes asked for.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, Unpack

import numpy as np

from models.backend import Array, Backend
from models.bundle.contract import Contract, PositiveInt
from models.bundle.manifest import AnyManifest, BundleManifest
from models.errors import QueryError
from models.image.decoding import decoded
from models.operations.classification import ClassifyImageParams, ClassifyResult, most_classes
from models.operations.comparison import compare_classes
from models.operations.operation import Operation, always
from models.tasks.labels import (
    CLASSES_OUTPUTS,
    Choice,
    ChoiceOptions,
    ClassesConfig,
    Label,
    Ranking,
    Scoped,
    classes_cells,
    read_labels,
    read_sets,
)
from models.tasks.model import BatchFunction, Model, SinglePart
from models.tasks.prediction_sets import SetPredictor
from models.tasks.registry import register

__all__ = ["ImageClassification", "ImageClassifier", "ImageClassifierConfig", "ImageNetwork", "ImageQuery"]

_BATCH_IMAGES = 32
"""Images of one run."""
_BLACK = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
)
"""A PNG file of one pixel."""


class ImageNetwork(Contract):
    """The sizes of an image encoder."""

    kind: Literal["efficientnet-lite0", "densenet"]
    """Kind of network."""
    hidden_size: PositiveInt
    """Size of the pooled representation."""
    image_size: PositiveInt
    """Height and width that every image is resized to first."""


class ImageLimits(Contract):
    """The largest image that the model accepts."""

    max_pixels: PositiveInt
    """Largest image, height times width."""


class ImageClassifierConfig(ClassesConfig):
    """The section of an image classifier."""

    network: ImageNetwork
    limits: ImageLimits

    def summary(self) -> Mapping[str, object]:
        return {**super().summary(), "limits": self.limits.model_dump()}

    def description(self) -> Mapping[str, str]:
        return {**super().description(), "images": f"of up to {self.limits.max_pixels} pixels"}


@dataclass(frozen=True, slots=True)
class ImageClassification:
    """The classes of an image, most probable first."""

    labels: tuple[Label, ...]
    """Fewer than asked for where a sparse-softmax gives fewer a probability."""
    out_of_scope: bool | None
    """Whether it is likely to be of no class; None for a model that cannot tell."""
    calibration_examples: int | None = None
    """Calibration examples of a prediction set; None without coverage."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageQuery(SinglePart):
    """A decoded image."""

    pixels: Array
    """`[S, S, 3]`, uint8."""
    choice: Choice
    length: int = 1
    """All images cost the same."""

    @property
    def result_items(self) -> int:
        """Largest number of classes of the result."""
        return self.choice.top_k


def _bytes(image: str | bytes) -> bytes:
    try:
        return image if isinstance(image, bytes) else base64.b64decode(image, validate=True)
    except ValueError:
        raise QueryError("the image is not base64") from None


CLASSIFY_IMAGE = Operation["ImageClassifier", str | bytes, ClassifyImageParams, ImageClassification](
    name="classify",
    summary="Return the most probable classes of each text or image.",
    about="Texts or images to classify.",
    query=lambda model, image, params, _: model.query(_bytes(image), **params.model_dump()),
    params=ClassifyImageParams,
    repeatable=always,
    record=ClassifyResult,
    compare=compare_classes,
    input="image",
    describes_input="PNG or JPEG files in base64, instead of texts.",
    reads="image",
    result_items=lambda model, params: most_classes(params, len(model.labels)),
    omits_null=True,
    cells=classes_cells,
    outputs=CLASSES_OUTPUTS,
    classes="probability",
)


@register("image-classification")
class ImageClassifier(Scoped, Model[ImageClassifierConfig]):
    """A loaded bundle that classifies images. Safe to call from several threads.

    `classify` does a whole job; a server makes queries of files (`query`) and computes them in batches
    (`batch_functions`).
    """

    config_type = ImageClassifierConfig
    operations = (CLASSIFY_IMAGE,)
    reads = "image"
    warm_up_lengths = (1,)

    def __init__(
        self,
        manifest: BundleManifest[ImageClassifierConfig],
        labels: Sequence[str],
        backend: Backend,
        sets: SetPredictor | None = None,
    ) -> None:
        super().__init__(manifest, backend)
        self.labels: tuple[str, ...] = tuple(labels)
        self._ranking = Ranking.of(labels, self.config, sets)
        self._size, self._max_pixels = self.config.network.image_size, self.config.limits.max_pixels

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        config = manifest.config
        return cls(manifest, read_labels(path, config), backend, read_sets(path, config))

    def classify(
        self, images: Sequence[bytes], top_k: int = 5, **options: Unpack[ChoiceOptions]
    ) -> list[ImageClassification]:
        """Return the `top_k` most probable classes of each PNG or JPEG file, all where there are fewer.

        Classes of probability 0 are left out. `options` are those of `ChoiceOptions`. Raises `QueryError` for
        `top_k` below 1, for a coverage that is out of reach, and for another file, or too large an image.
        """
        choice = self._ranking.choice(top_k, **options)
        return self.run([self._query(image, choice) for image in images])

    def query(self, image: bytes, top_k: int = 5, **options: Unpack[ChoiceOptions]) -> ImageQuery:
        """Check and decode one file; see `classify`."""
        return self._query(image, self._ranking.choice(top_k, **options))

    def _query(self, image: bytes, choice: Choice) -> ImageQuery:
        return ImageQuery(decoded(image, self._size, self._max_pixels), choice)

    def log_probabilities(self, images: Sequence[bytes]) -> Array:
        """Return the log-probabilities `[N, C]` of all classes of files, as the output layer gives them."""
        queries = [self.query(image, 1) for image in images]
        groups = [queries[first : first + _BATCH_IMAGES] for first in range(0, len(queries), _BATCH_IMAGES)]
        every = np.array(self._ranking.count)
        return np.concatenate([self._ranking.in_order(*self._computed(group, every)) for group in groups])

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"classify": self.run}

    def warm_up_parts(self, operation: str, count: int, length: int) -> list[ImageQuery]:
        black = np.zeros((self._size, self._size, 3), np.uint8)
        return [ImageQuery(black, Choice(min(5, len(self.labels))))] * count

    def self_test(self) -> None:
        self.classify([_BLACK], 1)

    def run(self, queries: Sequence[ImageQuery]) -> list[ImageClassification]:
        """Return results in the order of the queries."""
        groups = [queries[first : first + _BATCH_IMAGES] for first in range(0, len(queries), _BATCH_IMAGES)]
        return [result for group in groups for result in self._run(group)]

    def _run(self, queries: Sequence[ImageQuery]) -> list[ImageClassification]:
        choices = [query.choice for query in queries]
        values, classes = self._computed(queries, self._ranking.requested(choices))
        rows = self._ranking.best(values, classes, choices, lambda row: queries[row].pixels.tobytes())
        return [ImageClassification(row.labels, row.out_of_scope, row.calibration_examples) for row in rows]

    def _computed(self, queries: Sequence[ImageQuery], k: Array) -> tuple[Array, Array]:
        """Return log-probabilities and numbers of the `k` best classes of each image, `[B, k]`."""
        inputs = {"images": np.stack([query.pixels for query in queries]), "k": k}
        values, classes = self.backend.run("classify", inputs, ["log_probabilities", "classes"])
        return values, classes
