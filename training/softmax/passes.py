"""Scores and gradients of one component, computed in chunks of positions.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components, `n` positions of one chunk.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from training.device import native_bfloat16
from training.softmax import elementwise
from training.softmax.kernel import Kernel, at_least_float32
from training.softmax.kernels import Linear

__all__ = ["ComponentPass", "Components", "passes"]

_CHUNK_WEIGHTS = 1 << 18
"""Elements of the weight whose statistics are computed at a time: 1 MB of float32, which stays in a core's cache."""
_LEAST_ROWS = 128
"""Positions of a chunk that pay for reading the weight."""
_ALIGNED = 16
"""Elements that rows of scores are aligned to, 64 bytes of float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Hold the components of a mixture: kernels, projection matrices and projections."""

    kernels: Sequence[Kernel]
    weights: Sequence[Tensor]
    """`[V, d]`: one where it is tied, else one for each component."""
    projections: Tensor | None = None
    """`[K, d, d]`, with `h_k = tanh(h @ projections[k])`; None where the component sees `h` itself."""
    bias: Tensor | None = None
    """`[V]`, which every component adds to its scores."""
    sparse_k: int | None = None
    """Classes that a normalizer keeps; all without it (sparse paper, eq. 4-5)."""

    def tensors(self) -> list[Tensor]:
        """Return all tensors that have a gradient: weights, projections, bias, hyperparameters."""
        hyperparameters = [parameter for kernel in self.kernels for parameter in kernel.parameters()]
        optional = [tensor for tensor in (self.projections, self.bias) if tensor is not None]
        return [*self.weights, *optional, *hyperparameters]


def passes(
    parts: Components, hidden: Tensor, tensors: Sequence[Tensor], gradients: Sequence[Tensor] | None
) -> Iterator["ComponentPass"]:
    """Yield one pass for each component; `tensors` are `parts.tensors()`, `gradients` are hidden's and theirs."""
    count = len(parts.weights)
    values, sums = list(tensors), None if gradients is None else list(gradients)
    at_bias = count + (parts.projections is not None)
    first = at_bias + (parts.bias is not None)
    for k, kernel in enumerate(parts.kernels):
        own = len(list(kernel.parameters()))
        which = k if count > 1 else 0
        yield ComponentPass(
            kernel,
            hidden,
            values[which],
            None if parts.projections is None else values[count][k],
            None if parts.bias is None else values[at_bias],
            None
            if sums is None
            else _Sums(
                sums[0],
                sums[1 + which],
                None if parts.projections is None else sums[1 + count][k],
                None if parts.bias is None else sums[1 + at_bias],
                sums[1 + first : 1 + first + own],
            ),
        )
        first += own


@dataclass(frozen=True, slots=True)
class _Sums:
    """Hold the gradients of one component, to which its chunks add."""

    hidden: Tensor
    weight: Tensor
    projection: Tensor | None
    bias: Tensor | None
    hyperparameters: list[Tensor]


class ComponentPass:
    """Compute scores and gradients of all positions for one component, a chunk at a time.

    Inner products and their gradients are matrix products written out here. Elementwise functions, per-class and
    per-position terms and the projection go through autograd, on small graphs of one chunk.
    """

    def __init__(
        self,
        kernel: Kernel,
        hidden: Tensor,
        weight: Tensor,
        projection: Tensor | None,
        bias: Tensor | None,
        sums: _Sums | None,
    ) -> None:
        self._kernel, self._hidden, self._sums = kernel, hidden, sums
        # The blocks of one word's columns follow each other.
        groups = itertools.groupby(kernel.blocks(weight.shape[1]), lambda block: block[1])
        self._columns = [(words, [columns for columns, _ in group]) for words, group in groups]
        self._hyperparameters = list(kernel.parameters())
        self._factor = _narrowed(weight.detach())
        self._weight, self._projection = weight.detach(), None if projection is None else self._leaf(projection)
        self._bias = None if bias is None else at_least_float32(bias.detach())
        self._class_leaves = [self._leaf(statistic) for statistic in self._class_statistics()]
        self._class_sums = [torch.zeros_like(statistic) for statistic in self._class_leaves]

    @torch.no_grad()
    def _class_statistics(self) -> list[Tensor]:
        parts = [self._kernel.class_statistics(at_least_float32(self._weight[rows])) for rows in self._class_chunks()]
        return [torch.cat(statistic) for statistic in zip(*parts, strict=True)]

    def _class_chunks(self) -> Iterator[slice]:
        """Yield the classes whose terms are computed at a time, so that only gradients are `[V, d]`."""
        classes, size = self._weight.shape
        rows = max(1, _CHUNK_WEIGHTS // size)
        return (slice(start, start + rows) for start in range(0, classes, rows))

    def _leaf(self, tensor: Tensor) -> Tensor:
        return tensor.detach().requires_grad_(self._sums is not None)

    @property
    def hidden_size(self) -> int:
        return self._weight.shape[1]

    def chunks(self, most: int, dense_gradient: bool = True) -> Iterator[slice]:
        """Yield the positions of each chunk: at most `most` products of each block of columns, at least one position.

        On a CPU a chunk has `most / 4` products, whose memory the allocator uses again, or those of as many positions,
        if these are more, as pay for reading the weight, or with `dense_gradient` for adding to its gradient as well.
        """
        classes, size = self._weight.shape
        least = most // 4 if self._weight.device.type == "cpu" else most
        products = min(most, max(least, classes * (size if dense_gradient else _LEAST_ROWS)))
        rows = max(1, products // (classes * len(self._columns)))  # several products are in the cache together
        return (slice(start, start + rows) for start in range(0, self._hidden.shape[0], rows))

    def plain_scores(self, part: slice) -> Tensor:
        """Return scores `[n, V]` of a chunk, and keep nothing for a backward pass."""
        with torch.no_grad(), elementwise.overwriting():
            component = self._component(self._hidden[part])
            products = list(self._products(self._kernel.position_vectors(component)))
            positions = tuple(self._kernel.position_statistics(at_least_float32(component)))
            scores = self._kernel.score(products, tuple(self._class_leaves), positions, self._weight.shape[1])
        return self._biased(at_least_float32(scores))

    def _biased(self, scores: Tensor) -> Tensor:
        """Add the bias to scores `[n, V]`, which it may overwrite."""
        return scores if self._bias is None else scores.add_(self._bias)

    def backpropagate_chosen(self, part: slice, classes: Tensor, grad: Tensor) -> None:
        """Add the gradient `[n, C]` of the scores of some classes `[n, C]` of each position to the sums.

        Only the rows of these classes are read and written, where a dense gradient takes two products with all.
        """
        assert self._sums is not None
        if self._sums.bias is not None:
            self._sums.bias.index_add_(0, classes.flatten(), grad.flatten().to(self._sums.bias.dtype))
        hidden = self._leaf(self._hidden[part])
        with torch.enable_grad():
            component = self._component(hidden)
        inputs, sums = self._position_sums(part, hidden)
        if type(self._kernel) is Linear and grad.dtype == self._weight.dtype:
            # Gradients of an inner product are weighted sums of the other factor's rows; the weight's are not copied.
            total = functional.embedding_bag(classes, self._weight, per_sample_weights=grad, mode="sum")
            self._add_gradients([component], [total.to(component.dtype)], inputs, sums)
            grad_rows = grad[:, :, None] * component.detach()[:, None].to(grad.dtype)
        else:
            rows = self._leaf(self._weight[classes])
            with torch.enable_grad():
                scores = self._kernel.pair_scores(rows, component)
            grad_rows = torch.zeros_like(rows)
            self._add_gradients([scores], [grad], [rows, *inputs], [grad_rows, *sums])
        self._sums.weight.index_add_(0, classes.flatten(), grad_rows.flatten(0, 1))

    def _component(self, hidden: Tensor) -> Tensor:
        return hidden if self._projection is None else torch.tanh(hidden @ self._projection)

    def scores(self, part: slice) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return detached scores `[n, V]` of a chunk, and a function that adds their gradient to the sums."""
        hidden, weight = self._leaf(self._hidden[part]), self._weight
        with torch.set_grad_enabled(self._sums is not None):
            component = self._component(hidden)
            vectors = self._kernel.position_vectors(component)
            positions = self._kernel.position_statistics(at_least_float32(component))
        fixed = vectors.detach()
        products = [self._leaf(product) for product in self._products(fixed)]
        leaves = [self._leaf(statistic) for statistic in positions]
        with torch.set_grad_enabled(self._sums is not None), elementwise.overwriting():
            scores = self._kernel.score(products, tuple(self._class_leaves), tuple(leaves), weight.shape[1])
            scores = at_least_float32(scores)

        def backpropagate(grad: Tensor) -> None:
            assert self._sums is not None
            if self._sums.bias is not None:
                self._sums.bias.add_(grad.sum(0))
            inputs = [*products, *self._class_leaves, *leaves, *self._hyperparameters]
            grads = iter(torch.autograd.grad(scores, inputs, grad, allow_unused=True, materialize_grads=True))
            grad_vectors = self._through_products(fixed, [next(grads) for _ in products])
            for total in self._class_sums:
                total += next(grads)
            grad_leaves = [next(grads) for _ in leaves]
            for total, more in zip(self._sums.hyperparameters, grads, strict=True):
                total += more
            self._through_positions(part, hidden, [vectors, *positions], [grad_vectors, *grad_leaves])

        # Autograd may keep the result of a plain formula for the backward pass, and the caller overwrites scores.
        reusable = self._kernel.fused and not self._hyperparameters
        return self._biased(scores.detach() if reusable else scores.detach().clone()), backpropagate

    def _products(self, vectors: Tensor) -> Iterator[Tensor]:
        """Yield inner products `[n, V]` of all blocks, with one matrix product for equal columns of the weight."""
        for words, positions in self._columns:
            stacked = _stack([vectors[:, columns] for columns in positions])
            yield from at_least_float32(_product(stacked, self._factor[:, words])).split(vectors.shape[0])

    def _through_products(self, vectors: Tensor, grads: Sequence[Tensor]) -> Tensor:
        """Add the products' part of the weight's gradient; return the gradient of the vectors."""
        assert self._sums is not None
        result, remaining = torch.zeros_like(vectors), iter(grads)
        for words, positions in self._columns:
            grad = _stack([next(remaining) for _ in positions])
            stacked = _stack([vectors[:, columns] for columns in positions])
            if self._factor.dtype != self._weight.dtype:  # under autocast
                grad = grad.to(self._factor.dtype)
                self._sums.weight[:, words] += grad.t() @ stacked.to(grad.dtype)
                factor = self._factor[:, words]
                # A CPU that emulates bfloat16 takes forty times as long for `grad @ factor`; others are faster with it.
                native = native_bfloat16(grad.device)
                back = grad @ factor if native else (factor.t() @ grad.t().contiguous()).t()
                back = back.to(result.dtype)
            else:
                grad = grad.to(torch.promote_types(vectors.dtype, self._weight.dtype))
                self._sums.weight[:, words].addmm_(grad.t(), stacked.to(grad.dtype))
                back = torch.zeros_like(stacked).addmm_(grad.to(result.dtype), self._weight[:, words].to(result.dtype))
            for columns, share in zip(positions, back.split(vectors.shape[0]), strict=True):
                result[:, columns] += share
        return result

    def _through_positions(
        self, part: slice, hidden: Tensor, outputs: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> None:
        """Add the gradients of vectors and per-position terms to those of hidden, projection and hyperparameters."""
        self._add_gradients(outputs, grads, *self._position_sums(part, hidden))

    def _position_sums(self, part: slice, hidden: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return hidden states and projection, and the sums of their gradients."""
        assert self._sums is not None
        if self._projection is None or self._sums.projection is None:
            return [hidden], [self._sums.hidden[part]]
        return [hidden, self._projection], [self._sums.hidden[part], self._sums.projection]

    def _add_gradients(
        self, outputs: Sequence[Tensor], grads: Sequence[Tensor], inputs: Sequence[Tensor], sums: Sequence[Tensor]
    ) -> None:
        """Add gradients of the inputs, and of hyperparameters, to their sums; outputs may be constants."""
        assert self._sums is not None
        known = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if output.requires_grad]
        if not known:
            return
        every = torch.autograd.grad(
            [output for output, _ in known],
            [*inputs, *self._hyperparameters],
            [grad for _, grad in known],
            allow_unused=True,
            materialize_grads=True,
        )
        for total, more in zip([*sums, *self._sums.hyperparameters], every, strict=True):
            total.add_(more)

    def finish(self) -> None:
        """Add the gradients through the per-class terms to the weight's, computing the terms again."""
        assert self._sums is not None
        if not self._class_sums:
            return
        for rows in self._class_chunks():
            weight = self._leaf(self._weight[rows])
            with torch.enable_grad():
                statistics = self._kernel.class_statistics(at_least_float32(weight))
            grads = [total[rows] for total in self._class_sums]
            self._add_gradients(statistics, grads, [weight], [self._sums.weight[rows]])


def _narrowed(weight: Tensor) -> Tensor:
    """Return a matrix in the type that autocast multiplies in, converted once for all chunks."""
    kind = weight.device.type
    narrow = torch.is_autocast_enabled(kind) and weight.dtype == torch.float32
    return weight.to(torch.get_autocast_dtype(kind)) if narrow else weight


def _product(vectors: Tensor, weight: Tensor) -> Tensor:
    """Return `vectors @ weight.t()` `[n, V]`, in rows aligned to 64 bytes, which CPUs compute faster."""
    classes = weight.shape[0]
    rows = weight.new_empty(vectors.shape[0], -(-classes // _ALIGNED) * _ALIGNED)
    return torch.mm(vectors.to(weight.dtype), weight.t(), out=rows[:, :classes])


def _stack(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
