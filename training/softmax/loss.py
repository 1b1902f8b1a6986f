"""Losses of kernel softmax layers computed in chunks of positions, never holding `[N, V]`.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components, `n` positions of one chunk.

A mixture's log-probability of a target needs two numbers of each component, the target's score and the logarithm of the
normalizer, `[N, K]` each. `target_scores` computes them a chunk of positions at a time and drops the scores; its
backward pass computes them again. Where the loss is that of a single softmax, its gradient is known as soon as the
scores are, so `softmax_cross_entropy` needs one pass and a third fewer multiplications.
"""

from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from training.softmax.kernel import at_least_float32, saveable
from training.softmax.passes import ComponentPass, Components, passes
from training.softmax.sparse import best_classes

__all__ = ["CHUNK_SCORES", "Components", "softmax_cross_entropy", "target_scores"]

CHUNK_SCORES = 1 << 24
"""The most scores of one chunk, 64 MB of float32."""
_GATHERED = 1 << 20
"""Elements of the class vectors, or of their gradients, that are gathered at a time."""
_FEW = 128
"""A layer with so many times more classes than have a gradient computes the gradient of these alone."""


def target_scores(parts: Components, hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return targets' scores and logarithms of the normalizers: hidden `[N, d]`, target `[N]` -> 2 of `[N, K]`."""
    tensors = map(saveable, (target, hidden, *parts.tensors()))
    result: tuple[Tensor, Tensor] = _TargetScores.apply(parts, *tensors)  # type: ignore[no-untyped-call]
    return result


def softmax_cross_entropy(parts: Components, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return the summed cross entropy of a single component: hidden `[N, d]`, target `[N]` -> scalar.

    `label_smoothing` as in `torch.nn.functional.cross_entropy`: targets are mixed with the uniform distribution.
    """
    tensors = [saveable(tensor) for tensor in (hidden, *parts.tensors())]
    differentiate = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    loss: Tensor = _SoftmaxCrossEntropy.apply(parts, target, label_smoothing, differentiate, *tensors)  # type: ignore[no-untyped-call]
    return loss


class _TargetScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Components, target: Tensor, hidden: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        shape = (target.shape[0], len(parts.kernels))
        chosen, normalizers = (at_least_float32(hidden).new_empty(shape) for _ in range(2))
        kept = _gathered(parts)
        best = chosen.new_empty((*shape, kept))
        classes = target.new_empty((*shape, kept))
        for k, component in enumerate(passes(parts, hidden, tensors, None)):
            # In equal chunks the backward pass computes the same scores: rounding may depend on the number of rows.
            for part in component.chunks(CHUNK_SCORES, dense_gradient=not kept):
                scores = component.plain_scores(part)
                chosen[part, k] = scores.gather(1, target[part, None])[:, 0]
                if kept:
                    best[part, k], classes[part, k] = best_classes(scores, kept)
                    normalizers[part, k] = torch.logsumexp(best[part, k], dim=-1)
                else:
                    normalizers[part, k] = _normalizer(scores, parts.sparse_k)
                del scores
        ctx.parts, kind = parts, hidden.device.type
        ctx.autocast = torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        ctx.save_for_backward(target, normalizers, best, classes, hidden, *tensors)
        return chosen, normalizers

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_chosen: Tensor, grad_normalizers: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:  # the scores of the forward pass are computed again
            return _TargetScores._gradients(ctx, grad_chosen, grad_normalizers)

    @staticmethod
    def _gradients(ctx: Any, grad_chosen: Tensor, grad_normalizers: Tensor) -> tuple[Tensor | None, ...]:
        target, normalizers, best, classes, hidden, *tensors = ctx.saved_tensors
        gradients = [torch.zeros_like(tensor) for tensor in (hidden, *tensors)]
        for k, component in enumerate(passes(ctx.parts, hidden, tensors, gradients)):
            if _gathered(ctx.parts):
                probabilities = torch.exp(best[:, k] - normalizers[:, k, None])
                grad = torch.cat([probabilities * grad_normalizers[:, k, None], grad_chosen[:, k, None]], dim=1)
                _backpropagate_chosen(component, torch.cat([classes[:, k], target[:, None]], dim=1), grad)
                continue
            for part in component.chunks(CHUNK_SCORES):
                scores, backpropagate = component.scores(part)
                grad = _probabilities(scores, normalizers[part, k], ctx.parts.sparse_k)
                grad.mul_(grad_normalizers[part, k, None])
                grad.scatter_add_(1, target[part, None], grad_chosen[part, k, None])
                backpropagate(grad)
                del scores, backpropagate, grad  # else they stay allocated while the next chunk is computed
            component.finish()
        return None, None, *gradients


class _SoftmaxCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        parts: Components,
        target: Tensor,
        smoothing: float,
        differentiate: bool,
        hidden: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        gradients = [torch.zeros_like(tensor) for tensor in (hidden, *tensors)] if differentiate else None
        total = at_least_float32(hidden).new_zeros(())
        (component,) = passes(parts, hidden, tensors, gradients)
        if (kept := _gathered(parts)) and len(target) and not smoothing:
            total = _sparse_cross_entropy(component, target, kept, differentiate)
            ctx.save_for_backward(*(gradients or ()))
            return total
        for part in component.chunks(CHUNK_SCORES):
            scores, backpropagate = component.scores(part)
            index = target[part, None]
            total -= (1 - smoothing) * scores.gather(1, index).sum()
            if smoothing:
                total -= smoothing * scores.mean(-1).sum()
            if gradients is None:
                total += _normalizer(scores, parts.sparse_k).sum()
            else:
                normalizer, grad = _softmax(scores, parts.sparse_k)
                total += normalizer.sum()
                if smoothing:
                    grad -= smoothing / grad.shape[1]
                grad.scatter_add_(1, index, grad.new_full(index.shape, smoothing - 1))
                backpropagate(grad)
                del grad
            del scores, backpropagate  # else they stay allocated while the next chunk is computed
        if gradients is not None:
            component.finish()
            ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, None, *(gradient * grad.to(gradient.dtype) for gradient in ctx.saved_tensors)


def _gathered(parts: Components) -> int:
    """Return `sparse_k` where the gradient is computed for the classes that have one alone, 0 where for all."""
    kept = parts.sparse_k or 0
    return kept if _FEW * (kept + 1) <= parts.weights[0].shape[0] else 0


def _sparse_cross_entropy(component: ComponentPass, target: Tensor, sparse_k: int, differentiate: bool) -> Tensor:
    """Return the summed loss (sparse paper, eq. 5), and add the gradient to the sums of the component."""
    losses, best, classes = [], [], []
    for part in component.chunks(CHUNK_SCORES, dense_gradient=False):
        scores = component.plain_scores(part)
        values, kept = best_classes(scores, sparse_k)
        normalizer = torch.logsumexp(values, dim=-1)
        losses.append((normalizer - scores.gather(1, target[part, None])[:, 0]).sum())
        best.append(values.sub(normalizer[:, None]).exp_())
        classes.append(kept)
        del scores
    if differentiate:
        probabilities = torch.cat(best)
        grad = torch.cat([probabilities, probabilities.new_full((len(target), 1), -1.0)], dim=1)
        _backpropagate_chosen(component, torch.cat([torch.cat(classes), target[:, None]], dim=1), grad)
    return torch.stack(losses).sum()


def _backpropagate_chosen(component: ComponentPass, classes: Tensor, grad: Tensor) -> None:
    """Add the gradient `[N, C]` of the scores of some classes `[N, C]` to the sums of the component."""
    rows = max(1, _GATHERED // (classes.shape[1] * component.hidden_size))
    for start in range(0, classes.shape[0], rows):
        part = slice(start, start + rows)
        component.backpropagate_chosen(part, classes[part], grad[part])


def _normalizer(scores: Tensor, sparse_k: int | None) -> Tensor:
    """Return the log of the sum of exponentials `[n]`, of the k best with `sparse_k`; overwrites the scores."""
    if _is_sparse(sparse_k, scores):
        return torch.logsumexp(best_classes(scores, sparse_k)[0], dim=-1)
    return _exponentials(scores)[0]


def _softmax(scores: Tensor, sparse_k: int | None) -> tuple[Tensor, Tensor]:
    """Return `_normalizer` `[n]` and softmax or sparse-softmax `[n, V]`; overwrites the scores."""
    if _is_sparse(sparse_k, scores):
        values, classes = best_classes(scores, sparse_k)
        normalizer = torch.logsumexp(values, dim=-1)
        return normalizer, _at(classes, values.sub(normalizer[:, None]).exp_(), scores)
    normalizer, total = _exponentials(scores)
    return normalizer, scores.div_(total)


def _probabilities(scores: Tensor, normalizer: Tensor, sparse_k: int | None) -> Tensor:
    """Return `_softmax` for a known normalizer; overwrites the scores."""
    if _is_sparse(sparse_k, scores):
        values, classes = best_classes(scores, sparse_k)
        return _at(classes, values.sub(normalizer[:, None]).exp_(), scores)
    return scores.sub_(normalizer[:, None]).exp_()


def _is_sparse(sparse_k: int | None, scores: Tensor) -> TypeGuard[int]:
    return sparse_k is not None and sparse_k < scores.shape[1]


def _exponentials(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Replace scores by exponentials of at most 1; return the log of the sum `[n]` and the sum of those `[n, 1]`."""
    largest = scores.amax(-1, keepdim=True)
    total = scores.sub_(largest).exp_().sum(-1, keepdim=True)
    return (largest + total.log())[:, 0], total


def _at(classes: Tensor, values: Tensor, scores: Tensor) -> Tensor:
    """Return values `[n, k]` at their classes, 0 elsewhere: `[n, V]`, which overwrites the scores."""
    return scores.zero_().scatter_(1, classes, values)
