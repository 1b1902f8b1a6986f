"""Text embedding: texts in, unit vectors out. Shapes: `B` texts, `d` hidden size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from models.backend import Array, Backend
from models.bundle.contract import PositiveInt
from models.bundle.manifest import BundleManifest
from models.operations.operation import Operation, Record, TruncateParams
from models.tasks.model import BatchFunction, Model, SinglePart
from models.text.config import TextConfig, load_tokenizer
from models.text.limits import TextLimit, ends
from models.text.padding import padded
from models.text.tokenization import EncoderTokenizer

__all__ = ["EMBED", "EmbedResult", "EmbeddingConfig", "EmbeddingModel", "EmbeddingQuery"]


class EmbeddingConfig(TextConfig):
    """The section of the manifest."""

    required_graphs = frozenset({"vector"})
    dimensions: PositiveInt

    def summary(self) -> Mapping[str, object]:
        return {**super().summary(), "dimensions": self.dimensions}


@dataclass(frozen=True, slots=True)
class EmbeddingQuery(SinglePart):
    """A tokenized text."""

    tokens: tuple[int, ...]
    result_items: int

    @property
    def length(self) -> int:
        return len(self.tokens)


class EmbedResult(Record):
    """The vector of one text."""

    embedding: list[float]
    """Its coordinates; their squares sum to 1."""


EMBED = Operation["EmbeddingModel", str, TruncateParams, Array](
    name="vector",
    summary="Return a unit vector for each text.",
    about="Texts to embed.",
    query=lambda model, text, params, _: model.query(text, truncate=params.truncate),
    params=TruncateParams,
    record=EmbedResult,
    recorded=lambda vector, _: EmbedResult(embedding=vector.tolist()),
    examples=({"text": "please walk now"},),
)


class EmbeddingModel(Model[EmbeddingConfig]):
    """A loaded bundle."""

    config_type = EmbeddingConfig
    operations = (EMBED,)

    def __init__(
        self, manifest: BundleManifest[EmbeddingConfig], tokenizer: EncoderTokenizer, backend: Backend
    ) -> None:
        super().__init__(manifest, backend)
        self._tokenizer = tokenizer
        self._limit = TextLimit(self.config.limits.max_tokens, added_tokens=2)

    @classmethod
    def from_bundle(cls, path: Path, manifest: BundleManifest[Any], backend: Backend) -> Self:
        return cls(manifest, load_tokenizer(EncoderTokenizer, path, manifest.config), backend)

    def embed(self, texts: Sequence[str]) -> list[Array]:
        """Return the vector `[d]` of each text."""
        return self.run([self.query(text) for text in texts])

    def query(self, text: str, *, truncate: bool = False) -> EmbeddingQuery:
        """Check and tokenize one text."""
        keep = ends if truncate else None
        tokens = self._limit.tokens(self._tokenizer.encode(self._limit.characters(text, keep)), keep)
        return EmbeddingQuery(tuple(self._tokenizer.framed(tokens)), self.config.dimensions)

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"vector": self.run}

    def warm_up_parts(self, operation: str, count: int, length: int) -> list[EmbeddingQuery]:
        return [self.query("a " * min(length, self._limit.max_tokens), truncate=True)] * count

    def run(self, queries: Sequence[EmbeddingQuery]) -> list[Array]:
        """Return vectors in the order of the queries."""
        (vectors,) = self.backend.run("vector", padded([query.tokens for query in queries]), ["embeddings"])
        return list(vectors)
