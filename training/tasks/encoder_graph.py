"""The encoder of texts in exported graphs, and the quantization of such graphs.

Shapes: `B` texts, `T` tokens, `d` hidden size.
"""

from collections.abc import Mapping, Sequence

import onnx
import torch
from torch import Tensor, nn

from models.backend import Array
from models.text.padding import padded
from models.text.tokenization import EncoderTokenizer
from training.bundling.attention import projections
from training.bundling.calibration import RangeRecorder
from training.bundling.disentangled import relative_layers
from training.bundling.quantize import quantize_int8_static
from training.networks.operators import attend, attend_some
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.networks.transformer import padding_mask

__all__ = ["EncoderGraph", "encoder_name", "encoder_section", "quantized_on_texts"]

_CALIBRATION_TEXTS = 512
_CALIBRATION_BATCH = 32


class EncoderGraph(nn.Module):
    """Computes the hidden states of texts; the base of graphs that go on from there."""

    def __init__(self, encoder: TextEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.projections = projections(layer.attention for layer in self.encoder.encoder_layers())
        self.relative = relative_layers(encoder)

    def hidden_states(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens `[B, T]`, lengths `[B]` -> hidden states, `[B, T, d]`."""
        hidden = self.encoder.embed(tokens).flatten(0, 1)
        for index, layer in enumerate(self.encoder.encoder_layers()):
            query, keys, values = (part.view(*tokens.shape, -1) for part in self.projections[index](hidden))
            if self.relative:
                bias = torch.where(padding_mask(lengths, tokens.shape[1]), 0.0, -torch.inf)
                bias = bias + self.relative[index](query, keys)
                attended = attend_some(query, keys, values, bias, layer.attention.heads)
            else:
                attended = attend(query, keys, values, lengths, layer.attention.heads)
            hidden = layer.after(0, hidden, layer.attention.output(attended.flatten(0, 1)))
            hidden = layer.after(1, hidden, layer.feed_forward(hidden))
        return hidden.view(*tokens.shape, -1)


def encoder_section(config: EncoderConfig) -> dict[str, object]:
    """Return an encoder as the manifest describes it, without pooling."""
    sizes = config.model_dump(include={"hidden_size", "inner_size", "heads", "layers", "positions"})
    return {"kind": "bert" if config.position_buckets is None else "deberta", **sizes}


def encoder_name(kind: str, *, layers: int, hidden_size: int, heads: int, inner_size: int) -> str:
    """Return the line of a model card about an encoder."""
    name = {"bert": "BERT", "deberta": "DeBERTa"}[kind]
    return f"{name} encoder, {layers} layers, {hidden_size} hidden units, {heads} heads, feed-forward {inner_size}"


def quantized_on_texts(
    models: Mapping[str, onnx.ModelProto],
    graph: str,
    texts: Sequence[str],
    tokenizer: EncoderTokenizer,
    max_tokens: int,
    others: Mapping[str, Array],
) -> Mapping[str, onnx.ModelProto]:
    """Return graphs with int8 products, by the ranges of activations of one of them on some training texts.

    `others` are its inputs other than tokens and lengths.
    """
    recorder = RangeRecorder(models)
    some = texts[:: -(-len(texts) // _CALIBRATION_TEXTS)]
    encoded = sorted(tokenizer.encode_batch(some, max_tokens), key=len)
    for first in range(0, len(encoded), _CALIBRATION_BATCH):
        inputs = padded(encoded[first : first + _CALIBRATION_BATCH])
        recorder.run(graph, {**inputs, **others}, ["log_probabilities"])
    return {name: quantize_int8_static(model, recorder.ranges(name)) for name, model in models.items()}
