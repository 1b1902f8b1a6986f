"""A text generator: one encoder that reads a source and writes a target (UniLM, Dong et al. 2019, section 2.3).

Source tokens see the source, target tokens see the source and the target before them. The next token is predicted from
the one before it or, as in UniLM, from a mask token at its own position.

Shapes: `B` texts, `S` source tokens, `T` target tokens, `d` hidden size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.networks.sequence_to_sequence import SequenceToSequenceModel
from training.networks.text_encoder import TextEncoder
from training.networks.transformer import Cache, Decoded, EncoderLayer, Memory, padding_mask
from training.softmax import GeneralizedSoftmax

__all__ = ["GenerationModel"]


class GenerationModel(SequenceToSequenceModel):
    """Word vectors are the rows of the output layer's projection matrix, as in BERT's own prediction of words."""

    def __init__(self, encoder: TextEncoder, output_layer: GeneralizedSoftmax, mask_id: int | None = None) -> None:
        """`mask_id` is the token that decoding appends to a target, and whose vector predicts the next token."""
        super().__init__()
        size = encoder.config.hidden_size
        self.mask_id = mask_id
        self.encoder = encoder
        self.output_layer = output_layer
        self.encoder.words.weight = output_layer.weight
        self.target_segment = nn.Parameter(torch.zeros(size))
        """Added to the word vectors of a target."""
        self.transform = nn.Sequential(
            nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size, eps=encoder.config.norm_epsilon)
        )
        """The layers between encoder and output layer in BERT."""

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
        """source `[B, S]`, its lengths `[B]`, target `[B, T]` -> context vectors `[B, T, d]` of the target's tokens.

        With `mask_id` those of mask tokens in the target predict the tokens that these replace, otherwise all predict
        the next token.
        """
        hidden, _ = self._decode(target, self.encode(source, source_lengths), source_lengths)
        return hidden

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """source `[B, S]` from `[CLS]` to `[SEP]`, lengths `[B]` -> keys and values of each layer."""
        encoder = self.encoder
        hidden = encoder.dropout(encoder.norm(encoder.words(source) + encoder.positions[: source.shape[1]]))
        mask = padding_mask(lengths, source.shape[1])
        memory: Memory = []
        for layer in self.encoder.encoder_layers():
            memory.append(layer.attention.keys_values(hidden))
            if len(memory) < len(encoder.layers):  # the last layer's outputs for the source are not used
                hidden = self._through(layer, hidden, memory[-1], mask)
        return memory

    def decode(self, target: Tensor, memory: Memory, source_lengths: Tensor, past: Cache | None = None) -> Decoded:
        """See `SequenceToSequenceModel`; positions go on where the source ends."""
        return self._decode(target, memory, source_lengths, past, self.mask_id)

    def _decode(
        self,
        target: Tensor,
        memory: Memory,
        source_lengths: Tensor,
        past: Cache | None = None,
        mask_id: int | None = None,
    ) -> Decoded:
        """Return the context vectors `[B, T, d]` of a target `[B, T]`, and the `past` of a continuation.

        With `mask_id` they are the vectors of a mask token behind each token, which attends to the source, the target
        up to that token and itself. No other token attends to it.
        """
        encoder, steps = self.encoder, target.shape[1]
        start = 0 if past is None else past[0][0].shape[2]
        places = source_lengths[:, None] + torch.arange(start, start + steps, device=target.device)
        before = torch.ones(steps, start + steps, dtype=torch.bool, device=target.device).tril(start)
        if mask_id is not None:
            target = torch.cat([target, torch.full_like(target, mask_id)], dim=1)
            places = torch.cat([places, places + 1], dim=1)
            itself = torch.eye(steps, dtype=torch.bool, device=target.device)
            before = torch.cat([before.repeat(2, 1), torch.cat([torch.zeros_like(itself), itself])], dim=1)
        vectors = encoder.words(target) + functional.embedding(places, encoder.positions) + self.target_segment
        hidden = encoder.dropout(encoder.norm(vectors))
        source = padding_mask(source_lengths, memory[0][0].shape[2]).expand(-1, -1, target.shape[1], -1)
        mask = torch.cat([source, before.expand(len(target), 1, -1, -1)], dim=-1)
        cache: Cache = []
        for index, layer in enumerate(encoder.encoder_layers()):
            new = layer.attention.keys_values(hidden)
            own = new[0][:, :, :steps], new[1][:, :, :steps]
            if past is not None:
                own = torch.cat([past[index][0], own[0]], dim=2), torch.cat([past[index][1], own[1]], dim=2)
            cache.append(own)
            parts = memory[index], own, (new[0][:, :, steps:], new[1][:, :, steps:])
            keys, values = (torch.cat(part, dim=2) for part in zip(*parts, strict=True))
            hidden = self._through(layer, hidden, (keys, values), mask)
        return encoder.dropout(self.transform(hidden[:, -steps:])), cache

    @staticmethod
    def _through(layer: EncoderLayer, hidden: Tensor, seen: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Return a layer's outputs for vectors that attend to these keys and values."""
        hidden = layer.after(0, hidden, layer.attention(hidden, seen, mask))
        return layer.after(1, hidden, layer.feed_forward(hidden))
