"""Losses of kernel softmax layers that never hold `[N, V]`.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components, `n` positions of one chunk.

A mixture's log-probability of a target needs two numbers of each component, the target's score and the logarithm of the
normalizer, `[N, K]` each. `target_scores` computes them a chunk of positions at a time, in cache, and throws the
scores away; its backward pass computes them again. Where the loss is that of a single softmax, its gradient is known
as soon as the scores are, so `softmax_cross_entropy` makes one pass of it and multiplies a third less.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from training.softmax import elementwise
from training.softmax.kernels import Kernel, at_least_float32
from training.softmax.sparse import best_classes

__all__ = ["CHUNK_SCORES", "Components", "softmax_cross_entropy", "target_scores"]

CHUNK_SCORES = 1 << 21
"""Scores of one chunk: 8 MB of float32, which stays in a shared cache (measured on 2 cores)."""

_CHUNK_WEIGHTS = 1 << 18
"""Elements of the weight whose statistics are computed at a time: 1 MB of float32, which stays in a core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The components of a mixture: how each of them scores classes."""

    kernels: Sequence[Kernel]
    weights: Sequence[Tensor]
    """`[V, d]`: one where it is tied, else one for each component."""
    projections: Tensor | None = None
    """`[K, d, d]`, with `h_k = tanh(h @ projections[k])`; None where the component sees `h` itself."""
    sparse_k: int | None = None
    """Classes that a normalizer keeps; all without it (sparse paper, eq. 4-5)."""

    def tensors(self) -> list[Tensor]:
        """Everything that has a gradient: weights, projections, hyperparameters."""
        hyperparameters = [parameter for kernel in self.kernels for parameter in kernel.parameters()]
        return [*self.weights, *([] if self.projections is None else [self.projections]), *hyperparameters]


def target_scores(parts: Components, hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of the targets and logarithms of the normalizers: hidden `[N, d]`, target `[N]` -> 2 of `[N, K]`."""
    result: tuple[Tensor, Tensor] = _TargetScores.apply(parts, target, hidden, *parts.tensors())  # type: ignore[no-untyped-call]
    return result


def softmax_cross_entropy(parts: Components, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed cross entropy of a single component: hidden `[N, d]`, target `[N]` -> scalar.

    `label_smoothing` as in `torch.nn.functional.cross_entropy`: targets are mixed with the uniform distribution.
    """
    loss: Tensor = _SoftmaxCrossEntropy.apply(parts, target, label_smoothing, hidden, *parts.tensors())  # type: ignore[no-untyped-call]
    return loss


class _TargetScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Components, target: Tensor, hidden: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        shape = (target.shape[0], len(parts.kernels))
        chosen, normalizers = (at_least_float32(hidden).new_empty(shape) for _ in range(2))
        for k, component in enumerate(_passes(parts, hidden, tensors, None)):
            for part in component.chunks():
                scores, _ = component.scores(part)
                chosen[part, k] = scores.gather(1, target[part, None])[:, 0]
                normalizers[part, k] = _normalizer(scores, parts.sparse_k)
                del scores
        ctx.parts = parts
        ctx.save_for_backward(target, normalizers, hidden, *tensors)
        return chosen, normalizers

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_chosen: Tensor, grad_normalizers: Tensor) -> tuple[Tensor | None, ...]:
        target, normalizers, hidden, *tensors = ctx.saved_tensors
        gradients = [torch.zeros_like(tensor) for tensor in (hidden, *tensors)]
        for k, component in enumerate(_passes(ctx.parts, hidden, tensors, gradients)):
            for part in component.chunks():
                scores, backpropagate = component.scores(part)
                grad = _probabilities(scores, normalizers[part, k], ctx.parts.sparse_k)
                grad.mul_(grad_normalizers[part, k, None])
                grad.scatter_add_(1, target[part, None], grad_chosen[part, k, None])
                backpropagate(grad)
                del scores, backpropagate, grad  # else they are there while the next chunk is computed
            component.finish()
        return None, None, *gradients


class _SoftmaxCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, parts: Components, target: Tensor, smoothing: float, hidden: Tensor, *tensors: Tensor
    ) -> Tensor:
        differentiate = any(ctx.needs_input_grad)
        gradients = [torch.zeros_like(tensor) for tensor in (hidden, *tensors)] if differentiate else None
        total = at_least_float32(hidden).new_zeros(())
        (component,) = _passes(parts, hidden, tensors, gradients)
        for part in component.chunks():
            scores, backpropagate = component.scores(part)
            index = target[part, None]
            total -= (1 - smoothing) * scores.gather(1, index).sum()
            if smoothing:
                total -= smoothing * scores.mean(-1).sum()
            normalizer, grad = _softmax(scores, parts.sparse_k)
            total += normalizer.sum()
            if gradients is not None:
                if smoothing:
                    grad -= smoothing / grad.shape[1]
                grad.scatter_add_(1, index, grad.new_full(index.shape, smoothing - 1))
                backpropagate(grad)
            del scores, grad, backpropagate  # else they are there while the next chunk is computed
        if gradients is not None:
            component.finish()
            ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *(gradient * grad.to(gradient.dtype) for gradient in ctx.saved_tensors)


def _normalizer(scores: Tensor, sparse_k: int | None) -> Tensor:
    """log of the sum of exponentials `[n]`, of the k best with `sparse_k`; overwrites the scores."""
    if _is_sparse(sparse_k, scores):
        return torch.logsumexp(best_classes(scores, sparse_k)[0], dim=-1)
    return _exponentials(scores)[0]


def _softmax(scores: Tensor, sparse_k: int | None) -> tuple[Tensor, Tensor]:
    """`_normalizer` `[n]` and softmax or sparse-softmax `[n, V]`; overwrites the scores."""
    if _is_sparse(sparse_k, scores):
        values, classes = best_classes(scores, sparse_k)
        normalizer = torch.logsumexp(values, dim=-1)
        return normalizer, _at(classes, values.sub(normalizer[:, None]).exp_(), scores)
    normalizer, total = _exponentials(scores)
    return normalizer, scores.div_(total)


def _probabilities(scores: Tensor, normalizer: Tensor, sparse_k: int | None) -> Tensor:
    """`_softmax` with the normalizer known; overwrites the scores."""
    if _is_sparse(sparse_k, scores):
        values, classes = best_classes(scores, sparse_k)
        return _at(classes, values.sub(normalizer[:, None]).exp_(), scores)
    return scores.sub_(normalizer[:, None]).exp_()


def _is_sparse(sparse_k: int | None, scores: Tensor) -> TypeGuard[int]:
    return sparse_k is not None and sparse_k < scores.shape[1]


def _exponentials(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Makes of scores exponentials, the largest of which is 1; log of the sum `[n]` and sum of those `[n, 1]`."""
    largest = scores.amax(-1, keepdim=True)
    total = scores.sub_(largest).exp_().sum(-1, keepdim=True)
    return (largest + total.log())[:, 0], total


def _at(classes: Tensor, values: Tensor, scores: Tensor) -> Tensor:
    """Values `[n, k]` at their classes, 0 elsewhere: `[n, V]` in place of the scores."""
    return scores.zero_().scatter_(1, classes, values)


def _passes(
    parts: Components, hidden: Tensor, tensors: Sequence[Tensor], gradients: Sequence[Tensor] | None
) -> Iterator["_Pass"]:
    """One pass for each component; `tensors` are the values of `parts.tensors()`, `gradients` has hidden's first."""
    count = len(parts.weights)
    values, sums = list(tensors), None if gradients is None else list(gradients)
    first = count + (parts.projections is not None)
    for k, kernel in enumerate(parts.kernels):
        own = len(list(kernel.parameters()))
        which = k if count > 1 else 0
        yield _Pass(
            kernel,
            hidden,
            values[which],
            None if parts.projections is None else values[count][k],
            values[first : first + own],
            None
            if sums is None
            else _Sums(
                sums[0],
                sums[1 + which],
                None if parts.projections is None else sums[1 + count][k],
                sums[1 + first : 1 + first + own],
            ),
        )
        first += own


@dataclass(frozen=True, slots=True)
class _Sums:
    """Gradients of one component that its chunks add to."""

    hidden: Tensor
    weight: Tensor
    projection: Tensor | None
    hyperparameters: list[Tensor]


class _Pass:
    """Goes through all positions for one component, a chunk at a time.

    Inner products and their gradients are matrix products written out here. What is elementwise or one-sided (the
    kernel's function, its statistics, the projection) goes through autograd, on small graphs of one chunk.
    """

    def __init__(
        self,
        kernel: Kernel,
        hidden: Tensor,
        weight: Tensor,
        projection: Tensor | None,
        hyperparameters: Sequence[Tensor],
        sums: _Sums | None,
    ) -> None:
        self._kernel, self._hidden, self._sums = kernel, hidden, sums
        self._blocks = kernel.blocks(weight.shape[1])
        self._hyperparameters = list(kernel.parameters())
        self._weight, self._projection = weight.detach(), None if projection is None else self._leaf(projection)
        self._class_leaves = [self._leaf(statistic) for statistic in self._class_statistics()]
        self._class_sums = [torch.zeros_like(statistic) for statistic in self._class_leaves]

    @torch.no_grad()
    def _class_statistics(self) -> list[Tensor]:
        parts = [self._kernel.class_statistics(at_least_float32(self._weight[rows])) for rows in self._class_chunks()]
        return [torch.cat(statistic) for statistic in zip(*parts, strict=True)]

    def _class_chunks(self) -> Iterator[slice]:
        """Classes whose statistics are computed at a time, so that nothing but gradients is `[V, d]`."""
        classes, size = self._weight.shape
        rows = max(1, _CHUNK_WEIGHTS // size)
        return (slice(start, start + rows) for start in range(0, classes, rows))

    def _leaf(self, tensor: Tensor) -> Tensor:
        return tensor.detach().requires_grad_(self._sums is not None)

    def chunks(self) -> Iterator[slice]:
        # Several products are in the cache together.
        rows = max(1, CHUNK_SCORES // (self._weight.shape[0] * max(1, len(self._blocks) // 2)))
        return (slice(start, start + rows) for start in range(0, self._hidden.shape[0], rows))

    def scores(self, part: slice) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Scores `[n, V]` of a chunk without history, and what takes their gradient back to the sums."""
        hidden, weight = self._leaf(self._hidden[part]), self._weight
        with torch.set_grad_enabled(self._sums is not None):
            component = hidden if self._projection is None else torch.tanh(hidden @ self._projection)
            vectors = self._kernel.position_vectors(component)
            positions = self._kernel.position_statistics(at_least_float32(component))
        fixed = vectors.detach()
        products = [self._leaf(at_least_float32(fixed[:, a] @ weight[:, b].t())) for a, b in self._blocks]
        leaves = [self._leaf(statistic) for statistic in positions]
        with torch.set_grad_enabled(self._sums is not None), elementwise.overwriting():
            scores = self._kernel.score(products, tuple(self._class_leaves), tuple(leaves), weight.shape[1])

        def backpropagate(grad: Tensor) -> None:
            inputs = [*products, *self._class_leaves, *leaves, *self._hyperparameters]
            grads = iter(torch.autograd.grad(scores, inputs, grad, allow_unused=True, materialize_grads=True))
            grad_vectors = self._through_products(fixed, [next(grads) for _ in products])
            for total in self._class_sums:
                total += next(grads)
            grad_leaves = [next(grads) for _ in leaves]
            assert self._sums is not None
            for total, more in zip(self._sums.hyperparameters, grads, strict=True):
                total += more
            self._through_positions(part, hidden, [vectors, *positions], [grad_vectors, *grad_leaves])

        # Formulas of learnt hyperparameters may keep their result for the backward pass; no other function does.
        return scores.detach().clone() if self._hyperparameters else scores.detach(), backpropagate

    def _through_products(self, vectors: Tensor, grads: Sequence[Tensor]) -> Tensor:
        """Adds the products' share to the weight's gradient, returns that of the vectors."""
        assert self._sums is not None
        weight, result = self._weight, torch.zeros_like(vectors)
        for (a, b), grad in zip(self._blocks, grads, strict=True):
            narrow = grad.to(torch.promote_types(vectors.dtype, weight.dtype))
            self._sums.weight[:, b].addmm_(narrow.t(), vectors[:, a].to(narrow.dtype))
            result[:, a].addmm_(narrow.to(result.dtype), weight[:, b].to(result.dtype))
        return result

    def _through_positions(
        self, part: slice, hidden: Tensor, outputs: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> None:
        assert self._sums is not None
        inputs = [hidden] if self._projection is None else [hidden, self._projection]
        own, *projection = torch.autograd.grad(outputs, inputs, grads)
        self._sums.hidden[part].add_(own)
        if self._sums.projection is not None:
            self._sums.projection.add_(projection[0])

    def finish(self) -> None:
        """Takes the class statistics' gradients back to the weight, computing the statistics again."""
        assert self._sums is not None
        if not self._class_sums:
            return
        for rows in self._class_chunks():
            weight = self._leaf(self._weight[rows])
            with torch.enable_grad():
                statistics = self._kernel.class_statistics(at_least_float32(weight))
            sums = [total[rows] for total in self._class_sums]
            self._sums.weight[rows].add_(torch.autograd.grad(statistics, weight, sums)[0])
