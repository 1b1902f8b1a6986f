"""The generalized softmax: a mixture of kernel softmaxes that share one projection matrix.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components; `...` are any leading dimensions of
positions, such as batch and time.
Everything is computed in log space: `log p = logsumexp_k(log pi_k + log_softmax_v S_k)`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training.softmax.kernel import Kernel, as_rows, at_least_float32, from_rows, is_positive_integer, saveable
from training.softmax.kernels import build_kernel
from training.softmax.loss import CHUNK_SCORES, Components, softmax_cross_entropy, target_scores
from training.softmax.sparse import Reduction, best_classes, check_target_shape, check_targets

__all__ = ["NAMED_MIXTURES", "GeneralizedSoftmax", "KernelSpec", "parse_kernels"]

KernelSpec = str | Mapping[str, Any]
"""`"lin"`, `"3*lin"`, `"2*package.module:ClassName"`, or a mapping with `name` and hyperparameters."""

NAMED_MIXTURES: Mapping[str, str] = {
    "mos": "9*lin",
    "mixbig": "lin, log, pow, pol, rbf, ssg, mog, hpb, wav",
    "mix1": "lin, log, rbf, hpb, wav",
    "mix2": "3*lin, log",
    "mix3": "lin, log, pow, pol",
    "mix4": "lin, log, rbf, hpb",
    "mix5": "2*lin, 2*rbf",
}
"""The mixtures of the kernel paper (Table 3)."""

_REPEATED = re.compile(r"^(?:(\d+)\s*\*\s*)?(\w+|[\w.]+:[\w.]+)$")


def _parse_name(spec: str) -> list[dict[str, Any]]:
    if spec.strip() in NAMED_MIXTURES:
        return parse_kernels(NAMED_MIXTURES[spec.strip()])
    match = _REPEATED.match(spec.strip())
    if match is None:
        raise ValueError(f"kernels: {spec!r} is neither a kernel's name, nor `count*name`, nor a named mixture")
    count = int(match[1] or 1)
    if not 1 <= count <= 64:
        raise ValueError(f"kernels: {spec!r} asks for {count} components; 1 to 64 are possible")
    return [{"name": match[2]} for _ in range(count)]


def parse_kernels(specs: str | Iterable[KernelSpec]) -> list[dict[str, Any]]:
    """Return one mapping (`name` and hyperparameters) per component.

    `"mix2"`, `"3*lin,log"`, `["3*lin", {"name": "pow", "p": 1.5}]` and the like; raises `ValueError` for anything else.
    """
    parts: list[KernelSpec] = [*specs.split(",")] if isinstance(specs, str) else list(specs)
    parsed: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            parsed += [entry for piece in part.split(",") for entry in _parse_name(piece)]
        elif "name" in part:
            parsed.append(dict(part))
        else:
            raise ValueError(f"kernels: {dict(part)!r} has no name")
    if not parsed:
        raise ValueError("kernels: at least one kernel is needed")
    return parsed


class GeneralizedSoftmax(nn.Module):
    """Compute `p(v|h) = sum_k pi_k(h) softmax_v S_k(W_k,v , h_k)` (kernel paper, eq. 1-3).

    `pi(h) = softmax(prior^T h)` and `h_k = tanh(h @ projections[k])`. With one component there is neither prior
    nor projection: the kernel sees `h` itself, so a single-kernel model has as many parameters as `lin`.

    Parameters: `weight` `[V, d]`, for K > 1 also `prior` `[d, K]` and `projections` `[K, d, d]`. The projection
    matrix `W_k` is `weight` for all components, unless they are untied: `untied="full"` gives the components after the
    first matrices of their own, `other_weights` `[K - 1, V, d]`; an integer r gives low-rank corrections,
    `W_k = weight + left[k] @ right[k]` with `left` `[K, V, r]` and `right` `[K, r, d]`, which start at 0.

    With `bias` every component adds the parameter `bias` `[V]`, 0 at first, to its scores. In a layer of one component
    a class whose bias is minus infinity has probability 0.

    With `sparse_k` each component is a sparse-softmax over its k best classes (sparse paper, eq. 4-5).
    """

    def __init__(
        self,
        num_classes: int,
        hidden_size: int,
        kernels: str | Sequence[KernelSpec] = ("lin",),
        *,
        untied: Literal["full"] | int | None = None,
        bias: bool = False,
        sparse_k: int | None = None,
        variance_penalty: float = 0.0,
        label_smoothing: float = 0.0,
    ) -> None:
        """`variance_penalty` is rho of eq. 14: `loss` adds rho times the variance of pi over the components.

        `label_smoothing` as in `torch.nn.functional.cross_entropy`: targets are mixed with the uniform distribution
        over all classes; with `sparse_k` on the scores of all classes, normalized over the k best, as the target's is
        (sparse paper, eq. 5), so that it is finite. Raises `ValueError` naming the argument that is out of range.
        """
        super().__init__()
        if num_classes < 1 or hidden_size < 1:
            raise ValueError(f"num_classes and hidden_size must be at least 1, not {num_classes} and {hidden_size}")
        if not variance_penalty >= 0:
            raise ValueError(f"variance_penalty must not be negative: {variance_penalty!r}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1): {label_smoothing!r}")
        if sparse_k is not None and not is_positive_integer(sparse_k):
            raise ValueError(f"sparse_k must be a positive integer: {sparse_k!r}")
        if untied not in (None, "full") and not is_positive_integer(untied):
            raise ValueError(f"untied must be None, 'full' or a positive rank: {untied!r}")
        self.variance_penalty = variance_penalty
        self.label_smoothing = label_smoothing
        self.sparse_k = sparse_k
        specs = parse_kernels(kernels)
        self.kernels = nn.ModuleList(build_kernel(**{"hidden_size": hidden_size, **spec}) for spec in specs)
        for kernel in self.components():
            kernel.blocks(hidden_size)  # a kernel of Gaussians raises where the size does not suit it
        self.untied: Literal["full"] | int | None = untied if len(specs) > 1 else None
        self._make_parameters(len(specs), num_classes, hidden_size)
        self.bias = nn.Parameter(torch.zeros(num_classes)) if bias else None

    def _make_parameters(self, count: int, num_classes: int, hidden_size: int) -> None:
        """Draw vectors of expected norm 1, as kernels change them, and projections that keep norms; a uniform prior."""

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(nn.init.normal_(torch.empty(*shape), std=hidden_size**-0.5))

        self.weight = drawn(num_classes, hidden_size)
        if count > 1:
            self.prior = nn.Parameter(torch.zeros(hidden_size, count))
            self.projections = drawn(count, hidden_size, hidden_size)
        if self.untied == "full":
            self.other_weights = drawn(count - 1, num_classes, hidden_size)
        elif self.untied is not None:
            self.left = nn.Parameter(torch.zeros(count, num_classes, self.untied))
            self.right = drawn(count, self.untied, hidden_size)
        with torch.no_grad():
            weights = [self.weight, *self.other_weights] if self.untied == "full" else [self.weight] * count
            for kernel, weight in zip(self.components(), weights, strict=True):
                kernel.initialize(weight)

    def extra_repr(self) -> str:
        return f"sparse_k={self.sparse_k}, untied={self.untied!r}"

    @property
    def num_components(self) -> int:
        return len(self.kernels)

    def components(self) -> list[Kernel]:
        return [kernel for kernel in self.kernels if isinstance(kernel, Kernel)]

    def class_weights(self) -> list[Tensor]:
        """Return the projection matrices `[V, d]`: one where the components are tied, else K."""
        weight = saveable(self.weight)
        if self.untied is None:
            return [weight]
        if self.untied == "full":
            return [weight, *saveable(self.other_weights)]
        left, right = saveable(self.left), saveable(self.right)
        return [weight + left[k] @ right[k] for k in range(self.num_components)]

    def component_hidden(self, hidden: Tensor) -> list[Tensor]:
        """Return `h_k` for each component: `[..., d]` -> K of `[..., d]` (eq. 3)."""
        if self.num_components == 1:
            return [hidden]
        hidden, projections = saveable(hidden), saveable(self.projections)
        return [torch.tanh(hidden @ projections[k]) for k in range(self.num_components)]

    def log_mixture_weights(self, hidden: Tensor) -> Tensor:
        """Return `log pi(h)`, at least float32: `[..., d]` -> `[..., K]` (eq. 2)."""
        if self.num_components == 1:
            return from_rows(at_least_float32(hidden.new_zeros(as_rows(hidden).shape[0], 1)), hidden)
        return torch.log_softmax(at_least_float32(saveable(hidden) @ saveable(self.prior)), dim=-1)

    def mixture_weights(self, hidden: Tensor) -> Tensor:
        """Return `pi(h)`: `[..., d]` -> `[..., K]`."""
        return self.log_mixture_weights(hidden).exp()

    def mixture_variance(self, hidden: Tensor) -> Tensor:
        """Return the variance of `pi(h)` over the components (kernel paper, eq. 14): `[..., d]` -> `[...]`."""
        # The weights sum to 1, so their mean over the components is 1 / K.
        return (self.mixture_weights(hidden) - 1 / self.num_components).square().mean(-1)

    def scores(self, hidden: Tensor) -> list[Tensor]:
        """Return `S_k`, at least float32: `[..., d]` -> K of `[..., V]`."""
        weights = self.class_weights()
        weights = weights * self.num_components if len(weights) == 1 else weights
        parts = zip(self.components(), weights, self.component_hidden(hidden), strict=True)
        return [self.biased(kernel(weight, component)) for kernel, weight, component in parts]

    def biased(self, scores: Tensor) -> Tensor:
        """Return scores with the bias, if there is one: `[..., V]` -> `[..., V]`."""
        return scores if self.bias is None else scores + self.bias

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Return the log-probability of every class, minus infinity where it is 0: `[..., d]` -> `[..., V]`."""
        rows = as_rows(hidden)
        return from_rows(self._mixed(rows, self.scores(rows)), hidden)

    def mix(self, hidden: Tensor, scores: Sequence[Tensor]) -> Tensor:
        """Return log-probabilities from the components' scores: `[..., d]`, K of `[..., V]` -> `[..., V]`."""
        return from_rows(self._mixed(as_rows(hidden), [as_rows(score) for score in scores]), hidden)

    def _mixed(self, hidden: Tensor, scores: Sequence[Tensor]) -> Tensor:
        """Return log-probabilities of rows: `[N, d]`, K of `[N, V]` -> `[N, V]`."""
        if len(scores) == 1:
            return self._log_softmax(scores[0])
        log_prior = self.log_mixture_weights(hidden).t()[:, :, None]
        if self.sparse_k is not None:
            return torch.logsumexp(log_prior + torch.stack([self._log_softmax(score) for score in scores]), dim=0)
        joint = torch.log_softmax(torch.cat(list(scores)).unflatten(0, (len(scores), -1)), dim=-1) + log_prior
        # As logsumexp, which ONNX Runtime computes several times slower along this axis.
        largest = joint.amax(0)
        return _sum((joint - largest).exp()).log() + largest

    def log_normalizer(self, scores: Tensor) -> Tensor:
        """Return the logarithm of a component's normalizer: `[..., V]` -> `[...]`."""
        if self.sparse_k is None or self.sparse_k >= scores.shape[-1]:
            return torch.logsumexp(scores, dim=-1)
        return torch.logsumexp(best_classes(scores, self.sparse_k)[0], dim=-1)

    def _log_softmax(self, scores: Tensor) -> Tensor:
        if self.sparse_k is None or self.sparse_k >= scores.shape[1]:
            return torch.log_softmax(scores, dim=-1)
        values, classes = best_classes(scores, self.sparse_k)
        return torch.full_like(scores, -torch.inf).scatter(1, classes, torch.log_softmax(values, dim=-1))

    def target_log_prob(self, hidden: Tensor, target: Tensor, *, sparse: bool = True) -> Tensor:
        """Return one entry of `log_prob` per position, never holding `[..., V]`: `[..., d]`, `[...]` -> `[...]`.

        With `sparse_k` it is minus infinity for a class outside the k best. `sparse=False` gives those of the plain
        softmax of the same scores, which are finite and can be compared with layers without `sparse_k`.
        Raises `ValueError` for targets of another shape.
        """
        check_target_shape(hidden, target)
        return from_rows(self._target_log_prob(as_rows(hidden), saveable(target).flatten(), sparse), hidden)

    def _target_log_prob(self, hidden: Tensor, target: Tensor, sparse: bool) -> Tensor:
        if self.sparse_k is None or not sparse:
            return self._mixed_targets(replace(self._parts(), sparse_k=None), hidden, target)
        rows = self._rows_held()
        parts = zip(hidden.split(rows), target.split(rows), strict=True)
        return torch.cat([self.log_prob(some).gather(1, wanted[:, None])[:, 0] for some, wanted in parts])

    def _mixed_targets(self, parts: Components, hidden: Tensor, target: Tensor) -> Tensor:
        """Return the loss's log-probability `[N]`, finite for targets outside the k best (sparse paper, eq. 5)."""
        chosen, normalizers = target_scores(parts, hidden, target)
        return torch.logsumexp(self.log_mixture_weights(hidden) + chosen - normalizers, dim=-1)

    def loss(self, hidden: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: Reduction = "sum") -> Tensor:
        """Return the cross entropy with label smoothing and variance regularizer (eq. 14), never holding `[..., V]`.

        hidden `[..., d]`, target `[...]` -> scalar, or `[...]` with reduction `none`, where ignored positions have
        loss 0. Reduction `mean` divides by the number of targets that are not ignored, and is 0 without any.
        Raises `ValueError` for targets of another shape or out of range.
        """
        check_target_shape(hidden, target)
        if hidden.dim() != 2:
            rows = self.loss(as_rows(hidden), target.flatten(), ignore_index=ignore_index, reduction=reduction)
            return rows.view(target.shape) if reduction == "none" else rows
        hidden, target = saveable(hidden), saveable(target)
        kept = target != ignore_index
        hidden_kept, target_kept = (hidden, target) if bool(kept.all()) else (hidden[kept], target[kept])
        check_targets(target_kept, self.weight.shape[0])
        if reduction == "none":
            losses = self._losses(hidden_kept, target_kept)
            return losses.new_zeros(target.shape).masked_scatter(kept, losses)
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction must be 'none', 'mean' or 'sum', not {reduction!r}")
        if self.num_components == 1:
            total = softmax_cross_entropy(self._parts(), hidden_kept, target_kept, self.label_smoothing)
        else:
            total = self._losses(hidden_kept, target_kept).sum()
        return total / max(1, target_kept.shape[0]) if reduction == "mean" else total

    def _losses(self, hidden: Tensor, target: Tensor) -> Tensor:
        losses = -(1 - self.label_smoothing) * self._mixed_targets(self._parts(), hidden, target)
        if self.label_smoothing:
            losses = losses - self.label_smoothing * self._mean_log_prob(hidden)
        if self.variance_penalty and self.num_components > 1:
            losses = losses + self.variance_penalty * self.mixture_variance(hidden)
        return losses

    def _mean_log_prob(self, hidden: Tensor) -> Tensor:
        """Return the mean log-probability over classes, recomputed in the backward pass: `[N, d]` -> `[N]`."""
        means = [
            checkpoint(lambda part: self._finite_log_prob(part).mean(-1), part, use_reentrant=False)
            for part in hidden.split(self._rows_held())
        ]
        return torch.cat(means)

    def _finite_log_prob(self, hidden: Tensor) -> Tensor:
        """Return the loss's log-probabilities, finite for all classes (sparse paper, eq. 5): `[N, d]` -> `[N, V]`."""
        if self.sparse_k is None:
            return self.log_prob(hidden)
        log_prior = self.log_mixture_weights(hidden).t()[:, :, None]
        joint = [scores - self.log_normalizer(scores)[:, None] for scores in self.scores(hidden)]
        return torch.logsumexp(log_prior + torch.stack(joint), dim=0)

    def _rows_held(self) -> int:
        """Return the number of positions whose distributions are held at a time."""
        return max(1, CHUNK_SCORES // (self.weight.shape[0] * self.num_components))

    def _parts(self) -> Components:
        return Components(
            kernels=self.components(),
            weights=self.class_weights(),
            projections=self.projections if self.num_components > 1 else None,
            bias=self.bias,
            sparse_k=self.sparse_k,
        )


def _sum(parts: Tensor) -> Tensor:
    """Return the sum over the first axis: `[K, N, V]` -> `[N, V]`."""
    if not torch.compiler.is_exporting():
        return parts.sum(0)
    # ONNX Runtime multiplies faster than it adds along this axis; autocast, which is off here, would do so in half.
    return (parts.new_ones(1, parts.shape[0]) @ parts.flatten(1)).view_as(parts[0])
