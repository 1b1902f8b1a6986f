"""Top-k with a k that stays an input of the exported graph."""

import torch
from torch import Tensor

__all__ = ["top_k"]


@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _scripted_top_k(values: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    # A scripted function keeps k an input where tracing would freeze it.
    return torch.topk(values, int(k))


def top_k(values: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k largest of each row and their indices: `[N, V]`, `[]` -> two of `[N, k]`."""
    if not torch.compiler.is_exporting():
        best: tuple[Tensor, Tensor] = _scripted_top_k(values, k)
        return best
    count = k.item()
    torch._check(count >= 1)
    torch._check(count <= values.shape[-1])
    return torch.topk(values, count)  # type: ignore[arg-type]  # a symbolic integer while exporting
