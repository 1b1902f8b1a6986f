"""The common part of tasks whose models read a text and generate others by beam search."""

from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from models.backend import Backend
from models.bundle.contract import Contract, PositiveInt
from models.bundle.manifest import AnyManifest, BundleManifest
from models.decoding.continuous import Decoding, Footprint
from models.decoding.sequence_to_sequence import Decoder
from models.tasks.model import Model, Values
from models.text.config import TextConfig, TokenizerT, load_tokenizer

__all__ = ["SequenceConfig", "SequenceModel", "SequenceNetwork"]


class SequenceNetwork(Contract):
    """The sizes that networks with a decoder have in common."""

    hidden_size: PositiveInt
    """Size of the hidden states."""
    inner_size: PositiveInt
    """Width of the feed-forward networks."""
    heads: PositiveInt
    """Attention heads."""


class SequenceConfig(TextConfig):
    """The section of a model that generates texts."""

    required_graphs = frozenset({"encode", "step"})
    network: SequenceNetwork


ConfigT = TypeVar("ConfigT", bound=SequenceConfig, covariant=True)


class SequenceModel(Model[ConfigT], Generic[ConfigT, TokenizerT]):
    """A loaded bundle that generates texts by continuous decoding."""

    tokenizer_type: ClassVar[type[Any]]
    """The class of the tokenizer."""
    step_vectors: ClassVar[int] = 1
    """Vectors that a step computes for each hypothesis, at most."""
    continuous = True
    warm_up_lengths = (1, 32)

    def __init__(self, manifest: BundleManifest[ConfigT], tokenizer: TokenizerT, backend: Backend) -> None:
        super().__init__(manifest, backend)
        config = self.config
        footprint = Footprint.of_encoder(
            manifest.graphs["encode"],
            vocab_size=config.vocab_size,
            step_vectors=self.step_vectors,
            components=len(manifest.output_layer.parts),
        )
        inputs = {each.name for each in manifest.graphs["step"].inputs}
        attention = any(each.name == "attention" for each in manifest.graphs["step"].outputs)
        utf8 = tokenizer.utf8_tokens(config.vocab_size)
        self.decoder = Decoder(
            backend,
            footprint,
            config.special_tokens,
            reuse_slots="slots" in inputs,
            utf8=utf8,
            attention=attention,
            slot_positions="slot_positions" in inputs,
        )
        self._tokenizer = tokenizer

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        return cls(manifest, load_tokenizer(cls.tokenizer_type, path, manifest.config), backend)

    def compute(self, function: str, parts: Values) -> Values:
        return self.decoder.search(parts)

    def start_decoding(self, beam_size: int) -> Decoding:
        return self.decoder.start(beam_size)
