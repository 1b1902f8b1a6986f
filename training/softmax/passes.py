"""Scores and gradients of one component, computed in chunks of positions.

A matrix product of few rows is slow, and elementwise functions are slow on what does not fit into a CPU's cache. So the
products of a chunk are computed together, and all between them and their gradients in blocks of a chunk's rows.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components, `n` positions of a chunk, `m` of
them in a block.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from . import elementwise
from .kernel import BoundKernel, Kernel, at_least_float32, origin_of, product_type
from .kernels import Linear
from .margin import Margin
from .memory import Pool, Workspace

__all__ = ["CHUNK_SCORES", "ComponentPass", "Components", "ScoredBlock", "adjusted", "common_chunks", "passes"]

CHUNK_SCORES = 1 << 26
"""The most scores of one chunk, 256 MB of float32."""
_CHUNK_WEIGHTS = 1 << 18
"""Elements of the weight whose statistics a CPU computes at a time: 1 MB of float32, which stays in a core's cache."""
_LEAST_ROWS = 512
"""Positions of a chunk that pay for reading the weight, which a matrix product copies into another order each time."""
_BLOCK_SCORES = 1 << 20
"""Scores that a CPU computes elementwise functions of at a time: 4 MB of float32, which its cache holds some of."""


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
    alpha: float = 1.0
    """That of `entmax`; 1 is softmax."""
    softcap: float | None = None
    """Bound c of scores, which are `c tanh(z / c)` instead of z."""
    chunk_scores: int | None = None
    """The most scores of one chunk, instead of `CHUNK_SCORES`."""
    temperature: float = 1.0
    """Number that scores are divided by, last."""
    margin: Margin | None = None
    """Margin of the targets' scores; none without it."""

    def tensors(self) -> list[Tensor]:
        """Return all tensors that have a gradient: weights, projections, bias, hyperparameters."""
        hyperparameters = [parameter for kernel in self.kernels for parameter in kernel.parameters()]
        optional = [tensor for tensor in (self.projections, self.bias) if tensor is not None]
        return [*self.weights, *optional, *hyperparameters]

    def components(
        self, hidden: Tensor, tensors: Sequence[Tensor]
    ) -> Iterator[tuple[BoundKernel, Tensor, Tensor, Tensor | None]]:
        """Yield for each component its kernel, weight `[V, d]`, hidden states `[N, d]` and bias; see `tensors`."""
        count = len(self.weights)
        others = iter(tensors[count:])
        projections = None if self.projections is None else next(others)
        bias = None if self.bias is None else next(others)
        for k, kernel in enumerate(self.kernels):
            component = hidden if projections is None else torch.tanh(hidden @ projections[k])
            own = [next(others) for _ in kernel.parameters()]
            yield BoundKernel(kernel, own), tensors[k if count > 1 else 0], component, bias

    def with_margin(self, kernel: BoundKernel, scores: Tensor, target: Tensor) -> Tensor:
        """Return a kernel's scores, those of the targets with the margin: `[..., V]`, `[...]` -> `[..., V]`."""
        if self.margin is None:
            return scores
        place = target[..., None]
        moved = kernel("with_margin", scores.gather(-1, place), self.margin, self.weights[0].shape[1])
        return scores.scatter(-1, place, moved)

    def adjusted(self, scores: Tensor, bias: Tensor | None) -> Tensor:
        """Return a kernel's scores with bias, cap and temperature: `[..., V]` -> `[..., V]`."""
        scores = adjusted(scores, bias, self.softcap)
        return scores if self.temperature == 1.0 else scores / self.temperature


def adjusted(scores: Tensor, bias: Tensor | None, softcap: float | None) -> Tensor:
    """Return a kernel's scores with bias and cap, where there are such: `[..., V]`, `[V]` -> `[..., V]`."""
    scores = scores if bias is None else scores + bias
    return scores if softcap is None else softcap * torch.tanh(scores / softcap)


def passes(
    parts: Components, hidden: Tensor, tensors: Sequence[Tensor], sums: Sequence[Tensor | None] | None
) -> Iterator["ComponentPass"]:
    """Yield one pass for each component; `tensors` are `parts.tensors()`.

    `sums` are those of the gradients of hidden and `tensors`, None for what needs none; None if nothing has a gradient.
    """
    count = len(parts.weights)
    values = [hidden, *tensors]
    totals: list[Tensor | None] = [None] * len(values) if sums is None else list(sums)
    projections = 1 + count
    at_bias = projections + (parts.projections is not None)
    first = at_bias + (parts.bias is not None)
    pool = Pool()
    for k, kernel in enumerate(parts.kernels):
        own = slice(first, first := first + len(list(kernel.parameters())))
        which = 1 + (k if count > 1 else 0)

        projection = None if parts.projections is None else values[projections][k]
        bias = None if parts.bias is None else values[at_bias]
        of_projection = None if parts.projections is None else totals[projections]
        component_sums = _Sums(
            hidden=totals[0],
            weight=totals[which],
            projection=None if of_projection is None else of_projection[k],
            bias=None if parts.bias is None else totals[at_bias],
            hyperparameters=totals[own],
        )
        yield ComponentPass(
            parts,
            kernel,
            hidden,
            values[which],
            projection,
            bias,
            values[own],
            component_sums,
            pool,
            differentiates=sums is not None,
        )


def common_chunks(components: Sequence["ComponentPass"]) -> list[slice]:
    """Return the positions of chunks whose products all components hold at a time; see `ComponentPass.chunks`."""
    products = sum(len(component._columns) for component in components)
    return list(components[0]._chunks(True, len(components), products))


@dataclass(frozen=True, slots=True)
class ScoredBlock:
    """Scores of some positions of one component, whose use ends with the next block: all of it may be overwritten."""

    part: slice
    """The positions."""
    scores: Tensor
    """`[m, V]`; where there is a `shift`, exponentials of scores minus the shift."""
    chosen: Tensor
    """The targets' scores `[m]`."""
    shift: Tensor | None
    """A scalar, at most which the scores are, where the kernel computes exponentials; None where it does scores."""
    backpropagate: Callable[[Tensor], None]
    """Adds the gradient of the scores `[m, V]` to the sums."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Hold the gradients of one component, to which its chunks add; None for a tensor that needs none."""

    hidden: Tensor | None
    weight: Tensor | None
    projection: Tensor | None
    bias: Tensor | None
    hyperparameters: list[Tensor | None]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some positions, their products with all classes, and the gradients of both, as far as they are known."""

    first: int
    """The first of them."""
    hidden: Tensor
    """`[n, d]`, a leaf, from which vectors and per-position terms are computed."""
    vectors: Tensor
    """`[n, d]`, which words are multiplied with."""
    positions: Sequence[Tensor]
    """Per-position terms, `[n]` each."""
    products: Sequence[Tensor]
    """Inner products `[p n, V]` for the p blocks that share columns of the weight; gradients replace them."""
    by_positions: Sequence[Tensor]
    """The gradients of per-position terms."""
    propagated: list[slice]
    """The rows whose gradients are known."""
    differentiates: bool
    """Whether gradients are asked for."""

    def __len__(self) -> int:
        return self.vectors.shape[0]

    def rows(self, block: slice) -> list[Tensor]:
        """Return the products of a block, or their gradients: one `[m, V]` for each of the kernel's blocks."""
        return [rows[block] for product in self.products for rows in product.split(len(self))]


class ComponentPass:
    """Compute scores and gradients of all positions for one component, a chunk at a time.

    Inner products and their gradients are matrix products written out here. Elementwise functions, per-class and
    per-position terms and the projection go through autograd, on small graphs of one chunk.
    """

    def __init__(
        self,
        parts: Components,
        kernel: Kernel,
        hidden: Tensor,
        weight: Tensor,
        projection: Tensor | None,
        bias: Tensor | None,
        hyperparameters: Sequence[Tensor],
        sums: _Sums,
        pool: Pool,
        *,
        differentiates: bool,
    ) -> None:
        self._softcap, self._temperature, self._margin = parts.softcap, parts.temperature, parts.margin
        self._most = parts.chunk_scores or CHUNK_SCORES
        self._kernel, self._hidden, self._sums, self._differentiates = kernel, hidden, sums, differentiates
        self._pool = pool
        # The blocks of one word's columns follow each other.
        groups = itertools.groupby(kernel.blocks(weight.shape[1]), lambda block: block[1])
        self._columns = [(words, [columns for columns, _ in group]) for words, group in groups]
        self._hyperparameters = [self._leaf(value) for value in hyperparameters]
        self._call = BoundKernel(kernel, self._hyperparameters)
        self._weight, self._projection = weight.detach(), None if projection is None else self._leaf(projection)
        self._origin = origin_of(kernel, self._weight)
        moved = self._weight if self._origin is None else self._moved(self._weight)
        self._factor = moved.to(product_type(weight))  # converted once for all chunks
        self._bias = None if bias is None else at_least_float32(bias.detach())
        differentiated = sums.weight is not None or any(total is not None for total in sums.hyperparameters)
        self._class_leaves = [self._leaf(statistic, differentiated) for statistic in self._class_statistics()]
        self._class_sums = [torch.zeros_like(statistic) for statistic in self._class_leaves if statistic.requires_grad]

    @torch.no_grad()
    def _class_statistics(self) -> list[Tensor]:
        parts = [self._call("class_statistics", self._moved(self._weight[rows])) for rows in self._class_chunks()]
        return [torch.cat(statistic) for statistic in zip(*parts, strict=True)]

    def _class_chunks(self) -> Iterator[slice]:
        """Yield the classes whose terms are computed at a time, so that only gradients are `[V, d]`."""
        classes, size = self._weight.shape
        elements = _CHUNK_WEIGHTS if self._weight.device.type == "cpu" else CHUNK_SCORES
        rows = max(1, elements // size)
        return (slice(start, start + rows) for start in range(0, classes, rows))

    def _leaf(self, tensor: Tensor, differentiates: bool = True) -> Tensor:
        return tensor.detach().requires_grad_(self._differentiates and differentiates)

    def _moved(self, vectors: Tensor) -> Tensor:
        """Return vectors `[M, d]` relative to the kernel's origin, where that makes a difference; at least float32."""
        vectors = at_least_float32(vectors)
        return vectors if self._origin is None else vectors - self._origin

    @property
    def hidden_size(self) -> int:
        return self._weight.shape[1]

    def chunks(self, dense_gradient: bool = True) -> Iterator[slice]:
        """Yield the positions of each chunk: at most `chunk_scores` products of each block, at least one position.

        On a CPU a chunk has a 16th of these, or those of as many positions, if these are more, as pay for reading the
        weight, or with `dense_gradient` for adding to its gradient as well.
        """
        return self._chunks(dense_gradient, 1, len(self._columns))

    def _chunks(self, dense_gradient: bool, components: int, blocks: int) -> Iterator[slice]:
        """Yield the positions of chunks, of which that many components with together as many products are held."""
        classes, size = self._weight.shape
        most = self._most
        least = most // 16 if self._weight.device.type == "cpu" else most
        products = min(most, components * max(least, classes * (size if dense_gradient else _LEAST_ROWS)))
        rows = max(1, products // (classes * blocks))
        return (slice(start, start + rows) for start in range(0, self._hidden.shape[0], rows))

    def scored(
        self,
        target: Tensor,
        *,
        dense_gradient: bool = True,
        chunks: Sequence[slice] | None = None,
        exponentials: bool = False,
    ) -> Iterator[ScoredBlock]:
        """Yield the scores of all positions.

        target: all targets `[N]`, whose scores have the margin. Without `dense_gradient`, and where nothing has a
        gradient, `backpropagate` must not be called. chunks: those of `common_chunks` instead of `chunks()`.
        exponentials: whether blocks may be those of exponentials. Gradients are complete when the iteration has ended.
        """
        differentiates = self._differentiates and dense_gradient
        for part in self.chunks(dense_gradient) if chunks is None else chunks:
            workspace, of_block = self._pool.workspace(), self._pool.workspace()
            chunk = self._chunk(part, workspace, differentiates)
            for block in self._blocks(len(chunk)):
                yield self._block(chunk, block, target, of_block, exponentials)
                of_block.release()
            if chunk.propagated:
                self._propagate(chunk)
            workspace.release()

    def _blocks(self, count: int) -> Iterator[slice]:
        """Yield the rows of a chunk's blocks."""
        of_cpu = max(1, _BLOCK_SCORES // self._weight.shape[0])
        rows = of_cpu if self._weight.device.type == "cpu" else count
        return (slice(start, min(start + rows, count)) for start in range(0, count, max(1, rows)))

    def _set_margin(self, scores: Tensor, target: Tensor) -> Callable[[Tensor], None] | None:
        """Give the targets' scores `[n, V]` the margin, in place; return a function that does so with gradients.

        That function changes the gradient `[n, V]` of the scores with margin to that of those without, and adds the
        gradient of hyperparameters to the sums. None where there is no margin.
        """
        if self._margin is None:
            return None
        place = target[:, None]
        before = self._leaf(scores.gather(1, place))
        with torch.set_grad_enabled(self._differentiates):
            moved = self._call("with_margin", before, self._margin, self._weight.shape[1])
        scores.scatter_(1, place, moved.detach())

        def backpropagate(grad: Tensor) -> None:
            by_target = torch.zeros_like(before)
            self._add_gradients([moved], [grad.gather(1, place)], [(before, by_target)])
            grad.scatter_(1, place, by_target)

        return backpropagate

    def _adjusted(self, scores: Tensor) -> Tensor:
        """Return `Components.adjusted` of a kernel's scores `[n, V]`, which are overwritten."""
        if self._bias is not None:
            scores.add_(self._bias)
        if self._softcap is not None:
            scores.div_(self._softcap).tanh_().mul_(self._softcap)
        return scores if self._temperature == 1.0 else scores.div_(self._temperature)

    @property
    def _keeps_scores(self) -> bool:
        """Return whether scores have neither a cap nor a temperature."""
        return self._softcap is None and self._temperature == 1.0

    @property
    def _gives_exponentials(self) -> bool:
        """Return whether the kernel has exponentials of the layer's scores, those of the bias apart."""
        return self._kernel.has_exponentials and self._keeps_scores and self._margin is None

    def _chosen(self, exponentials: Tensor, place: Tensor) -> Tensor:
        """Return the targets' scores from a kernel's exponentials: `[m, V]`, `[m, 1]` -> `[m]`."""
        chosen = exponentials.gather(1, place).log_()
        return (chosen if self._bias is None else chosen.add_(self._bias[place]))[:, 0]

    def _shifted(self, exponentials: Tensor) -> Tensor:
        """Multiply a kernel's exponentials by those of the bias, so that they stay at most 1; return the shift."""
        if self._bias is None:
            return exponentials.new_zeros(())
        largest = self._bias.amax().clamp_min(torch.finfo(self._bias.dtype).min)
        exponentials.mul_(torch.exp(self._bias - largest))
        return largest

    def _slope(self, scores: Tensor) -> Tensor | float:
        """Return the derivative of adjusted scores in a kernel's, from the adjusted ones: `[n, C]` -> `[n, C]`."""
        if self._softcap is None:
            return 1.0 / self._temperature
        share = scores * (self._temperature / self._softcap)
        return share.square_().neg_().add_(1.0).div_(self._temperature)

    def backpropagate_chosen(self, part: slice, classes: Tensor, grad: Tensor) -> None:
        """Add the gradient `[n, C]` of the scores of some classes `[n, C]` of each position to the sums.

        Only the rows of these classes are read and written, where a dense gradient takes two products with all.
        """
        sums = self._sums
        hidden = self._leaf(self._hidden[part], sums.hidden is not None)
        with torch.enable_grad():
            component = self._component(hidden)
        if self._softcap is not None:
            with torch.no_grad():
                known = self._call("pair_scores", self._moved(self._weight[classes]), at_least_float32(component))
                known = known if self._bias is None else known + self._bias[classes]
                capped = torch.tanh(known / self._softcap) * (self._softcap / self._temperature)
            grad = grad * self._slope(capped)
        elif self._temperature != 1.0:
            grad = grad / self._temperature
        if sums.bias is not None:
            sums.bias.index_add_(0, classes.flatten(), grad.flatten().to(sums.bias.dtype))
        inputs = self._position_sums(part, hidden)
        if type(self._kernel) is Linear and grad.dtype == self._weight.dtype:
            # Gradients of an inner product are weighted sums of the other factor's rows; the weight's are not copied.
            total = functional.embedding_bag(classes, self._weight, per_sample_weights=grad, mode="sum")
            self._add_gradients([component], [total], inputs)
            grad_rows = grad[:, :, None] * component.detach()[:, None].to(grad.dtype)
        else:
            rows = self._leaf(self._moved(self._weight[classes]), sums.weight is not None)
            with torch.enable_grad():
                scores = self._call("pair_scores", rows, at_least_float32(component))
            grad_rows = torch.zeros_like(rows)
            self._add_gradients([scores], [grad], [(rows, grad_rows), *inputs])
        if sums.weight is not None:
            sums.weight.index_add_(0, classes.flatten(), grad_rows.flatten(0, 1).to(sums.weight.dtype))

    def _component(self, hidden: Tensor) -> Tensor:
        component = hidden if self._projection is None else torch.tanh(hidden @ self._projection)
        return component if self._origin is None else self._moved(component)

    def _chunk(self, part: slice, workspace: Workspace, differentiates: bool) -> _Chunk:
        """Return positions with their products, which are memory of a workspace."""
        with torch.set_grad_enabled(differentiates):
            hidden = self._leaf(self._hidden[part], self._sums.hidden is not None)
            component = self._component(hidden)
            vectors = self._call("position_vectors", component)
            positions = self._call("position_statistics", at_least_float32(component))
        fixed, products = vectors.detach(), []
        for words, columns in self._columns:
            stacked = _stack([fixed[:, each] for each in columns])
            products.append(_product(stacked, self._factor[:, words], workspace))
        by_positions = [torch.zeros_like(statistic) for statistic in positions] if differentiates else []
        return _Chunk(part.start, hidden, vectors, positions, products, by_positions, [], differentiates)

    def _block(
        self, chunk: _Chunk, block: slice, target: Tensor, workspace: Workspace, exponentials: bool
    ) -> ScoredBlock:
        """Return the scores of some rows of a chunk."""
        sums, places, differentiates = self._sums, chunk.rows(block), chunk.differentiates
        part = slice(chunk.first + block.start, chunk.first + block.stop)
        kind = torch.promote_types(places[0].dtype, torch.float32)
        products = [self._leaf(_converted(product, kind, workspace), differentiates) for product in places]
        leaves = [self._leaf(statistic[block], differentiates) for statistic in chunk.positions]
        with torch.set_grad_enabled(differentiates), elementwise.overwriting(workspace):
            # Autograd may keep the result of a plain formula for the backward pass, and the caller overwrites scores.
            reusable = self._kernel.differentiates_fast()
            exponentials = exponentials and reusable and self._gives_exponentials
            method = "exponentials" if exponentials else "score"
            scores = self._call(method, products, tuple(self._class_leaves), tuple(leaves), self.hidden_size)
            scores = at_least_float32(scores)
        known = scores.detach() if reusable else scores.detach().clone()
        place = target[part, None]
        if exponentials:
            without_margin = slope = None
            chosen, shift = self._chosen(known, place), self._shifted(known)
        else:
            without_margin = self._set_margin(known, target[part])
            known = self._adjusted(known)
            slope = None if self._keeps_scores or not differentiates else self._slope(known)
            chosen, shift = known.gather(1, place)[:, 0], None

        def backpropagate(grad: Tensor) -> None:
            if slope is not None:
                grad.mul_(slope)
            if sums.bias is not None:
                sums.bias.add_(grad.sum(0))
            if without_margin is not None:
                without_margin(grad)
            self._add_through_scores(chunk, block, scores, products, leaves, grad)

        return ScoredBlock(part, known, chosen, shift, backpropagate)

    def _add_through_scores(
        self,
        chunk: _Chunk,
        block: slice,
        scores: Tensor,
        products: Sequence[Tensor],
        positions: Sequence[Tensor],
        grad: Tensor,
    ) -> None:
        """Put the gradient of a block's products in their place, and add those of the terms and hyperparameters.

        scores `[m, V]` were computed from products and from terms of positions `[m]`, with gradient `grad` `[m, V]`.
        """
        classes = self._class_leaves if self._class_sums else []
        learnt = [
            (value, total)
            for value, total in zip(self._hyperparameters, self._sums.hyperparameters, strict=True)
            if total is not None
        ]
        inputs = [*products, *classes, *positions, *(value for value, _ in learnt)]
        grads = iter(torch.autograd.grad(scores, inputs, grad, allow_unused=True, materialize_grads=True))
        for place in chunk.rows(block):
            by_product = next(grads)
            if by_product.data_ptr() != place.data_ptr():
                place.copy_(by_product)
        for total in self._class_sums:
            total += next(grads)
        for total in chunk.by_positions:
            total[block] = next(grads)
        for _, total in learnt:
            total += next(grads)
        chunk.propagated.append(block)

    def _propagate(self, chunk: _Chunk) -> None:
        """Add the gradients of a chunk, which stand in the place of its products, to the sums."""
        for block in self._blocks(len(chunk)):
            if block not in chunk.propagated:
                for place in chunk.rows(block):
                    place.zero_()
        by_vectors = self._through_products(chunk)
        part = slice(chunk.first, chunk.first + len(chunk))
        outputs, grads = [chunk.vectors, *chunk.positions], [by_vectors, *chunk.by_positions]
        self._add_gradients(outputs, grads, self._position_sums(part, chunk.hidden))

    def _through_products(self, chunk: _Chunk) -> Tensor:
        """Add the products' part of the weight's gradient; return that of the vectors, 0 where none is wanted."""
        total, vectors = self._sums.weight, chunk.vectors.detach()
        result = torch.zeros_like(at_least_float32(vectors))
        for (words, positions), grad in zip(self._columns, chunk.products, strict=True):
            if total is not None:
                stacked = _stack([vectors[:, columns] for columns in positions]).to(grad.dtype)
                if total.dtype == grad.dtype:
                    total[:, words].addmm_(grad.t(), stacked)
                else:
                    total[:, words] += _matrix_product(grad.t(), stacked)
            if chunk.vectors.requires_grad:
                back = _matrix_product(grad, self._factor[:, words])
                for columns, share in zip(positions, back.split(len(chunk)), strict=True):
                    result[:, columns] += share
        return result

    def _position_sums(self, part: slice, hidden: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return hidden states and projection, each with the sum of its gradient, as far as there is one."""
        sums = self._sums
        pairs = [] if sums.hidden is None else [(hidden, sums.hidden[part])]
        if self._projection is not None and sums.projection is not None:
            pairs.append((self._projection, sums.projection))
        return pairs

    def _add_gradients(
        self, outputs: Sequence[Tensor], grads: Sequence[Tensor], inputs: Sequence[tuple[Tensor, Tensor]]
    ) -> None:
        """Add gradients of the inputs, and of hyperparameters, to their sums; outputs may be constants."""
        learnt = zip(self._hyperparameters, self._sums.hyperparameters, strict=True)
        pairs = [*inputs, *((value, total) for value, total in learnt if total is not None)]
        pairs = [(value, total) for value, total in pairs if value.requires_grad]
        known = [
            (output, grad.to(output.dtype)) for output, grad in zip(outputs, grads, strict=True) if output.requires_grad
        ]
        if not known or not pairs:
            return
        every = torch.autograd.grad(
            [output for output, _ in known],
            [value for value, _ in pairs],
            [grad for _, grad in known],
            allow_unused=True,
            materialize_grads=True,
        )
        for (_, total), more in zip(pairs, every, strict=True):
            total.add_(more)

    def finish(self) -> None:
        """Add the gradients through the per-class terms, computing the terms again."""
        total = self._sums.weight
        if not self._class_sums:
            return
        for rows in self._class_chunks():
            weight = self._leaf(self._moved(self._weight[rows]), total is not None)
            with torch.enable_grad(), elementwise.overwriting():
                statistics = self._call("class_statistics", weight)
            inputs = [] if total is None else [(weight, total[rows])]
            self._add_gradients(statistics, [own[rows] for own in self._class_sums], inputs)


def _matrix_product(left: Tensor, right: Tensor) -> Tensor:
    """Return `left @ right` in their own type, under autocast too."""
    return torch.mm(left, right, out=left.new_empty(left.shape[0], right.shape[1]))


def _product(vectors: Tensor, weight: Tensor, workspace: Workspace) -> Tensor:
    """Return `vectors @ weight.t()` `[n, V]`, in the memory of a workspace."""
    rows = workspace.rows(vectors.shape[0], weight.shape[0], weight.dtype, weight.device)
    return torch.mm(vectors.to(weight.dtype), weight.t(), out=rows)


def _converted(matrix: Tensor, dtype: torch.dtype, workspace: Workspace) -> Tensor:
    """Return a matrix in a type, in the memory of a workspace unless it has that type."""
    return matrix if matrix.dtype == dtype else workspace.like(matrix, dtype).copy_(matrix)


def _stack(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
