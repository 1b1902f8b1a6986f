"""Import of text embeddings: directories of sentence-transformers, and bare encoders with a pooling that is stated.

Shapes: `B` texts, `d` dimensions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from models.tasks.text_embedding import Embedder
from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.weight_file import WeightFile
from training.importing.embedder import EmbedderImporter, put_in_lower_case
from training.importing.encoder import Encoder
from training.importing.errors import BY_ONNX, SAVED_AGAIN, ImportRefused
from training.importing.importer import EMBEDDER, ImportOptions, need, register
from training.importing.remote_code import names_code
from training.importing.sentence_modules import SentenceHead, read_modules
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tokenizers import encoder_tokenizer

__all__ = ["EmbeddingImporter", "SentenceEncoder"]


class SentenceEncoder:
    """An encoder of transformers with the modules that make a vector of its hidden states."""

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        """Raise `ImportRefused` for modules that are not known or do not fit each other."""
        self.modules = modules = read_modules(source, options.pooling)
        limit = ImportOptions(max_tokens=options.max_tokens or modules.max_tokens)
        self.encoder = encoder = Encoder(source, limit, _base_class(source))
        encoder.pairs = None  # vectors are of single texts
        self.tokenizer = encoder.tokenizer
        if modules.lower_case:
            put_in_lower_case(encoder.reference_tokenizer.backend_tokenizer)
            self.tokenizer, _ = encoder_tokenizer(encoder.reference_tokenizer.backend_tokenizer)
        self.head = SentenceHead(modules).eval()
        sample = EncodedText((encoder.special.end,) * 3, 3)
        try:
            self.dimensions = len(self.vector(sample))
        except RuntimeError as error:
            raise ImportRefused(
                f"the modules of {source.name} do not fit each other: {error}; {SAVED_AGAIN}"
            ) from error

    @torch.no_grad()
    def vector(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the vector of a text, before it is normalized, `[d]`."""
        found: NDArray[np.float32] = self.head(self.encoder.reference(text), torch.tensor([len(text.tokens)]))[0]
        return np.asarray(found, np.float32)


@register(EMBEDDER)
class EmbeddingImporter(EmbedderImporter):
    """The import of an encoder of transformers that makes vectors of texts."""

    encoder: Encoder

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self._sentences = sentences = SentenceEncoder(source, options)
        self.modules, self.encoder, self.tokenizer = sentences.modules, sentences.encoder, sentences.tokenizer
        self.dimensions = sentences.dimensions

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        return {"embed": self.encoder.graph(weights, self._sentences.head, self.contract)}

    def largest_difference(self, model: Embedder, bundle: Path, texts: Sequence[str]) -> float:
        self.encoder.compare_tokens(self.tokenizer, texts)
        return super().largest_difference(model, bundle, texts)

    def reference_vector(self, text: EncodedText) -> NDArray[np.float32]:
        return self._sentences.vector(text)


def _base_class(source: SourceDirectory) -> type:
    """Return the class of transformers without a head; raises `ImportRefused`."""
    mapping = need("transformers.models.auto.modeling_auto").MODEL_MAPPING_NAMES
    kind = source.config.get("model_type")
    name = mapping.get(kind)
    if not isinstance(name, str):
        code = ", and code for it is not run" if names_code(source) else ""
        raise ImportRefused(f"{CONFIG}: transformers does not have the model type {kind!r}{code}; {BY_ONNX}")
    found: type = getattr(need("transformers"), name)
    return found
