"""The loss as a function of word vectors that belong to another module.

Shapes: `V` classes (words), `d` hidden size; `...` are any leading dimensions of positions.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .kernel import Kernel
from .mixture import GeneralizedSoftmax
from .sparse import Reduction

__all__ = ["kernel_cross_entropy"]


def kernel_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    kernel: str | Mapping[str, Any] | Kernel = "lin",
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    temperature: float = 1.0,
    softcap: float | None = None,
    sparse_k: int | None = None,
    alpha: float = 1.0,
    angular_margin: float = 0.0,
    cosine_margin: float = 0.0,
    chunk_scores: int | None = None,
) -> Tensor:
    """Return `GeneralizedSoftmax.loss` of a single kernel: hidden `[..., d]`, weight `[V, d]`, target `[...]`.

    With `lin` it is `torch.nn.functional.linear_cross_entropy`, whose `linear_weight`, `linear_bias` and `weight` are
    `weight`, `bias` and `class_weight` here. The kernel is a name, a mapping with `name` and hyperparameters, or a
    module, which may have parameters of its own. Result and errors are those of `GeneralizedSoftmax.loss`, its options
    those of the constructor.
    """
    with torch.device("meta"):
        layer = GeneralizedSoftmax(
            *_sizes(weight),
            "lin" if isinstance(kernel, Kernel) else [kernel],
            bias=bias is not None,
            softcap=softcap,
            sparse_k=sparse_k,
            alpha=alpha,
            chunk_scores=chunk_scores,
        )
    if isinstance(kernel, Kernel):
        kernel.blocks(layer.hidden_size)  # a kernel of Gaussians raises where the size does not suit it
        layer.kernels[0] = kernel
    if layer.num_components != 1:
        raise ValueError(f"kernel must be a single one, not {kernel!r}: a mixture has parameters of its own")
    given = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    options = {
        "weight": class_weight,
        "ignore_index": ignore_index,
        "reduction": reduction,
        "label_smoothing": label_smoothing,
        "z_loss": z_loss,
        "temperature": temperature,
        "angular_margin": angular_margin,
        "cosine_margin": cosine_margin,
    }
    loss: Tensor = torch.func.functional_call(layer, given, (hidden, target), options)
    return loss


def _sizes(weight: Tensor) -> tuple[int, int]:
    if weight.dim() != 2:
        raise ValueError(f"weight must be [V, d], not {list(weight.shape)}")
    return weight.shape[0], weight.shape[1]
