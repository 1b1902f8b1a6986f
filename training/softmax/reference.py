"""The output layer and its loss, written as in the papers: the reference that all faster code is tested against.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components; word vectors `w` are `[V, d]`,
context vectors `h` are `[N, d]`.

    log p(v | h) = log sum_k pi_k(h) softmax_v S_k(w_v, h_k)      pi(h) = softmax(prior^T h)      h_k = tanh(h C_k)

It holds `[N, V, d]` and leaves all derivatives to autograd. `training.softmax.kernels` needs no more than `[N, V]`,
`training.softmax.passes` a part of that at a time, and `training.softmax.elementwise` has derivatives written out.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .kernel import Kernel
from .mixture import GeneralizedSoftmax

__all__ = ["FORMULAS", "best", "component_scores", "entmax", "log_prob", "losses", "potential", "scores", "with_margin"]


def _dot(w: Tensor, h: Tensor) -> Tensor:
    return (w * h[:, None]).sum(-1)


def _cosine(w: Tensor, h: Tensor) -> Tensor:
    return _dot(w / w.square().sum(-1, keepdim=True).sqrt(), h / h.square().sum(-1, keepdim=True).sqrt())


def _distance(w: Tensor, h: Tensor) -> Tensor:
    return (w - h[:, None]).square().sum(-1).sqrt()


def _poincare(w: Tensor, h: Tensor, eps: float = 1e-5) -> Tensor:
    """Return the negative Poincare distance of vectors mapped into the unit ball by `x -> tanh(||x||) x / ||x||`."""

    def ball(x: Tensor) -> Tensor:
        norm = x.square().sum(-1, keepdim=True).sqrt()
        return torch.tanh(norm).clamp_max(1 - eps) * x / norm

    u, v = ball(w), ball(h)
    gaps = (1 - u.square().sum(-1)) * (1 - v.square().sum(-1))[:, None]
    return -torch.acosh(1 + 2 * _distance(u, v) ** 2 / gaps)


def _gaussians(w: Tensor, h: Tensor, num_gaussians: int = 2) -> Tensor:
    """Return the sum over pairs of log of the integral of `N(mu_w, s_w I) N(mu_h, s_h I)`; last columns are `log s`."""
    total = w.new_zeros(h.shape[0], w.shape[0])
    for a in w.chunk(num_gaussians, dim=1):
        for b in h.chunk(num_gaussians, dim=1):
            variance = a[:, -1].exp() + b[:, -1].exp()[:, None]
            square = _distance(a[:, :-1], b[:, :-1]) ** 2
            total = total - (a.shape[1] - 1) / 2 * torch.log(2 * math.pi * variance) - square / (2 * variance)
    return total


def _von_mises_fisher(w: Tensor, h: Tensor, scale: float | Tensor) -> Tensor:
    """Return `kappa cos(w, h)` minus the logarithm of the mean of `exp(kappa x)`, its power series in `kappa^2 / 4`."""
    kappa = scale * w.square().sum(-1).sqrt()
    m = torch.arange(100 + int(kappa.detach().max()), dtype=w.dtype, device=w.device)
    half = torch.tensor(w.shape[1] / 2, dtype=w.dtype, device=w.device)
    coefficients = torch.lgamma(half) - torch.lgamma(half + m) - torch.lgamma(m + 1)
    return kappa * _cosine(w, h) - torch.logsumexp(2 * m * (kappa[:, None] / 2).log() + coefficients, dim=-1)


FORMULAS: Mapping[str, Callable[..., Tensor]] = {
    "lin": _dot,  # eq. 4
    "log": lambda w, h, p: -torch.log(_distance(w, h) ** p + 1),  # eq. 5
    "pow": lambda w, h, p: -(_distance(w, h) ** p),  # eq. 6
    "pol": lambda w, h, alpha, c, p: (alpha * _dot(w, h) + c) ** p,  # eq. 7
    "rbf": lambda w, h, gamma: torch.exp(-gamma * _distance(w, h) ** 2),  # eq. 8
    "ssg": lambda w, h: _gaussians(w, h, 1),  # eq. 9
    "mog": _gaussians,  # eq. 10
    "hpb": _poincare,  # eq. 11
    "wav": lambda w, h, a, b: torch.cos(_distance(w, h) ** 2 / a) * torch.exp(-(_distance(w, h) ** 2) / b),  # eq. 12
    "cos": lambda w, h, scale: scale * _cosine(w, h),
    "vmf": _von_mises_fisher,
}
"""The kernels by name, equations those of the kernel paper: `[V, d]`, `[N, d]`, hyperparameters -> scores `[N, V]`."""


def scores(kernel: Kernel, w: Tensor, h: Tensor) -> Tensor:
    """Return the scores of a kernel in `FORMULAS` by its formula, of another by its own `score`: -> `[N, V]`."""
    if kernel.name not in FORMULAS:
        return kernel(w, h)
    learnt = {name: kernel.value(name, w.shape[1]) for name in kernel.defaults}
    return FORMULAS[kernel.name](w, h, **{**kernel.hyperparameters, **learnt})


def component_scores(layer: GeneralizedSoftmax, h: Tensor) -> tuple[Tensor, Tensor]:
    """Return `log pi` `[N, K]` and `S` `[N, K, V]` of context vectors `[N, d]` (kernel paper, eq. 2 and 3)."""
    count = layer.num_components
    w = [layer.weight] * count
    if layer.untied == "full":
        w = [layer.weight, *layer.other_weights]
    elif layer.untied is not None:
        w = [layer.weight + left @ right for left, right in zip(layer.left, layer.right, strict=True)]
    log_pi = torch.log_softmax(h @ layer.prior, dim=-1) if count > 1 else h.new_zeros(h.shape[0], 1)
    contexts = [torch.tanh(h @ projection) for projection in layer.projections] if count > 1 else [h]
    parts = zip(layer.components(), w, contexts, strict=True)
    bias = 0.0 if layer.bias is None else layer.bias
    return log_pi, torch.stack([scores(kernel, w_k, h_k) + bias for kernel, w_k, h_k in parts], dim=1)


def best(s: Tensor, k: int | None) -> Tensor:
    """Return scores with minus infinity outside the k best of the last axis, ties to the lower class."""
    ranks = torch.sort(s, dim=-1, descending=True, stable=True).indices
    return torch.full_like(s, -math.inf).scatter(-1, ranks[..., :k], s.gather(-1, ranks[..., :k]))


def entmax(s: Tensor, alpha: float) -> Tensor:
    """Return alpha-entmax of the last axis, alpha 1.5 or 2 (Peters et al. 2019, algorithm 2)."""
    z = (alpha - 1) * s
    thresholds = torch.stack([_threshold(row, alpha) for row in z.reshape(-1, z.shape[-1])])
    return (z - thresholds.reshape(*z.shape[:-1], 1)).clamp_min(0) ** (1 / (alpha - 1))


def _threshold(z: Tensor, alpha: float) -> Tensor:
    """Return the threshold of one row `[V]`, that of the k best for the largest k whose k-th is above it."""
    best_first = torch.sort(z, descending=True).values
    some = best_first[: _support_size(best_first.detach(), alpha)]
    k, mean = some.shape[0], some.mean()
    return mean - (1 / k if alpha == 2 else ((1 - (some - mean).square().sum()) / k).sqrt())


def _support_size(best_first: Tensor, alpha: float) -> int:
    """Return the largest k whose k-th is above the threshold of the k best, NaN where these have none: `[V]`."""
    k = torch.arange(1, best_first.shape[0] + 1, device=best_first.device)
    z = best_first - best_first[0]
    mean = z.cumsum(0) / k
    rest = 1 - (z.square().cumsum(0) - k * mean.square())
    thresholds = mean - (1 / k if alpha == 2 else (rest / k).sqrt())
    return int((thresholds < z).nonzero().max()) + 1


def potential(s: Tensor, alpha: float) -> Tensor:
    """Return `max_p p . s + H(p)`, `[..., V]` -> `[..., 1]`; see `training.softmax.alpha_entmax`."""
    p = entmax(s, alpha)
    return (p * s).sum(-1, keepdim=True) + (1 - (p**alpha).sum(-1, keepdim=True)) / (alpha * (alpha - 1))


def log_prob(layer: GeneralizedSoftmax, h: Tensor) -> Tensor:
    """Return `log p(v | h)`, minus infinity outside the k best classes: `[N, d]` -> `[N, V]` (kernel paper, eq. 1)."""
    log_pi, s = component_scores(layer, h)
    if layer.alpha != 1:
        return entmax(s[:, 0], layer.alpha).log()
    return torch.logsumexp(log_pi[..., None] + torch.log_softmax(best(s, layer.sparse_k), dim=-1), dim=1)


def with_margin(layer: GeneralizedSoftmax, s: Tensor, target: Tensor) -> Tensor:
    """Return scores `[N, K, V]` of `cos` in which those of targets `[N]` have the margins (ArcFace, CosFace)."""
    if not layer.angular_margin and not layer.cosine_margin:
        return s
    bias = 0.0 if layer.bias is None else layer.bias
    scale = torch.stack([s.new_ones(()) * kernel.value("scale", 0) for kernel in layer.components()])[:, None]
    theta, m = torch.acos((s - bias) / scale), layer.angular_margin
    moved = torch.where(theta < math.pi - m, torch.cos(theta + m), torch.cos(theta) + math.cos(m) - 1)
    chosen = torch.nn.functional.one_hot(target, s.shape[-1])[:, None]
    return torch.where(chosen == 1, scale * (moved - layer.cosine_margin) + bias, s)


def losses(layer: GeneralizedSoftmax, h: Tensor, target: Tensor) -> Tensor:
    """Return the loss of each position: `[N, d]`, target `[N]` -> `[N]`.

    Cross entropy, in which the target's score counts whether or not it is among the k best (sparse paper, eq. 5), with
    label smoothing, plus `variance_penalty` times the variance of pi over the components (kernel paper, eq. 14), and
    `balance_penalty` times the divergence of the mean of pi over the positions from equal weights.
    With `alpha` 1.5 or 2, the loss of Peters et al. (2019), in which the potential is the logarithm of the normalizer.
    """
    log_pi, s = component_scores(layer, h)
    s = with_margin(layer, s, target)
    if layer.alpha == 1:
        normalizer = torch.logsumexp(best(s, layer.sparse_k), dim=-1, keepdim=True)
    else:
        normalizer = potential(s, layer.alpha)
    log_p = torch.logsumexp(log_pi[..., None] + s - normalizer, dim=1)
    smoothing = layer.label_smoothing
    cross_entropy = -(1 - smoothing) * log_p.gather(1, target[:, None])[:, 0] - smoothing * log_p.mean(dim=-1)
    shares = log_pi.exp().mean(dim=0)
    divergence = (shares * shares.log()).sum() + math.log(len(shares))
    penalties = layer.variance_penalty * log_pi.exp().var(dim=-1, correction=0) + layer.balance_penalty * divergence
    return cross_entropy + penalties
