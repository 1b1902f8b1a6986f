"""A translation model: word vectors, Transformer, generalized softmax.

Shapes: `B` sentences, `S` source tokens, `T` target tokens, `V` tokens of the joint vocabulary, `d` hidden size.
"""

from torch import Tensor
from torch.nn import functional

from training.networks.sequence_to_sequence import SequenceToSequenceModel
from training.networks.transformer import Cache, Decoded, Memory, Transformer, padding_mask
from training.softmax import GeneralizedSoftmax

__all__ = ["TranslationModel"]


class TranslationModel(SequenceToSequenceModel):
    """Word vectors of both languages are the rows of the output layer's projection matrix (Press and Wolf 2017)."""

    def __init__(self, network: Transformer, output_layer: GeneralizedSoftmax) -> None:
        super().__init__()
        self.network = network
        self.output_layer = output_layer

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Return the keys and values for cross-attention: source `[B, S]`, its lengths `[B]`."""
        mask = padding_mask(lengths, source.shape[1])
        return self.network.remember(self.network.encode(self.embed(source), mask))

    def decode(self, target: Tensor, memory: Memory, source_lengths: Tensor, past: Cache | None = None) -> Decoded:
        """See `SequenceToSequenceModel`."""
        mask = padding_mask(source_lengths, memory[0][0].shape[2])
        return self.network.decode(self.embed(target), memory, mask, past)

    def embed(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.output_layer.weight)
