"""The generalized softmax: a mixture of kernel softmaxes that share one projection matrix.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components.
Everything is computed in log space: `log p = logsumexp_k(log pi_k + log_softmax_v S_k)`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from training.softmax.kernels import Kernel, at_least_float32, build_kernel
from training.softmax.loss import mixture_cross_entropy

__all__ = ["GeneralizedSoftmax", "KernelSpec", "parse_kernels"]

KernelSpec = str | Mapping[str, Any]
"""`"lin"`, `"3*lin"`, or a mapping with `name` and hyperparameters."""

_REPEATED = re.compile(r"^(?:(\d+)\s*\*\s*)?(\w+)$")


def _parse_name(spec: str) -> list[dict[str, Any]]:
    match = _REPEATED.match(spec.strip())
    if match is None:
        raise ValueError(f"kernels: {spec!r} is neither a kernel's name nor `count*name`")
    count = int(match[1] or 1)
    if not 1 <= count <= 64:
        raise ValueError(f"kernels: {spec!r} asks for {count} components; 1 to 64 are possible")
    return [{"name": match[2]}] * count


def parse_kernels(specs: str | Iterable[KernelSpec]) -> list[dict[str, Any]]:
    """One mapping (`name` and hyperparameters) per component.

    `"3*lin,log"`, `["3*lin", {"name": "pow", "p": 1.5}]` and the like; raises `ValueError` for anything else.
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
    """`p(v|h) = sum_k pi_k(h) softmax_v S_k(W_v, h_k)` (kernel paper, eq. 1-3).

    `pi(h) = softmax(prior^T h)` and `h_k = tanh(h @ projections[k])`. With one component there is neither prior
    nor projection: the kernel sees `h` itself, so a single-kernel model has as many parameters as `lin`.

    Parameters: `weight` `[V, d]`, and for K > 1 `prior` `[d, K]` and `projections` `[K, d, d]`.
    """

    def __init__(
        self,
        num_classes: int,
        hidden_size: int,
        kernels: str | Sequence[KernelSpec] = ("lin",),
        *,
        variance_penalty: float = 0.0,
    ) -> None:
        """`variance_penalty` is rho of eq. 14: `loss` adds rho times the variance of pi over the components.

        Raises `ValueError` for sizes below 1, a negative penalty, and what `build_kernel` refuses.
        """
        super().__init__()
        if num_classes < 1 or hidden_size < 1:
            raise ValueError(f"num_classes and hidden_size must be at least 1, not {num_classes} and {hidden_size}")
        if not variance_penalty >= 0:
            raise ValueError(f"variance_penalty must not be negative: {variance_penalty!r}")
        self.variance_penalty = variance_penalty
        self.kernels = nn.ModuleList(build_kernel(**spec) for spec in parse_kernels(kernels))
        self.weight = nn.Parameter(torch.empty(num_classes, hidden_size))
        count = len(self.kernels)
        if count > 1:
            self.prior = nn.Parameter(torch.empty(hidden_size, count))
            self.projections = nn.Parameter(torch.empty(count, hidden_size, hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Vectors of expected norm 1; projections near the identity's scale; an even prior."""
        hidden_size = self.weight.shape[1]
        nn.init.normal_(self.weight, std=hidden_size**-0.5)
        if self.num_components > 1:
            nn.init.zeros_(self.prior)
            nn.init.normal_(self.projections, std=hidden_size**-0.5)

    @property
    def num_components(self) -> int:
        return len(self.kernels)

    def components(self) -> list[Kernel]:
        return [kernel for kernel in self.kernels if isinstance(kernel, Kernel)]

    def component_hidden(self, hidden: Tensor) -> list[Tensor]:
        """`h_k` for each component: `[N, d]` -> K of `[N, d]` (eq. 3)."""
        if self.num_components == 1:
            return [hidden]
        return [torch.tanh(hidden @ self.projections[k]) for k in range(self.num_components)]

    def log_mixture_weights(self, hidden: Tensor) -> Tensor:
        """`log pi(h)`: `[N, d]` -> `[N, K]` (eq. 2)."""
        if self.num_components == 1:
            return at_least_float32(hidden.new_zeros(hidden.shape[0], 1))
        return torch.log_softmax(at_least_float32(hidden @ self.prior), dim=-1)

    def mixture_weights(self, hidden: Tensor) -> Tensor:
        """`pi(h)`: `[N, d]` -> `[N, K]`."""
        return self.log_mixture_weights(hidden).exp()

    def scores(self, hidden: Tensor) -> list[Tensor]:
        """`S_k`: `[N, d]` -> K of `[N, V]`."""
        pairs = zip(self.components(), self.component_hidden(hidden), strict=True)
        return [kernel(self.weight, component) for kernel, component in pairs]

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Log-probability of every class: `[N, d]` -> `[N, V]`."""
        log_prior = self.log_mixture_weights(hidden)
        parts = [torch.log_softmax(score, dim=-1) for score in self.scores(hidden)]
        if len(parts) == 1:
            return parts[0]
        return torch.logsumexp(torch.stack([log_prior[:, k, None] + part for k, part in enumerate(parts)]), dim=0)

    def target_log_prob(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Log-probability of one class per position, without the distribution: `[N, d]`, `[N]` -> `[N]`."""
        log_prior = self.log_mixture_weights(hidden)
        index = target[:, None]
        parts = [score.gather(1, index)[:, 0] - torch.logsumexp(score, dim=-1) for score in self.scores(hidden)]
        return torch.logsumexp(log_prior + torch.stack(parts, dim=-1), dim=-1)

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Sum over positions of cross entropy plus the variance regularizer (eq. 14): `[N, d]`, `[N]` -> scalar.

        Never holds `[N, V]`; see `training.softmax.loss`.
        """
        components = torch.stack(self.component_hidden(hidden))
        log_prior = self.log_mixture_weights(hidden)
        loss = mixture_cross_entropy(self.components(), self.weight, components, log_prior, target)
        if self.variance_penalty and self.num_components > 1:
            # The weights sum to 1, so their mean over the components is 1 / K.
            variance = (log_prior.exp() - 1 / self.num_components).square().mean(-1)
            loss = loss + self.variance_penalty * variance.sum()
        return loss
