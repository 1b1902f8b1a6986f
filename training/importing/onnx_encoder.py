"""What importers of ONNX files share: a graph that reads texts, with its tokenizer and the longest text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from tokenizers import Tokenizer

from models.bundle.contract import SpecialTokens
from models.bundle.manifest import Graph
from models.text.encoding import EncodedText, Pairs
from models.text.tokenization import EncoderTokenizer
from training.bundling.bundle import BundleGraph
from training.importing.encoder import pairs_of
from training.importing.errors import ImportRefused
from training.importing.importer import ONNX
from training.importing.onnx_graph import SEGMENTS, OriginalGraph, wrapped
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tokenizers import encoder_tokenizer, read_tokenizer

__all__ = ["OnnxEncoder"]

_MAX_TOKENS = 512
"""Longest text where nothing says how long texts may be; the comparison has one of this length."""
_SIZES = {
    "hidden_size": ("hidden_size", "dim"),
    "inner_size": ("intermediate_size", "hidden_dim"),
    "layers": ("num_hidden_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_heads"),
}
"""Fields of `config.json` for each size of the manifest."""


class OnnxEncoder:
    """A given graph that reads texts, with its tokenizer, as `encoder.Encoder` is for a module of transformers."""

    tokenizer: EncoderTokenizer
    special: SpecialTokens
    pairs: Pairs | None

    def __init__(
        self,
        source: SourceDirectory,
        original: OriginalGraph,
        max_tokens: int | None,
        prepare: Callable[[Tokenizer], object] = lambda tokenizer: None,
    ) -> None:
        """`max_tokens` is by default what the directory states; `prepare` may change its tokenizer.

        Raises `ImportRefused`.
        """
        self._original = original
        tokenizer = read_tokenizer(source)
        prepare(tokenizer)
        self.tokenizer, self.special = encoder_tokenizer(tokenizer)
        self.config: Mapping[str, Any] = source.json(CONFIG, optional=True)
        """The object in `config.json`, an empty one where there is none."""
        self.max_tokens = max_tokens or _stated_tokens(source)
        if self.max_tokens < 3:
            raise ImportRefused(f"--max-tokens must be at least 3, not {self.max_tokens}")
        self.pairs = pairs_of(tokenizer, self.special, segments=SEGMENTS in original.inputs)

    @property
    def network(self) -> Mapping[str, object]:
        """The section of the manifest."""
        return {"kind": "imported", "architecture": ONNX, **_sizes(self.config), "positions": self.max_tokens}

    @property
    def network_line(self) -> str:
        """A line of the model card."""
        return self._original.line

    def reference(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the output of the given graph for one text, or one pair, without the axis of texts."""
        return self._original.run(text)

    def sample(self) -> tuple[EncodedText, NDArray[np.float32]]:
        """Return a text of three tokens, the vocabulary's last one among them, and the output for it."""
        sample = (self.special.start or 0, self.tokenizer.vocab_size - 1, self.special.end)
        text = EncodedText(sample, len(sample))
        return text, self.reference(text)

    def graph(self, described: Graph, after: Sequence[onnx.NodeProto]) -> BundleGraph:
        """Return the graph with the inputs and outputs of a contract; see `onnx_graph.wrapped`."""
        return BundleGraph(described, wrapped(self._original, described, after))


def _stated_tokens(source: SourceDirectory) -> int:
    """Return the longest text that configuration or tokenizer state."""
    config = source.json(CONFIG, optional=True)
    positions, padding = config.get("max_position_embeddings"), config.get("pad_token_id")
    if isinstance(positions, int) and "roberta" in str(config.get("model_type")) and isinstance(padding, int):
        positions -= padding + 1
    length = source.json("tokenizer_config.json", optional=True).get("model_max_length")
    stated = [each for each in (positions, length) if isinstance(each, int) and 3 <= each <= 1 << 17]
    return min(stated, default=_MAX_TOKENS)


def _sizes(config: Mapping[str, Any]) -> Mapping[str, int | None]:
    """Return the sizes of the encoder that a configuration states."""
    sizes = {}
    for size, names in _SIZES.items():
        value = next((config[name] for name in names if name in config), None)
        sizes[size] = value if isinstance(value, int) and value > 0 else None
    return sizes
