"""Low-rank adaptation of linear layers (LoRA; Hu et al. 2021): weights are kept, and products of two matrices learn.

Shapes: `r` rank, `n` inputs, `m` outputs of a linear layer; `...` are any leading dimensions.
"""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.networks.causal_transformer import CausalTransformer

__all__ = ["LoraLinear", "adapt", "is_adapted", "merged"]

_DOWN, _UP = "lora_down", "lora_up"


class LoraLinear(nn.Linear):
    """Compute `x W^T + b + (alpha / r) x A^T B^T`, of which A and B are trained (Hu et al. 2021, eq. 3).

    `weight` and `bias` have the names that they have in a linear layer. B is 0 at first, so that nothing is added.
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        """Take the parameters of a linear layer, which get no gradient from now on.

        A, `lora_down` `[r, n]`, is drawn as the weight of a new linear layer; B is `lora_up` `[m, r]`.
        """
        has_bias = linear.bias is not None
        super().__init__(linear.in_features, linear.out_features, bias=has_bias, device="meta")
        linear.requires_grad_(False)
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = alpha / rank
        self.lora_down = nn.Parameter(self.weight.new_empty(rank, linear.in_features))
        self.lora_up = nn.Parameter(self.weight.new_zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_down, a=math.sqrt(5))

    def forward(self, vectors: Tensor) -> Tensor:
        """`[..., n]` -> `[..., m]`."""
        added = functional.linear(functional.linear(vectors, self.lora_down), self.lora_up)
        return super().forward(vectors) + self.scale * added

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return a linear layer of the weight `W + (alpha / r) B A`, summed in float64."""
        change = self.scale * (self.lora_up.double() @ self.lora_down.double())
        weight = (self.weight.double() + change).to(self.weight.dtype)
        linear = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        linear.weight = nn.Parameter(weight, requires_grad=False)
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias.detach().clone(), requires_grad=False)
        return linear


def adapt(network: CausalTransformer, rank: int, alpha: float) -> None:
    """Freeze a network, and adapt the projections of its attention and the matrices of its feed-forward networks."""
    network.requires_grad_(False)
    for layer in network.decoder_layers():
        for part in (layer.attention, layer.feed_forward):
            for name, module in list(part.named_children()):
                if isinstance(module, nn.Linear):
                    setattr(part, name, LoraLinear(module, rank, alpha))


def is_adapted(name: str) -> bool:
    """Return whether a parameter of a model's state, by its name, is one that `adapt` added."""
    return name.endswith((f".{_DOWN}", f".{_UP}"))


def merged(network: CausalTransformer) -> CausalTransformer:
    """Return a network that computes the same by linear layers alone: itself, or a copy where it is adapted."""
    if not any(isinstance(module, LoraLinear) for module in network.modules()):
        return network
    plain = copy.deepcopy(network).eval()
    for layer in plain.decoder_layers():
        for part in (layer.attention, layer.feed_forward):
            for name, module in list(part.named_children()):
                if isinstance(module, LoraLinear):
                    setattr(part, name, module.merged())
    return plain
