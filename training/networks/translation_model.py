"""A translation model: word vectors, Transformer, generalized softmax.

Shapes: `B` sentences, `S` source tokens, `T` target tokens, `V` tokens of the joint vocabulary, `d` hidden size.
"""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional

from training.networks.sequence_to_sequence import SequenceToSequenceModel
from training.networks.transformer import Cache, Decoded, Memory, Transformer, padding_mask
from training.softmax import GeneralizedSoftmax, Source

__all__ = ["TranslationModel"]


class TranslationModel(SequenceToSequenceModel):
    """Word vectors of both languages are the rows of the output layer's projection matrix (Press and Wolf 2017).

    Other word vectors of the source or the target, `[tokens, d]`, make it a model with vocabularies of its own. Their
    output layer cannot copy: a token of the source must be the same token of the target.
    """

    def __init__(
        self,
        network: Transformer,
        output_layer: GeneralizedSoftmax,
        *,
        source_vectors: nn.Parameter | None = None,
        target_vectors: nn.Parameter | None = None,
    ) -> None:
        """Raise `ValueError` where the output layer copies, and source or target have vectors of their own."""
        super().__init__()
        if output_layer.reads_source and (source_vectors is not None or target_vectors is not None):
            raise ValueError(
                "output_layer.kernels: copy needs a vocabulary that source and target share, without source_vectors "
                "and target_vectors of their own"
            )
        self.network = network
        self.output_layer = output_layer
        self.own_source_vectors, self.own_target_vectors = source_vectors, target_vectors
        self.reads_slot_positions = network.biases is not None

    @property
    def source_size(self) -> int:
        return self.source_vectors.shape[0]

    @property
    def source_tensors(self) -> Mapping[str, tuple[str, tuple[str | int, ...]]]:
        """Return the parts of `Source` where the output layer copies."""
        if not self.output_layer.reads_source:
            return {}
        size = self.output_layer.hidden_size
        return {
            "memory_states": ("float32", ("batch", 1, "source", size)),
            "memory_words": ("int64", ("batch", 1, "source")),
            "memory_places": ("int64", ("batch", 1, "source")),
        }

    @property
    def source_vectors(self) -> Tensor:
        """Return the word vectors of the source, `[tokens, d]`."""
        return self.output_layer.weight if self.own_source_vectors is None else self.own_source_vectors

    @property
    def target_vectors(self) -> Tensor:
        """Return the word vectors of the target, `[V, d]`."""
        return self.output_layer.weight if self.own_target_vectors is None else self.own_target_vectors

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Return the keys and values for cross-attention: source `[B, S]`, its lengths `[B]`."""
        return self.encode_with_source(source, lengths)[0]

    def encode_with_source(self, source: Tensor, lengths: Tensor) -> tuple[Memory, Source | None]:
        """See `SequenceToSequenceModel`."""
        mask = padding_mask(lengths, source.shape[1])
        states = self.network.encode(functional.embedding(source, self.source_vectors), mask)
        context = Source(source, states, mask[:, 0, 0]) if self.output_layer.reads_source else None
        return self.network.remember(states), context

    def decode(self, target: Tensor, memory: Memory, source_lengths: Tensor, past: Cache | None = None) -> Decoded:
        """See `SequenceToSequenceModel`."""
        mask = padding_mask(source_lengths, memory[0][0].shape[2])
        return self.network.decode(functional.embedding(target, self.target_vectors), memory, mask, past)

    def with_attention(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, *, layer: int, head: int
    ) -> tuple[Tensor, Source | None, Tensor]:
        """Return context vectors `[B, T, d]` and the source as `read` does, and the cross-attention of a head.

        The latter are logarithms of weights, in float32: `[B, T, S]`.
        """
        memory, context = self.encode_with_source(source, source_lengths)
        mask = padding_mask(source_lengths, source.shape[1])
        vectors = functional.embedding(target, self.target_vectors)
        hidden, weights = self.network.decode_with_attention(vectors, memory, mask, layer, head)
        return hidden, context, weights
