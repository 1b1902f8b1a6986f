"""The output layer as it is exported: terms that do not depend on the context are computed once, before export.

Shapes: `N` positions, `V` classes, `d` hidden size, `K` mixture components, `R` inner products a position needs,
`B` texts, `T` positions of each, `S` source tokens.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.bundling.topk import top_k
from training.softmax import GeneralizedSoftmax, Kernel, Source
from training.softmax.components import Attention, Component, Context
from training.softmax.kernel import as_rows, at_least_float32, from_rows
from training.softmax.kernels import Linear, Power

__all__ = ["FoldedSoftmax", "layer_section"]

_CLASSES_AT_ONCE = 4096
"""Classes whose vectors are in memory in float64 at a time."""
_LEAST_RANKED = 1e-30
"""Probabilities of a mixture from which on classes are ranked by the sum over the components, which is a float32."""


def layer_section(layer: GeneralizedSoftmax) -> Mapping[str, object]:
    """Return an output layer as the manifest describes it."""
    kernels = [{"name": kernel.name, "hyperparameters": kernel.hyperparameters} for kernel in layer.components()]
    section = {"kernels": kernels, "sparse_k": layer.sparse_k, "untied": layer.untied, "bias": layer.bias is not None}
    # Without these fields, earlier versions read a bundle that needs none of them.
    components = [_component_section(each) for each in layer.other_components()]
    others: dict[str, tuple[object, object]] = {
        "alpha": (layer.alpha, 1.0),
        "softcap": (layer.softcap, None),
        "components": (components, []),
    }
    return {**section, **{name: value for name, (value, default) in others.items() if value != default}}


def _component_section(component: Component) -> Mapping[str, object]:
    """Return a component that is not a kernel as the manifest describes it."""
    own = {**component.hyperparameters, "window": component.window, "weight": component.weight}
    fields = {name: own.pop(name) for name in ("window", "weight")}
    return {"name": component.name, **fields, "hyperparameters": own}


class FoldedSoftmax(nn.Module):
    """Compute the same as a `GeneralizedSoftmax` from less, for inference.

    * Class statistics (squared norms, ball maps, variances) are stored, computed in float64.
    * A kernel whose softmax is that of a linear layer is one: `pow` with p = 2 is `2 h . W_v - ||W_v||^2`, since
      `||h||^2` is the same for all classes and cancels.
    * Low-rank corrections stay of low rank: `h . (W_v + left_v right) = h . W_v + (h right^T) . left_v`.
    * Components that share a projection matrix share one matrix product, `[R N, d] x [d, V]`. For few positions its
      cost is reading the matrix from memory, which then happens once instead of R times. An inner product of parts of
      the vectors is taken as one of whole vectors with zeros elsewhere.
    """

    def __init__(self, layer: GeneralizedSoftmax) -> None:
        super().__init__()
        if layer.reads_history and layer.window is None:
            raise ValueError(
                "a layer with a component whose window is null cannot be exported: a served text would be remembered "
                "without a bound; give the component a window"
            )
        self._layer = layer
        self._kernels = layer.components()
        weights = [weight.detach() for weight in layer.class_weights()]
        self._low_rank = isinstance(layer.untied, int)
        multiplied = [layer.weight, *weights[1:]] if layer.untied == "full" else [layer.weight]
        self._weights = nn.ParameterList(
            weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight, requires_grad=False)
            for weight in multiplied
        )
        self._statistics = nn.ModuleList()
        for k, kernel in enumerate(self._kernels):
            weight = weights[k if len(weights) > 1 else 0]
            kept = [nn.Parameter(statistic, requires_grad=False) for statistic in _statistics(kernel, weight)]
            self._statistics.append(nn.ParameterList(kept))

    def mixture_weights(self, hidden: Tensor, history: Context | None = None) -> Tensor:
        """Return `GeneralizedSoftmax.mixture_weights` of rows: `[N, d]`, or `[B, T, d]` with a history -> `[N, K]`."""
        return as_rows(self._layer.mixture_weights(hidden, history))

    def log_prob(self, hidden: Tensor, history: Context | None = None) -> Tensor:
        """Return `GeneralizedSoftmax.log_prob` of rows: `[N, d]`, or `[B, T, d]` with a history -> `[N, V]`."""
        scores = [from_rows(score, hidden) for score in self.scores(as_rows(hidden))]
        return as_rows(self._layer.mix(hidden, scores, history))

    def top_k(self, hidden: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k largest of `log_prob` and their classes, descending: `[N, d]`, k `[]` -> two of `[N, k]`.

        Those of a mixture are chosen among all classes by sums of probabilities instead of a logarithm of each, and the
        logarithm is then computed of the k sums alone, in log space. Below `_LEAST_RANKED`, where sums may be 0,
        classes are chosen by their most probable component.
        """
        layer = self._layer
        if layer.num_components == 1 and layer.sparse_k is not None and torch.compiler.is_exporting():
            return _sparse_top_k(self.scores(hidden)[0], layer.sparse_k, k)
        if layer.num_components == 1 or layer.has_zeros or layer.others:
            return top_k(self.log_prob(hidden), k)
        log_prior = layer.log_mixture_weights(hidden).t()[:, :, None]
        parts = [functional.log_softmax(score, dim=-1) + log_prior[i] for i, score in enumerate(self.scores(hidden))]
        total, largest = parts[0].exp(), parts[0]
        for part in parts[1:]:
            total, largest = total + part.exp(), torch.maximum(largest, part)
        _, chosen = top_k(torch.where(total >= _LEAST_RANKED, total, largest), k)
        values = layer.log_sum(torch.stack([part.gather(1, chosen) for part in parts]))
        # Sums that are equal in float32 may have logarithms in another order.
        values, order = top_k(values, k)
        return values, chosen.gather(1, order)

    def top_k_with_source(self, hidden: Tensor, k: Tensor, source: Source, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k largest of `log_prob` and their classes: `[B, T, d]`, k `[]` -> two of `[N, k]`.

        `places` `[B, S]` are the `first_places` of the source. Classes that are not in the source have the order that
        the kernels give them, and only the S others are mixed: no further distribution over all classes is computed.
        """
        kernels, others = self._layer.split(hidden, self.scores(as_rows(hidden)), source)
        words = torch.where(source.visible, source.words, source.words[:, :1])  # the first one is no padding
        words, first = (
            each[:, None].expand(-1, hidden.shape[1], -1).flatten(0, 1)
            for each in (words, source.visible & (places == torch.arange(places.shape[1], device=places.device)))
        )
        rows = places[:, None].expand(-1, hidden.shape[1], -1).flatten(0, 1)
        joint = [kernels.gather(1, words)]
        for log_weight, each in others:
            assert isinstance(each, Attention)
            joint.append(log_weight[:, None] + replace(each, words=rows).log_prob(rows.shape[1]))
        mixed = self._layer.log_sum(torch.stack(joint)).masked_fill(~first, -torch.inf)
        values, classes = top_k(kernels.scatter(1, words, -torch.inf), k)
        best, chosen = top_k(torch.cat([mixed, values], dim=1), k)
        return best, torch.cat([words, classes], dim=1).gather(1, chosen)

    @property
    def has_normalizer(self) -> bool:
        """Whether a log-probability is a score less a number of the position: in one component without entmax."""
        layer = self._layer
        return layer.num_components == 1 and not layer.others and layer.alpha == 1

    def top_k_with_normalizer(self, hidden: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return `top_k`, and scores less log-probabilities: `[N, d]`, k `[]` -> two of `[N, k]` and `[N]`.

        For a layer that `has_normalizer`. Scores of `pow` with p = 2 lack the term that is equal for all classes.
        """
        scores, sparse_k = self.scores(hidden)[0], self._layer.sparse_k
        if sparse_k is not None and torch.compiler.is_exporting():
            values, classes = _sparse_top_k(scores, sparse_k, k)
        else:
            values, classes = top_k(self._layer.mix(hidden, [scores]), k)
        return values, classes, scores.amax(dim=-1) - values[:, 0]

    def target_log_prob(self, hidden: Tensor, target: Tensor, history: Context | None = None) -> Tensor:
        """Return `GeneralizedSoftmax.target_log_prob` of rows: `[N, d]` or `[B, T, d]`, `[N]` -> `[N]`."""
        if self._layer.has_zeros:  # which classes have a probability at all is known to `mix` only
            return self.log_prob(hidden, history).gather(1, target[:, None])[:, 0]
        # ONNX Runtime's logsumexp adds all classes up one by one in float32, that of its LogSoftmax does not.
        parts = [
            functional.log_softmax(score, dim=-1).gather(1, target[:, None])[:, 0]
            for score in self.scores(as_rows(hidden))
        ]
        if self._layer.num_components == 1:
            return parts[0]
        return self._layer.mix_targets(hidden, target, torch.stack(parts, dim=-1), history)

    def scores(self, hidden: Tensor) -> list[Tensor]:
        """Return scores of each component, up to a term per position where it cancels: `[N, d]` -> K of `[N, V]`."""
        vectors = self._layer.component_hidden(hidden)
        (kernel, *others), bias = self._kernels, self._layer.bias
        affine = self._is_affine(kernel) or (type(kernel) is Linear and bias is not None)
        if not others and affine and self._layer.softcap is None:
            return [self._affine(kernel, vectors[0])]
        rows = [self._rows(kernel, vector) for kernel, vector in zip(self._kernels, vectors, strict=True)]
        if len(self._weights) == 1:
            products = iter(_shared_products([row for own in rows for row in own], self._weights[0]))
            grouped = [[self._corrected(next(products), k, row) for row in own] for k, own in enumerate(rows)]
        else:
            grouped = [_shared_products(own, weight) for own, weight in zip(rows, self._weights, strict=True)]
        return [self._layer.adjusted(self._score(k, vectors[k], products)) for k, products in enumerate(grouped)]

    def _affine(self, kernel: Kernel, vector: Tensor) -> Tensor:
        """Return scores of `pow` with p = 2, up to a term per position, or of `lin`, as one linear layer."""
        if type(kernel) is Linear:
            return at_least_float32(functional.linear(vector, self._weights[0], self._layer.bias))
        (statistics,) = self._statistics
        assert isinstance(statistics, nn.ParameterList)
        constants = self._layer.adjusted(-statistics[0])
        return at_least_float32(functional.linear(2.0 * vector, self._weights[0], constants))

    def _rows(self, kernel: Kernel, vector: Tensor) -> list[Tensor]:
        """Return the vectors that are multiplied with the projection matrix for one component: some `[N, d]`."""
        size = vector.shape[1]
        if self._is_affine(kernel):
            return [2.0 * vector]
        vector = kernel.position_vectors(vector)
        return [
            vector
            if columns == slice(0, size)
            else functional.pad(vector[:, columns], (classes.start, size - classes.stop))
            for columns, classes in kernel.blocks(size)
        ]

    def _corrected(self, product: Tensor, k: int, row: Tensor) -> Tensor:
        """Return products of `row` `[N, d]` with a component's own matrix from those with the shared one: `[N, V]`."""
        if not self._low_rank:
            return product
        return product + at_least_float32(row @ self._layer.right[k].t() @ self._layer.left[k].t())

    def _is_affine(self, kernel: Kernel) -> bool:
        """Return whether scores are linear up to a term per position, which cancels unless a cap bounds them."""
        plain = type(kernel) is Power and kernel.hyperparameters == {"p": 2.0} and not kernel.learnable
        return plain and self._layer.softcap is None

    def _score(self, k: int, vector: Tensor, products: list[Tensor]) -> Tensor:
        kernel, own = self._kernels[k], self._statistics[k]
        assert isinstance(own, nn.ParameterList)
        statistics: tuple[Tensor, ...] = tuple(own)
        if self._is_affine(kernel):
            return products[0] - statistics[0]
        positions = kernel.position_statistics(at_least_float32(vector))
        return at_least_float32(kernel.score(products, statistics, positions, vector.shape[1]))


def _statistics(kernel: Kernel, weight: Tensor) -> list[Tensor]:
    """Return the per-class terms of a kernel, some of `[V]`, computed in float64 of some classes at a time."""
    parts = [kernel.class_statistics(rows.double()) for rows in weight.split(_CLASSES_AT_ONCE)]
    return [torch.cat(statistic).to(weight.dtype) for statistic in zip(*parts, strict=True)]


def _shared_products(rows: list[Tensor], weight: Tensor) -> list[Tensor]:
    """Return inner products of each `[N, d]` with all classes, from one matrix product: R of `[N, V]`."""
    if len(rows) == 1:
        return [at_least_float32(rows[0] @ weight.t())]
    stacked = at_least_float32(torch.cat(rows) @ weight.t()).unflatten(0, (len(rows), -1))
    return [stacked[index] for index in range(len(rows))]


def _sparse_top_k(scores: Tensor, sparse_k: int, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k largest log-probabilities of a sparse-softmax and their classes: `[N, V]`, `[]` -> two of `[N, k]`.

    Only the best scores are normalized, and nothing else of `[N, V]` is computed. ONNX's TopK, unlike torch's, ranks
    equal scores by the lower class, as `best_classes` does.
    """
    nonzero = min(sparse_k, scores.shape[1])
    best, _ = top_k(scores, torch.tensor(nonzero))
    normalizer = torch.logsumexp(best, dim=-1, keepdim=True)
    values, classes = top_k(scores, k)
    places = torch.ones_like(classes[0]).cumsum(0)
    return torch.where(places <= nonzero, values - normalizer, -torch.inf), classes
