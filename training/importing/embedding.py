"""Import of text embeddings: directories of sentence-transformers, and bare encoders with a pooling that is stated.

Shapes: `B` texts, `d` dimensions.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, normalizers

from models.tasks.text_embedding import Embedder, EmbedQuery
from models.text.encoding import EncodedText
from models.text.tokenization import EncoderTokenizer
from training.bundling.bundle import BundleGraph
from training.bundling.calibration import RangeRecorder
from training.bundling.graphs import contract
from training.bundling.model_card import Card
from training.bundling.quantize import quantize_int8_static
from training.importing.encoder import Encoder, calibration_batches, encoder_tensors
from training.importing.errors import ImportRefused
from training.importing.importer import EMBEDDER, Agreement, Importer, ImportOptions, need, register
from training.importing.sentence_modules import SentenceHead, read_modules
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tokenizers import TOKENIZER

__all__ = ["EmbeddingImporter"]


@register(EMBEDDER)
class EmbeddingImporter(Importer):
    """The import of an encoder that makes vectors of texts."""

    task = "text-embedding"
    compared, quantity = "an element of a vector", "a cosine"

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self._modules = modules = read_modules(source, options.pooling)
        limit = ImportOptions(max_tokens=options.max_tokens or modules.max_tokens)
        self._encoder = encoder = Encoder(source, limit, _base_class(source))
        encoder.pairs = None  # vectors are of single texts
        self.tokenizer = encoder.tokenizer
        if modules.lower_case:
            self.tokenizer = _in_lower_case(encoder)
        self._head = SentenceHead(modules).eval()
        sample = EncodedText((encoder.special.end,) * 3, 3)
        try:
            self._dimensions = len(self._reference(sample))
        except RuntimeError as error:
            raise ImportRefused(f"the modules of {source.name} do not fit each other: {error}") from error

    def graphs(self) -> Mapping[str, BundleGraph]:
        graph = contract(encoder_tensors(None), {"vectors": ("float32", ("batch", self._dimensions))})
        return {"embed": self._encoder.graph(self._head, graph)}

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.tokenizer.save}

    def config(self) -> Mapping[str, object]:
        encoder, modules = self._encoder, self._modules
        return {
            "network": encoder.network,
            "tokenizer": TOKENIZER,
            "vocab_size": self.tokenizer.vocab_size,
            "special_tokens": encoder.special.model_dump(),
            "limits": {"max_tokens": encoder.max_tokens},
            "dimensions": self._dimensions,
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
        self._encoder.compare_tokens(self.tokenizer, texts)
        queries = model.queries(texts, prompt="", normalize=False, truncate=True)
        expected = np.stack([self._reference(query.encoded) for query in queries])
        together = np.stack([each.vector for each in model.run(queries)])
        alone = np.stack([model.run([query])[0].vector for query in queries])
        scale = max(1.0, float(np.linalg.norm(expected, axis=1).max()))
        return float(np.abs(np.stack([together, alone]) - expected).max()) / scale

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Embedder, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        recorder = RangeRecorder(models)
        queries: list[EmbedQuery] = model.queries(texts, truncate=True)
        for inputs in calibration_batches(queries, None):
            recorder.run("embed", inputs, ["vectors"])
        return {name: quantize_int8_static(each, recorder.ranges(name)) for name, each in models.items()}

    def agreement(self, float32: Embedder, int8: Embedder, texts: Sequence[str]) -> Agreement:
        """Compare the similarities of all pairs of texts."""
        one, other = (_similarities(model, texts) for model in (float32, int8))
        return Agreement(
            metric="correlation of similarities with float32",
            value=float(np.corrcoef(one, other)[0, 1]) if len(one) > 1 and one.std() > 0 else 1.0,
            difference=float(np.abs(one - other).max(initial=0.0)),
        )

    def card(self) -> Card:
        modules = self._modules
        prompts = ", ".join(f"`{name}`: {text!r}" for name, text in modules.prompts.items())
        return Card(
            network=self._encoder.network_line,
            outputs=f"Vectors: {self._dimensions} dimensions{', of length 1' if modules.normalized else ''}; "
            f"{modules.line}\n* Vocabulary: {self.tokenizer.vocab_size} tokens"
            f"{f'{chr(10)}* Prompts: {prompts}' if prompts else ''}",
            limits=f"Each text may have up to {self._encoder.max_tokens} tokens. Its vectors repeat the biases of its "
            "training data.",
        )

    @torch.no_grad()
    def _reference(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the vector of a text by transformers, before it is normalized, `[d]`."""
        found: NDArray[np.float32] = self._head(self._encoder.reference(text), torch.tensor([len(text.tokens)]))[0]
        return np.asarray(found, np.float32)


def _similarities(model: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the cosines of all pairs of different texts, `[pairs]`."""
    vectors = model.embed(texts, normalize=True, truncate=True)
    found: NDArray[np.float32] = (vectors @ vectors.T)[np.triu_indices(len(texts), 1)]
    return found


def _base_class(source: SourceDirectory) -> type:
    """Return the class of transformers without a head; raises `ImportRefused`."""
    mapping = need("transformers.models.auto.modeling_auto").MODEL_MAPPING_NAMES
    kind = source.config.get("model_type")
    name = mapping.get(kind)
    if "auto_map" in source.config or not isinstance(name, str):
        reason = "names code of the directory, which is not run" if "auto_map" in source.config else "is not known"
        raise ImportRefused(f"{CONFIG}: the model type {kind!r} {reason}; choose an encoder of transformers")
    found: type = getattr(need("transformers"), name)
    return found


def _in_lower_case(encoder: Encoder) -> EncoderTokenizer:
    """Return the tokenizer of texts in lower case."""
    tokenizer = Tokenizer.from_str(encoder.reference_tokenizer.backend_tokenizer.to_str())
    steps = [normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
    encoder.reference_tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(steps)
    return EncoderTokenizer(tokenizer, encoder.special)
