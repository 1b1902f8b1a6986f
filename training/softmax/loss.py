"""Cross entropy of a mixture of kernel softmaxes, without ever holding `[N, V]`.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components, `n` positions of one chunk.

With `r_k = pi_k p_k(t) / p(t)`, the posterior weight of component k for the target t, the gradient of the loss
in the scores of component k is `r_k (softmax(S_k) - onehot(t))`. It is known as soon as the chunk's scores are, so
loss and gradients come out of one pass: scores are computed once and thrown away, chunk by chunk, in cache.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from training.softmax.kernels import Kernel

__all__ = ["mixture_cross_entropy"]

_CHUNK_SCORES = 1 << 21
"""Scores of one component in one chunk: 8 MB of float32, which stays in a shared cache (measured on 2 cores)."""


def mixture_cross_entropy(
    kernels: Sequence[Kernel], weight: Tensor, components: Tensor, log_prior: Tensor, target: Tensor
) -> Tensor:
    """Summed `-log p(target)` of the mixture (kernel paper, eq. 1).

    weight `[V, d]`, components (`h_k`) `[K, N, d]`, log_prior (`log pi`) `[N, K]`, target `[N]` -> scalar.
    """
    total: Tensor = _MixtureCrossEntropy.apply(  # type: ignore[no-untyped-call]
        list(kernels), weight, components, log_prior, target
    )
    return total


class _MixtureCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernels: list[Kernel], weight: Tensor, components: Tensor, log_prior: Tensor, target: Tensor
    ) -> Tensor:
        gradients = torch.zeros_like(weight), torch.zeros_like(components), torch.zeros_like(log_prior)
        total = log_prior.new_zeros(())
        rows = max(1, _CHUNK_SCORES // weight.shape[0])
        for start in range(0, target.shape[0], rows):
            part = slice(start, start + rows)
            chunk = _chunk(kernels, weight, components[:, part], log_prior[part], target[part])
            total += chunk[0]
            gradients[0].add_(chunk[1])
            gradients[1][:, part] = chunk[2]
            gradients[2][part] = chunk[3]
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, components, log_prior = ctx.saved_tensors
        return None, weight * grad, components * grad, log_prior * grad, None


def _chunk(
    kernels: list[Kernel], weight: Tensor, components: Tensor, log_prior: Tensor, target: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss of n positions and its gradients in weight `[V, d]`, components `[K, n, d]` and log_prior `[n, K]`."""
    weight, hidden = weight.detach().requires_grad_(), components.detach().requires_grad_()
    with torch.enable_grad():
        scores = [kernel(weight, hidden[k]) for k, kernel in enumerate(kernels)]
    values = [score.detach() for score in scores]
    normalizers = torch.stack([torch.logsumexp(value, dim=-1) for value in values], dim=-1)
    target_scores = torch.stack([value.gather(1, target[:, None])[:, 0] for value in values], dim=-1)
    joint = log_prior + target_scores - normalizers
    log_prob = torch.logsumexp(joint, dim=-1)
    posterior = torch.exp(joint - log_prob[:, None])
    rows = torch.arange(target.shape[0], device=target.device)
    score_gradients = []
    for k, value in enumerate(values):
        gradient = torch.sub(value, normalizers[:, k, None]).exp_().mul_(posterior[:, k, None])
        gradient[rows, target] -= posterior[:, k]
        score_gradients.append(gradient)
    weight_gradient, hidden_gradient = torch.autograd.grad(scores, (weight, hidden), score_gradients)
    return -log_prob.sum(), weight_gradient, hidden_gradient, -posterior
