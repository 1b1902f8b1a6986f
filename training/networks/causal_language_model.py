"""A causal Transformer with a generalized softmax, to be trained as a language model.

Shapes: `B` rows of tokens, `T` tokens, `V` tokens of the vocabulary, `d` hidden size.
"""

import torch
from torch import Tensor

from training.networks.causal_transformer import CausalTransformer
from training.networks.softmax_model import SoftmaxModel
from training.softmax import GeneralizedSoftmax

__all__ = ["TransformerLanguageModel"]


class TransformerLanguageModel(SoftmaxModel):
    """Token vectors are the rows of the output layer's projection matrix (tied; Press and Wolf 2017), or untied."""

    def __init__(self, network: CausalTransformer, output_layer: GeneralizedSoftmax, *, tied: bool = True) -> None:
        """Matrices that add to the residual stream start smaller by the root of their number (Radford et al. 2019)."""
        super().__init__()
        self.network = network
        self.output_layer = output_layer
        if tied:
            network.embedding.weight = output_layer.weight
        else:
            torch.nn.init.normal_(network.embedding.weight, std=network.settings.hidden_size**-0.5)
        factor = (2 * len(network.settings.layers)) ** -0.5
        with torch.no_grad():
            for layer in network.decoder_layers():
                layer.attention.output.weight *= factor
                layer.feed_forward.outer.weight *= factor

    def forward(self, tokens: Tensor, places: Tensor | None = None, texts: Tensor | None = None) -> Tensor:
        """tokens `[B, T]` -> context vectors `[B, T, d]`; places and texts as in `CausalTransformer.forward`."""
        hidden: Tensor = self.network(tokens, places, texts)
        return hidden
