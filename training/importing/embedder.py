"""What imported text embeddings share, whatever computes their reference.

Shapes: `B` texts, `d` dimensions.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from tokenizers import Tokenizer, normalizers

from models.bundle.manifest import Graph
from models.tasks.text_embedding import Embedder, EmbedQuery
from models.text.encoding import EncodedText
from models.text.tokenization import EncoderTokenizer
from training.bundling.graphs import contract
from training.bundling.model_card import Card
from training.importing.encoder import TextReader, calibration_batches, correlation, encoder_tensors, quantized
from training.importing.importer import Agreement, Importer
from training.importing.sentence_modules import SentenceModules
from training.importing.tokenizers import TOKENIZER

__all__ = ["EmbedderImporter", "put_in_lower_case"]


class EmbedderImporter(Importer):
    """The import of a model that makes vectors of texts; constructors of subclasses set the attributes."""

    task = "text-embedding"
    compared, quantity = "an element of a vector", "a cosine"
    encoder: TextReader
    tokenizer: EncoderTokenizer
    modules: SentenceModules
    dimensions: int

    @property
    def contract(self) -> Graph:
        """The contract of the graph."""
        return contract(encoder_tensors(None), {"vectors": ("float32", ("batch", self.dimensions))})

    @abc.abstractmethod
    def reference_vector(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the vector of a text, before it is normalized, `[d]`."""

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.tokenizer.save}

    def config(self) -> Mapping[str, object]:
        encoder, modules = self.encoder, self.modules
        return {
            "network": encoder.network,
            "tokenizer": TOKENIZER,
            "vocab_size": self.tokenizer.vocab_size,
            "special_tokens": encoder.special.model_dump(),
            "limits": {"max_tokens": encoder.max_tokens},
            "dimensions": self.dimensions,
            "normalized": modules.normalized,
            "pooling": modules.line,
            "prompts": dict(modules.prompts),
            "default_prompt": modules.default_prompt,
        }

    def softmax(self) -> None:
        """Embeddings have no output layer."""
        return

    def largest_difference(self, model: Embedder, bundle: Path, texts: Sequence[str]) -> float:
        """Compare the elements of vectors before they are normalized, relative to the length of the longest vector."""
        del bundle
        queries = model.queries(texts, prompt="", normalize=False, truncate=True)
        expected = np.stack([self.reference_vector(query.encoded) for query in queries])
        together = np.stack([each.vector for each in model.run(queries)])
        alone = np.stack([model.run([query])[0].vector for query in queries])
        scale = max(1.0, float(np.linalg.norm(expected, axis=1).max()))
        return float(np.abs(np.stack([together, alone]) - expected).max()) / scale

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Embedder, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        queries: list[EmbedQuery] = model.queries(texts, truncate=True)
        return quantized(models, "embed", calibration_batches(queries, None), "vectors")

    def agreement(self, float32: Embedder, lossy: Embedder, texts: Sequence[str]) -> Agreement:
        """Compare the similarities of all pairs of texts."""
        one, other = (_similarities(model, texts) for model in (float32, lossy))
        return Agreement(
            metric="correlation of similarities with float32",
            value=correlation(one, other),
            difference=float(np.abs(one - other).max(initial=0.0)),
        )

    def card(self) -> Card:
        modules = self.modules
        prompts = ", ".join(f"`{name}`: {text!r}" for name, text in modules.prompts.items())
        return Card(
            network=self.encoder.network_line,
            outputs=f"Vectors: {self.dimensions} dimensions{', of length 1' if modules.normalized else ''}; "
            f"{modules.line}\n* Vocabulary: {self.tokenizer.vocab_size} tokens"
            f"{f'{chr(10)}* Prompts: {prompts}' if prompts else ''}",
            limits=f"Each text may have up to {self.encoder.max_tokens} tokens. Its vectors repeat the biases of its "
            "training data.",
        )


def _similarities(model: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the cosines of all pairs of different texts, `[pairs]`."""
    vectors = model.embed(texts, normalize=True, truncate=True)
    found: NDArray[np.float32] = (vectors @ vectors.T)[np.triu_indices(len(texts), 1)]
    return found


def put_in_lower_case(tokenizer: Tokenizer) -> None:
    """Make a tokenizer read texts in lower case."""
    steps = [normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
