"""A translation model: word vectors, Transformer, generalized softmax.

Shapes: `B` sentences, `S` source tokens, `T` target tokens, `V` tokens of the joint vocabulary, `d` hidden size.
"""

from torch import Tensor, nn
from torch.nn import functional

from training.networks.sequence_to_sequence import SequenceToSequenceModel
from training.networks.transformer import Cache, Decoded, Memory, Transformer, padding_mask
from training.softmax import GeneralizedSoftmax

__all__ = ["TranslationModel"]


class TranslationModel(SequenceToSequenceModel):
    """Word vectors of both languages are the rows of the output layer's projection matrix (Press and Wolf 2017).

    Other word vectors of the source or the target, `[tokens, d]`, make it a model with vocabularies of its own.
    """

    def __init__(
        self,
        network: Transformer,
        output_layer: GeneralizedSoftmax,
        *,
        source_vectors: nn.Parameter | None = None,
        target_vectors: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.output_layer = output_layer
        self.own_source_vectors, self.own_target_vectors = source_vectors, target_vectors
        self.reads_slot_positions = network.biases is not None

    @property
    def source_size(self) -> int:
        return self.source_vectors.shape[0]

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
        mask = padding_mask(lengths, source.shape[1])
        return self.network.remember(self.network.encode(functional.embedding(source, self.source_vectors), mask))

    def decode(self, target: Tensor, memory: Memory, source_lengths: Tensor, past: Cache | None = None) -> Decoded:
        """See `SequenceToSequenceModel`."""
        mask = padding_mask(source_lengths, memory[0][0].shape[2])
        return self.network.decode(functional.embedding(target, self.target_vectors), memory, mask, past)

    def with_attention(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, *, layer: int, head: int
    ) -> tuple[Tensor, Tensor]:
        """Return context vectors as calling the model does, `[B, T, d]`, and the cross-attention of a head.

        The latter are logarithms of weights, in float32: `[B, T, S]`.
        """
        memory, mask = self.encode(source, source_lengths), padding_mask(source_lengths, source.shape[1])
        vectors = functional.embedding(target, self.target_vectors)
        return self.network.decode_with_attention(vectors, memory, mask, layer, head)
