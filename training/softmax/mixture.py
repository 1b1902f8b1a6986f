"""The generalized softmax: a mixture of kernel softmaxes that share one projection matrix, and of other distributions.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components; `...` are any leading dimensions of
positions, such as batch and time.
Everything is computed in log space: `log p = logsumexp_k(log pi_k + log_softmax_v S_k)`.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from . import elementwise
from .alpha_entmax import check_alpha, log_entmax
from .compiled import builds_layers, compiled_loss
from .components import Attention, Component, Context, Distribution, build_component, component_class
from .kernel import (
    Kernel,
    as_rows,
    at_least_float32,
    check_hidden,
    from_rows,
    is_positive_integer,
    readable,
    saveable,
    with_parameters,
)
from .kernels import build_kernel, kernel_class
from .loss import (
    Components,
    Terms,
    check_loss,
    mixture_cross_entropy,
    normalizer_of,
    plain_target_scores,
    scores_of_classes,
    softmax_cross_entropy,
    target_scores,
)
from .margin import Margin
from .passes import adjusted
from .sparse import Reduction, as_targets, best_classes, check_target_shape

__all__ = [
    "NAMED_MIXTURES",
    "GeneralizedSoftmax",
    "KernelSpec",
    "checked_margin",
    "extra_state_for_classes",
    "extra_state_with_components",
    "parse_kernels",
]

KernelSpec = str | Mapping[str, Any]
"""`"lin"`, `"3*lin"`, `"2*package.module:ClassName"`, `"cache"`, or a mapping with `name` and hyperparameters."""

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

_HELD_SCORES = 1 << 24
"""The most scores of distributions that are held at a time, several times 64 MB of float32."""

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


def parse_components(specs: str | Iterable[KernelSpec]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the kernels and the other components of `parse_kernels`, which follow them.

    Raises `ValueError` for another order, for no kernel, and for constant weights that leave nothing to the others.
    """
    parsed = parse_kernels(specs)
    kernels = [spec for spec in parsed if component_class(spec["name"]) is None]
    others = parsed[len(kernels) :]
    if not kernels or parsed[: len(kernels)] != kernels:
        names = ", ".join(str(spec["name"]) for spec in parsed)
        raise ValueError(f"kernels: a kernel must come first, and other components behind all kernels, not {names}")
    weights = [spec["weight"] for spec in others if isinstance(spec.get("weight"), int | float)]
    if not sum(weights) < 1:
        raise ValueError(f"kernels: the constant weights {weights} must sum to less than 1")
    return kernels, others


def _trained(specs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the components that parameters of a layer depend on."""
    kinds = [(spec, component_class(spec["name"])) for spec in specs]
    return [spec for spec, kind in kinds if kind is None or kind.learns or spec.get("weight") is None]


def _check_sizes(num_classes: int, hidden_size: int) -> None:
    if num_classes < 1 or hidden_size < 1:
        raise ValueError(f"num_classes and hidden_size must be at least 1, not {num_classes} and {hidden_size}")


def _check_numbers(
    penalties: Mapping[str, float], component_dropout: float, label_smoothing: float, softcap: float | None
) -> None:
    for name, value in penalties.items():
        if not value >= 0:
            raise ValueError(f"{name} must not be negative: {value!r}")
    if not 0 <= component_dropout < 1:
        raise ValueError(f"component_dropout must lie in [0, 1): {component_dropout!r}")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1): {label_smoothing!r}")
    if softcap is not None and not 0 < softcap < math.inf:
        raise ValueError(f"softcap must be a positive number: {softcap!r}")


def _check_distribution(alpha: float, sparse_k: int | None, components: int) -> None:
    check_alpha(alpha)
    if alpha != 1.0 and sparse_k is not None:
        raise ValueError(
            f"alpha = {alpha} and sparse_k = {sparse_k} exclude each other: both choose the classes above 0"
        )
    if alpha != 1.0 and components > 1:
        raise ValueError(f"alpha = {alpha} is possible with a single kernel only, not a mixture of {components}")


def checked_margin(kernels: Iterable[Kernel], angular: float, cosine: float) -> Margin | None:
    """Return the margin of a loss, None where it is 0.

    Raises `ValueError` for margins out of range, and for kernels without an angle.
    """
    margin = Margin(angular=angular, cosine=cosine)
    for kernel in kernels if margin else ():
        if not kernel.has_angle:
            raise ValueError(
                f"{'angular' if angular else 'cosine'}_margin: kernel {kernel.name!r} has no angle between hidden "
                "states and class vectors; kernel 'cos' has"
            )
    return margin or None


def extra_state_for_classes(state: Tensor, before: int, after: int) -> Tensor:
    """Return the extra state of a layer of `before` classes as that of one of `after`, with the defaults of these."""
    specs = json.loads(bytes(state.tolist()))
    for spec in specs if before != after else ():
        defaults = {} if component_class(spec["name"]) else kernel_class(spec["name"]).class_defaults
        for name, default in defaults.items():
            if spec.get(name) == default(before):
                spec[name] = default(after)
    return _as_bytes(json.dumps(specs))


def extra_state_with_components(state: Tensor, own: Tensor) -> Tensor:
    """Return `own`, the extra state of a layer, where that layer differs from `state` by further components alone.

    Otherwise `state`, which the layer then refuses. A component that is not a kernel is such a component.
    """
    found, wanted = (json.loads(bytes(each.tolist())) for each in (state, own))
    further = wanted[len(found) :]
    grown = wanted[: len(found)] == found and all(component_class(spec["name"]) for spec in further)
    return own if grown else state


def _as_bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


class GeneralizedSoftmax(nn.Module):
    """Compute `p(v|h) = sum_k pi_k(h) softmax_v S_k(W_k,v , h_k)` (kernel paper, eq. 1-3).

    `pi(h) = softmax(prior^T h)` and `h_k = tanh(h @ projections[k])`. With one component there is neither prior
    nor projection: the kernel sees `h` itself, so a single-kernel model has as many parameters as `lin`.

    Parameters: `weight` `[V, d]`, for K > 1 also `prior` `[d, K]` and `projections` `[K, d, d]`. The projection
    matrix `W_k` is `weight` for all components, unless they are untied: `untied="full"` gives the components after the
    first matrices of their own, `other_weights` `[K - 1, V, d]`; an integer r gives low-rank corrections,
    `W_k = weight + left[k] @ right[k]` with `left` `[K, V, r]` and `right` `[K, r, d]`, which start at 0.

    With `bias` every component adds the parameter `bias` `[V]`, 0 at first, to its scores. A class whose bias is minus
    infinity has probability 0.

    With `sparse_k` each component is a sparse-softmax over its k best classes (sparse paper, eq. 4-5). With `alpha`
    1.5 or 2 a single kernel's distribution is entmax or sparsemax (Peters et al. 2019) instead of softmax, and `loss`
    is the one that belongs to it.

    After the kernels, `kernels` may list components of other kinds: `cache`, `pointer`, `unigram` and `copy`
    (`training.softmax.components`). K counts all components, `projections` are those of several kernels alone, and
    `prior` has a column for each component whose weight is not constant, if these are several. What depends on the
    distribution takes a `history` then, of hidden states `[B, T, d]`: a `History`, or for `copy` a `Source`. Without
    it, components that read it have the weight 0, and the others' weights sum to 1.
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
        alpha: float = 1.0,
        variance_penalty: float = 0.0,
        balance_penalty: float = 0.0,
        component_dropout: float = 0.0,
        label_smoothing: float = 0.0,
        softcap: float | None = None,
        angular_margin: float = 0.0,
        cosine_margin: float = 0.0,
        chunk_scores: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`variance_penalty` is rho of eq. 14: `loss` adds rho times the variance of pi over the components.

        `balance_penalty` is the factor of another term, the Kullback-Leibler divergence of the mean of pi over the
        positions of a call from equal weights: all components are used, but not at each position. In training mode each
        component is left out of the loss of a position with the probability `component_dropout`, and the others share
        its weight; label smoothing is that of all.

        `label_smoothing` as in `torch.nn.functional.cross_entropy`: targets are mixed with the uniform distribution
        over all classes; with `sparse_k` on the scores of all classes, normalized over the k best, as the target's is
        (sparse paper, eq. 5), so that it is finite. With `softcap` c a score z is `c tanh(z / c)`. `angular_margin` and
        `cosine_margin` are those of the loss, which takes `cos(theta + angular_margin) - cosine_margin` for the cosine
        of the target; the kernels must be `cos` then. `chunk_scores` is the most scores that are computed at a time, by
        default 2^26 or what suits a CPU's cache. `device` and `dtype` are those of the parameters, as in
        `torch.nn.Linear`. Raises `ValueError` naming the argument that is out of range.
        """
        super().__init__()
        if untied not in (None, "full") and not is_positive_integer(untied):
            raise ValueError(f"untied must be None, 'full' or a positive rank: {untied!r}")
        for name, value in (("sparse_k", sparse_k), ("chunk_scores", chunk_scores)):
            if value is not None and not is_positive_integer(value):
                raise ValueError(f"{name} must be a positive integer: {value!r}")
        _check_sizes(num_classes, hidden_size)
        penalties = {"variance_penalty": variance_penalty, "balance_penalty": balance_penalty}
        _check_numbers(penalties, component_dropout, label_smoothing, softcap)
        self.angular_margin, self.cosine_margin = angular_margin, cosine_margin
        self.variance_penalty = variance_penalty
        self.balance_penalty = balance_penalty
        self.component_dropout = component_dropout
        self.label_smoothing = label_smoothing
        self.sparse_k = sparse_k
        self.alpha = alpha
        self.softcap = softcap
        self.chunk_scores = chunk_scores
        self.hidden_size = hidden_size
        specs, others = parse_components(kernels)
        _check_distribution(alpha, sparse_k, len(specs) + len(others))
        sizes = {"num_classes": num_classes, "hidden_size": hidden_size}
        self.kernels = nn.ModuleList(build_kernel(**{**sizes, **spec}) for spec in specs)
        for kernel in self.components():
            kernel.blocks(hidden_size)  # a kernel of Gaussians raises where the size does not suit it
        checked_margin(self.components(), angular_margin, cosine_margin)
        self.others = nn.ModuleList(build_component(**{**spec, **sizes}) for spec in others)
        self.untied: Literal["full"] | int | None = untied if len(specs) > 1 else None
        count = len(specs)

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.weight = parameter(num_classes, hidden_size)
        if (weighted := count + sum(each.weight is None for each in self.other_components())) > 1:
            self.prior = parameter(hidden_size, weighted)
        if count > 1:
            self.projections = parameter(count, hidden_size, hidden_size)
        if self.untied == "full":
            self.other_weights = parameter(count - 1, num_classes, hidden_size)
        elif self.untied is not None:
            self.left = parameter(count, num_classes, self.untied)
            self.right = parameter(count, self.untied, hidden_size)
        self.bias = parameter(num_classes) if bias else None
        self.kernels.to(device=device, dtype=dtype)
        self.others.to(device=device, dtype=dtype)
        self._configuration = json.dumps(
            [
                {"name": kernel.name, **({"learnable": True} if kernel.learnable else kernel.hyperparameters)}
                for kernel in self.components()
            ]
            + [{"name": each.name, **each.hyperparameters} for each in self.other_components()]
        )
        """Kernels and fixed hyperparameters as JSON."""
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all parameters again, as after `to_empty`, with the learnt hyperparameters' first values.

        Vectors have an expected norm of 1, as the kernels change them, and projections keep norms; prior, bias and
        low-rank corrections are 0.
        """
        for name, parameter in self.named_parameters(recurse=False):
            if name in ("prior", "bias", "left"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=self.hidden_size**-0.5)
        weights = [self.weight, *self.other_weights] if self.untied == "full" else [self.weight] * len(self.kernels)
        for kernel, weight in zip(self.components(), weights, strict=True):
            kernel.reset_parameters()
            kernel.initialize(weight)
        for other in self.other_components():
            other.reset_parameters()

    def get_extra_state(self) -> Tensor:
        """Return the kernels and fixed hyperparameters as JSON in bytes, which any format of tensors can hold."""
        return _as_bytes(self._configuration)

    def set_extra_state(self, state: Tensor) -> None:
        """Raise `ValueError` if parameters are those of another layer, whose shapes may be the same.

        Components that no parameter depends on may differ: a cache of constant weight can be added to a trained layer.
        """
        found, own = (_trained(json.loads(text)) for text in (bytes(state.tolist()), self._configuration))
        if found != own:
            raise ValueError(
                f"the parameters are those of a layer with kernels {found}, not {own}; to load them all the same, "
                "delete the entry that ends in '_extra_state' from the state"
            )

    def constructor_arguments(self) -> str:
        """Return the arguments that make such a layer, as JSON; written so that `torch.compile` can follow."""
        numbers = f'"num_classes": {self.weight.shape[0]}, "hidden_size": {self.hidden_size}'
        untied = "null" if self.untied is None else f'"{self.untied}"' if self.untied == "full" else f"{self.untied}"
        sparse_k = "null" if self.sparse_k is None else f"{self.sparse_k}"
        softcap = "null" if self.softcap is None else f"{self.softcap}"
        chunk = "null" if self.chunk_scores is None else f"{self.chunk_scores}"
        return (
            f'{{{numbers}, "kernels": {self._configuration}, "untied": {untied}, "sparse_k": {sparse_k}, '
            f'"alpha": {self.alpha}, "bias": {"false" if self.bias is None else "true"}, '
            f'"variance_penalty": {self.variance_penalty}, "balance_penalty": {self.balance_penalty}, '
            f'"softcap": {softcap}, "chunk_scores": {chunk}}}'
        )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        metadata: Any,
        strict: bool,
        missing_keys: list[str],
        *others: Any,
    ) -> None:
        """Accept states of earlier versions, which don't say what kernels they are of."""
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing_keys, *others)
        if (key := f"{prefix}_extra_state") in missing_keys:
            missing_keys.remove(key)

    def forward(self, hidden: Tensor, target: Tensor | None = None, **options: Any) -> Tensor:
        """Return `log_prob(hidden, **options)` `[..., V]`, or with a target `loss(hidden, target, **options)`.

        Calling the layer instead of its methods runs hooks, such as those of `torch.distributed.fsdp.fully_shard`.
        """
        return self.log_prob(hidden, **options) if target is None else self.loss(hidden, target, **options)

    def extra_repr(self) -> str:
        return f"sparse_k={self.sparse_k}, untied={self.untied!r}, alpha={self.alpha}"

    @property
    def num_components(self) -> int:
        return len(self.kernels) + len(self.others)

    def components(self) -> list[Kernel]:
        """Return the components that are kernels."""
        return [kernel for kernel in self.kernels if isinstance(kernel, Kernel)]

    def other_components(self) -> list[Component]:
        """Return the components that are not kernels, which follow these."""
        return [other for other in self.others if isinstance(other, Component)]

    @property
    def reads_history(self) -> bool:
        """Return whether a component needs the history of a position."""
        return any(each.reads_history for each in self.other_components())

    @property
    def reads_source(self) -> bool:
        """Return whether a component needs the source that a text is written from."""
        return any(each.reads_source for each in self.other_components())

    @property
    def learns_from_history(self) -> bool:
        """Return whether training needs the history: a component that reads it has parameters or a learnt weight."""
        readers = (each for each in self.other_components() if each.reads_history)
        return any(each.weight is None or each.learns for each in readers)

    @property
    def window(self) -> int | None:
        """Return the most words of a history that a component reads, None where one reads all of them."""
        windows = [each.window for each in self.other_components() if each.reads_history]
        return None if None in windows else max((window for window in windows if window is not None), default=0)

    def class_weights(self) -> list[Tensor]:
        """Return the projection matrices `[V, d]`: one where the components are tied, else K."""
        weight = saveable(self.weight)
        if self.untied is None:
            return [weight]
        if self.untied == "full":
            return [weight, *saveable(self.other_weights)]
        left, right = saveable(self.left), saveable(self.right)
        return [weight + left[k] @ right[k] for k in range(len(self.kernels))]

    def component_hidden(self, hidden: Tensor) -> list[Tensor]:
        """Return `h_k` for each kernel: `[..., d]` -> a list of `[..., d]` (eq. 3)."""
        self._check(hidden)
        if len(self.kernels) == 1:
            return [hidden]
        hidden, projections = saveable(hidden), saveable(self.projections)
        return [torch.tanh(hidden @ projections[k]) for k in range(len(self.kernels))]

    def log_mixture_weights(self, hidden: Tensor, history: Context | None = None) -> Tensor:
        """Return `log pi(h)`, at least float32: `[..., d]` -> `[..., K]` (eq. 2)."""
        self._check(hidden)
        return from_rows(self._log_weights(as_rows(hidden), self._distributions(hidden, history)), hidden)

    def mixture_weights(self, hidden: Tensor, history: Context | None = None) -> Tensor:
        """Return `pi(h)`: `[..., d]` -> `[..., K]`."""
        return self.log_mixture_weights(hidden, history).exp()

    def mixture_variance(self, hidden: Tensor, history: Context | None = None) -> Tensor:
        """Return the variance of `pi(h)` over the components (kernel paper, eq. 14): `[..., d]` -> `[...]`."""
        # The weights sum to 1, so their mean over the components is 1 / K.
        return (self.mixture_weights(hidden, history) - 1 / self.num_components).square().mean(-1)

    def _distributions(
        self, hidden: Tensor, history: Context | None, temperature: float = 1.0
    ) -> list[Distribution | None]:
        """Return the distributions of the components that are not kernels; None of one that lacks its context."""
        if history is not None:
            history.check(hidden)
        return [
            each.distribution(hidden, history, temperature) if each.can_read(history) else None
            for each in self.other_components()
        ]

    def _log_weights(self, hidden: Tensor, others: Sequence[Distribution | None]) -> Tensor:
        """Return `log pi` of rows: `[N, d]` -> `[N, K]`.

        A component without a distribution at a position has the weight 0 there. Those with constant weights have these,
        the others share the rest.
        """
        present = at_least_float32(hidden.new_zeros(hidden.shape[0]))
        if self.num_components == 1:
            return present[:, None]
        logits = at_least_float32(saveable(hidden) @ saveable(self.prior)) if hasattr(self, "prior") else None
        if not self.others and logits is not None:
            return torch.log_softmax(logits, dim=-1)
        absent = torch.full_like(present, -torch.inf)
        masses = [present] * len(self.kernels) + [absent if each is None else each.log_mass for each in others]
        constants = [None] * len(self.kernels) + [each.weight for each in self.other_components()]
        pairs = list(zip(masses, constants, strict=True))
        learnt = torch.stack([mass for mass, constant in pairs if constant is None], dim=-1)
        shares = iter(torch.log_softmax(learnt if logits is None else learnt + logits, dim=-1).unbind(-1))
        taken = [None if each is None else torch.where(mass > -torch.inf, math.log(each), mass) for mass, each in pairs]
        rest = torch.log1p(-sum((each.exp() for each in taken if each is not None), torch.zeros_like(present)))
        return torch.stack([next(shares) + rest if each is None else each for each in taken], dim=-1)

    def scores(self, hidden: Tensor) -> list[Tensor]:
        """Return `S_k` of each kernel, at least float32: `[..., d]` -> a list of `[..., V]`."""
        weights = self.class_weights()
        weights = weights * len(self.kernels) if len(weights) == 1 else weights
        parts = zip(self.components(), weights, self.component_hidden(hidden), strict=True)
        return [self.adjusted(kernel(weight, component)) for kernel, weight, component in parts]

    def adjusted(self, scores: Tensor) -> Tensor:
        """Return a kernel's scores with the bias and bounded by the cap, where there are such: `[..., V]` -> same."""
        return adjusted(scores, self.bias, self.softcap)

    def _check(self, hidden: Tensor) -> None:
        check_hidden(self.weight, hidden, self.hidden_size)

    def log_prob(self, hidden: Tensor, *, temperature: float = 1.0, history: Context | None = None) -> Tensor:
        """Return the log-probability of every class, minus infinity where it is 0: `[..., d]` -> `[..., V]`.

        Each component's scores are divided by the temperature.
        """
        self._check(hidden)
        others = self._distributions(hidden, history, temperature)
        return from_rows(self._row_log_prob(as_rows(hidden), others, temperature), hidden)

    def _row_log_prob(self, hidden: Tensor, others: Sequence[Distribution | None], temperature: float = 1.0) -> Tensor:
        return self._mixed(hidden, self._scaled_scores(hidden, temperature), others)

    def mix(self, hidden: Tensor, scores: Sequence[Tensor], history: Context | None = None) -> Tensor:
        """Return log-probabilities from the kernels' scores: `[..., d]`, a list of `[..., V]` -> `[..., V]`."""
        others = self._distributions(hidden, history)
        return from_rows(self._mixed(as_rows(hidden), [as_rows(score) for score in scores], others), hidden)

    def _mixed(self, hidden: Tensor, scores: Sequence[Tensor], others: Sequence[Distribution | None]) -> Tensor:
        """Return log-probabilities of rows from the kernels' scores: `[N, d]`, a list of `[N, V]` -> `[N, V]`."""
        if any(each is not None for each in others):
            return self.log_sum(torch.stack(self._joint(hidden, map(self._log_softmax, scores), others)))
        if len(scores) == 1:
            return self._log_softmax(scores[0])
        log_prior = self._log_weights(hidden, others)[:, : len(scores)].t()[:, :, None]
        if self.sparse_k is not None:
            return torch.logsumexp(log_prior + torch.stack([self._log_softmax(score) for score in scores]), dim=0)
        joint = torch.log_softmax(torch.cat(list(scores)).unflatten(0, (len(scores), -1)), dim=-1) + log_prior
        return self.log_sum(joint)

    def _joint(self, hidden: Tensor, kernels: Iterable[Tensor], others: Sequence[Distribution | None]) -> list[Tensor]:
        """Return the components' log-probabilities, weights included, from those of the kernels: each `[N, V]`."""
        log_weights, classes = self._log_weights(hidden, others).t()[:, :, None], self.weight.shape[0]
        given = [(len(self.kernels) + place, each) for place, each in enumerate(others) if each is not None]
        parts = [weights + each for weights, each in zip(log_weights, kernels, strict=False)]
        return parts + [log_weights[place] + each.log_prob(classes) for place, each in given]

    def split(
        self, hidden: Tensor, scores: Sequence[Tensor], history: Context | None
    ) -> tuple[Tensor, list[tuple[Tensor, Distribution]]]:
        """Return what `mix` adds up: log-probabilities of the kernels, weights included, and the other components.

        `[..., d]`, a list of `[N, V]` -> `[N, V]`, and for each component with a distribution the logarithms of its
        weights `[N]`, and the distributions.
        """
        return self._split(as_rows(hidden), scores, self._distributions(hidden, history))

    def _split(
        self, hidden: Tensor, scores: Sequence[Tensor], others: Sequence[Distribution | None]
    ) -> tuple[Tensor, list[tuple[Tensor, Distribution]]]:
        """Return `split` of rows: `[N, d]`, a list of `[N, V]`."""
        log_weights = self._log_weights(hidden, others).t()
        parts = [weight[:, None] + self._log_softmax(each) for weight, each in zip(log_weights, scores, strict=False)]
        given = [
            (weight, each) for weight, each in zip(log_weights[len(scores) :], others, strict=True) if each is not None
        ]
        return parts[0] if len(parts) == 1 else self.log_sum(torch.stack(parts)), given

    def mix_targets(self, hidden: Tensor, target: Tensor, found: Tensor, history: Context | None = None) -> Tensor:
        """Return log-probabilities of targets from those of the kernels: `[..., d]`, `[N]`, `[N, kernels]` -> `[N]`."""
        others = self._distributions(hidden, history)
        return self._mixed_columns(target, others, found, self._log_weights(as_rows(hidden), others))

    def log_sum(self, joint: Tensor) -> Tensor:
        """Return log-probabilities from the components' ones, weights included: `[K, N, V]` -> `[N, V]`."""
        # As logsumexp, which ONNX Runtime computes several times slower along this axis.
        largest = joint.amax(0)
        if self.bias is None and self.sparse_k is None:
            return _sum((joint - largest).exp()).log() + largest
        excluded = largest == -torch.inf  # from all components, by bias or `sparse_k`: differences would be NaN
        total = _sum((joint - largest.masked_fill(excluded, 0.0)).exp())
        return total.masked_fill(excluded, 1.0).log() + largest

    @property
    def has_zeros(self) -> bool:
        """Return whether classes can have probability 0, other than by a bias of minus infinity."""
        return self.sparse_k is not None or self.alpha != 1.0

    def normalizer_of(self, scores: Tensor) -> Tensor:
        """Return the logarithm of a component's normalizer, or F of `entmax` in its place: `[..., V]` -> `[...]`."""
        return normalizer_of(scores, self.sparse_k, self.alpha)

    def _log_softmax(self, scores: Tensor) -> Tensor:
        if self.alpha != 1.0:
            return log_entmax(scores, self.alpha)
        if self.sparse_k is None or self.sparse_k >= scores.shape[1]:
            return torch.log_softmax(scores, dim=-1)
        values, classes = best_classes(scores, self.sparse_k)
        return torch.full_like(scores, -torch.inf).scatter(1, classes, torch.log_softmax(values, dim=-1))

    def target_log_prob(
        self, hidden: Tensor, target: Tensor, *, sparse: bool = True, history: Context | None = None
    ) -> Tensor:
        """Return one entry of `log_prob` per position, never holding `[..., V]`: `[..., d]`, `[...]` -> `[...]`.

        With `sparse_k` it is minus infinity for a class outside the k best. `sparse=False` gives those of the plain
        softmax of the same scores, which are finite and can be compared with layers without `sparse_k`. With `alpha`
        1.5 or 2 both are alike.
        Raises `ValueError` for targets of another shape.
        """
        self._check(hidden)
        check_target_shape(hidden, target)
        target = as_targets(saveable(target), self.weight.shape[0])
        others = self._distributions(hidden, history)
        return from_rows(self._target_log_prob(as_rows(hidden), target.flatten(), others, sparse), hidden)

    def _target_log_prob(
        self, hidden: Tensor, target: Tensor, others: Sequence[Distribution | None], sparse: bool
    ) -> Tensor:
        if not self.has_zeros or not sparse:
            parts = replace(self._parts(), sparse_k=None, alpha=1.0)
            chosen, normalizers = self._target_scores(parts, hidden, target)
            return self._mixed_columns(target, others, chosen - normalizers, self._log_weights(hidden, others))
        return torch.cat(
            [
                self._row_log_prob(hidden[part], _rows(others, part)).gather(1, target[part, None])[:, 0]
                for part in self._parts_held(hidden.shape[0])
            ]
        )

    def _mixed_columns(
        self, target: Tensor, others: Sequence[Distribution | None], found: Tensor, log_weights: Tensor
    ) -> Tensor:
        """Return log-probabilities of targets `[N]` from those of the kernels, found `[N, kernels]`: `[N]`.

        Those found may be of targets outside the k best, which are finite in the loss (sparse paper, eq. 5).
        """
        return torch.logsumexp(log_weights + self._with_others(target, others, found), dim=-1)

    def _with_others(self, target: Tensor, others: Sequence[Distribution | None], found: Tensor) -> Tensor:
        """Return log-probabilities of targets from all components: `[N]`, those of the kernels -> `[N, K]`."""
        if not self.others:
            return found
        absent = torch.full_like(found[:, 0], -torch.inf)
        columns = [absent if each is None else each.target_log_prob(target) for each in others]
        return torch.cat([found, torch.stack(columns, dim=-1)], dim=-1)

    def _target_scores(self, parts: Components, hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if elementwise.is_transformed():
            return plain_target_scores(parts, hidden, parts.tensors(), target)[:2]
        return target_scores(parts, hidden, target)

    def loss(
        self,
        hidden: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "sum",
        label_smoothing: float | None = None,
        z_loss: float = 0.0,
        temperature: float = 1.0,
        angular_margin: float | None = None,
        cosine_margin: float | None = None,
        history: Context | None = None,
    ) -> Tensor:
        """Return the cross entropy with label smoothing and variance regularizer (eq. 14), never holding `[..., V]`.

        hidden `[..., d]`, target `[...]` -> scalar, or `[...]` with reduction `none`, where ignored positions have
        loss 0. Reduction `mean` divides by the number of targets that are not ignored, with class weights by the sum of
        theirs, and is 0 without any.

        Arguments are those of `torch.nn.functional.cross_entropy`, and

        * weight: `[V]`, of the classes; without a gradient;
        * label_smoothing: instead of the layer's;
        * z_loss: adds this times the square of the logarithm of the normalizer, the mean over components
          (Chowdhery et al. 2022, section 5);
        * temperature: divides each component's scores;
        * angular_margin, cosine_margin: instead of the layer's.

        target may be probabilities `[..., V]` instead, such as a teacher's; all positions count then.

        Raises `ValueError` for hidden states or targets of another shape or type, targets out of range, for target
        probabilities where the layer has components that are not kernels, and for margins where targets are
        probabilities or a kernel has no angle.
        """
        self._check(hidden)
        smoothing = self.label_smoothing if label_smoothing is None else label_smoothing
        check_loss(reduction, smoothing, z_loss, temperature)
        if self.others and target.is_floating_point():
            raise ValueError("target probabilities are possible with kernels alone")
        angular = self.angular_margin if angular_margin is None else angular_margin
        cosine = self.cosine_margin if cosine_margin is None else cosine_margin
        margin = checked_margin(self.components(), angular, cosine)
        if margin is not None and target.is_floating_point():
            raise ValueError("a margin needs targets that are classes, not probabilities")
        others = self._distributions(hidden, history, temperature)
        whole = not self.others and not self.component_dropout  # what the operator of compiled graphs can compute
        if torch.compiler.is_compiling() and not torch.compiler.is_exporting() and whole:
            options = (
                f'{{"ignore_index": {ignore_index}, "reduction": "{reduction}", "label_smoothing": {smoothing}, '
                f'"z_loss": {z_loss}, "temperature": {temperature}, '
                f'"angular_margin": {angular}, "cosine_margin": {cosine}}}'
            )
            parameters = [parameter for _, parameter in self.named_parameters()]
            return compiled_loss(self.constructor_arguments(), parameters, hidden, target, weight, options)
        terms = Terms(label_smoothing=smoothing, z_loss=z_loss, class_weights=self._class_weights(weight))
        parts = replace(self._parts(), temperature=temperature, margin=margin)
        if target.is_floating_point():
            losses = self._soft_losses(parts, hidden, target, terms)
            return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()
        check_target_shape(hidden, target)
        rows, targets, terms = self._counted(hidden, target, ignore_index, terms)
        if targets.shape[0] < target.numel():
            others = _rows(others, target.flatten() != ignore_index)
        if reduction == "none":
            losses = self._losses(parts, rows, targets, others, terms)
            whole = terms.kept is not None or len(losses) == target.numel()
            return losses.view(target.shape) if whole else _spread(losses, target != ignore_index)
        alone = len(self.kernels) == 1 and all(each is None for each in others)
        if alone and not elementwise.is_transformed():
            total = softmax_cross_entropy(parts, rows, targets, terms)
        elif smoothing or z_loss or self.has_zeros or elementwise.is_transformed():
            total = self._losses(parts, rows, targets, others, terms).sum()
        else:
            total = self._mixture_loss(parts, rows, targets, others, terms)
        if reduction == "sum":
            return total
        weights = terms.of_targets(targets)
        count = total.new_full((), len(targets)) if weights is None else weights.sum()
        return total / count.where(count != 0, 1.0)

    def _class_weights(self, weight: Tensor | None) -> Tensor | None:
        if weight is None:
            return None
        if weight.shape != self.weight.shape[:1]:
            raise ValueError(f"weight must be {list(self.weight.shape[:1])}, not {list(weight.shape)}")
        return at_least_float32(weight.detach()).to(self.weight.device)

    def _counted(self, hidden: Tensor, target: Tensor, ignore_index: int, terms: Terms) -> tuple[Tensor, Tensor, Terms]:
        """Return positions `[N, d]` and targets `[N]` without ignored ones, or with terms that count them 0 times."""
        rows, targets = saveable(as_rows(hidden)), saveable(target.flatten())
        kept, classes = targets != ignore_index, self.weight.shape[0]
        if not readable(targets):
            terms = replace(terms, kept=kept.to(at_least_float32(rows).dtype))
            return rows, as_targets(targets.masked_fill(~kept, 0), classes), terms
        if not bool(kept.all()):
            rows, targets = rows[kept], targets[kept]
        return rows, as_targets(targets, classes), terms

    def _mixture_loss(
        self,
        parts: Components,
        hidden: Tensor,
        target: Tensor,
        others: Sequence[Distribution | None],
        terms: Terms,
    ) -> Tensor:
        """Return the sum of `_losses`, without smoothing and z-loss, in one pass: `[N, d]`, `[N]` -> scalar."""
        log_weights = self._log_weights(hidden, others)
        joint = self._without_some(log_weights)
        joint = joint + self._with_others(target, others, joint.new_zeros(len(target), len(self.kernels)))
        total = mixture_cross_entropy(parts, hidden, target, joint, terms.of_targets(target))
        if self.num_components == 1 or not (self.variance_penalty or self.balance_penalty):
            return total
        penalties = self.penalties(log_weights.exp(), terms.kept)
        return total + (penalties if terms.kept is None else penalties * terms.kept).sum()

    def _losses(
        self,
        parts: Components,
        hidden: Tensor,
        target: Tensor,
        others: Sequence[Distribution | None],
        terms: Terms,
    ) -> Tensor:
        """Return the loss of each position: `[N, d]`, `[N]` -> `[N]`."""
        mean = None
        if terms.label_smoothing and (attention := self._copied_words(parts, others, terms)) is not None:
            chosen, normalizers, *scores = scores_of_classes(parts, hidden, target, attention.words)
            mean = self._mean_of_one_kernel(hidden, others, attention, normalizers, *scores)
        else:
            chosen, normalizers = self._target_scores(parts, hidden, target)
        kept, weights, smoothing = terms.kept, terms.of_targets(target), terms.label_smoothing
        log_weights = self._log_weights(hidden, others)
        remaining = self._without_some(log_weights)
        losses = -(1 - smoothing) * self._mixed_columns(target, others, chosen - normalizers, remaining)
        losses = losses if weights is None else losses * weights
        added = []
        if smoothing:
            mean = self._mean_log_prob(parts, hidden, target, others, terms) if mean is None else mean
            added.append(-smoothing * mean)
        if terms.z_loss:
            added.append(terms.z_loss * normalizers.square().mean(-1))
        if self.num_components > 1 and (self.variance_penalty or self.balance_penalty):
            added.append(self.penalties(log_weights.exp(), kept))
        for other in added:
            losses = losses + (other if kept is None else other * kept)
        return losses

    def _without_some(self, log_weights: Tensor) -> Tensor:
        """Return logarithms of weights in which some components are left out, in training mode: `[N, K]`."""
        if not self.component_dropout or not self.training:
            return log_weights
        left_out = torch.rand_like(log_weights) < self.component_dropout
        left_out &= ~(left_out | (log_weights == -torch.inf)).all(-1, keepdim=True)  # one remains
        return torch.log_softmax(log_weights.masked_fill(left_out, -torch.inf), dim=-1)

    def penalties(self, weights: Tensor, kept: Tensor | None = None) -> Tensor:
        """Return what `variance_penalty` and `balance_penalty` add to the loss of positions: `[N, K]` -> `[N]`.

        `kept` `[N]` is 0 for positions that do not count.
        """
        found = self.variance_penalty * (weights - 1 / self.num_components).square().mean(-1)
        if not self.balance_penalty:
            return found
        shares = weights.mean(0) if kept is None else (kept @ weights) / kept.sum().clamp_min(1)
        divergence = (shares * (shares * self.num_components).clamp_min(torch.finfo(shares.dtype).tiny).log()).sum()
        return found + self.balance_penalty * divergence

    def _soft_losses(self, parts: Components, hidden: Tensor, target: Tensor, terms: Terms) -> Tensor:
        """Return the loss of each position for probabilities: `[..., d]`, `[..., V]` -> `[...]`."""
        if target.shape != (wanted := (*hidden.shape[:-1], self.weight.shape[0])):
            raise ValueError(f"target probabilities must be {list(wanted)}, not {list(target.shape)}")
        smoothing = terms.label_smoothing

        def losses(hidden: Tensor, target: Tensor) -> Tensor:
            scores = self._scaled_scores(hidden, parts.temperature)
            log_prob = self._finite_log_prob(hidden, scores, [])
            wanted = (1 - smoothing) * target.to(log_prob.dtype) + smoothing / target.shape[-1]
            wanted = wanted if terms.class_weights is None else wanted * terms.class_weights
            found = -torch.where(wanted != 0, wanted * log_prob, 0.0).sum(-1)
            if terms.z_loss:
                squares = torch.stack([self.normalizer_of(score).square() for score in scores])
                found = found + terms.z_loss * squares.mean(0)
            return found

        found = self._chunked(losses, saveable(as_rows(hidden)), saveable(as_rows(target)))
        if self.num_components > 1 and (self.variance_penalty or self.balance_penalty):
            found = found + self.penalties(self._log_weights(as_rows(hidden), []).exp())
        return found.view(hidden.shape[:-1])

    def kl_divergence(
        self,
        hidden: Tensor,
        teacher: "GeneralizedSoftmax",
        teacher_hidden: Tensor,
        *,
        temperature: float = 1.0,
    ) -> Tensor:
        """Return `KL(teacher || layer)`, never holding `[..., V]`: `[..., d]`, the teacher's hidden states -> `[...]`.

        Both sides' scores are divided by the temperature; the teacher gets no gradient.
        """
        self._check(hidden)
        if teacher.weight.shape[0] != self.weight.shape[0] or teacher_hidden.shape[:-1] != hidden.shape[:-1]:
            raise ValueError(
                f"teacher and layer must have the same classes and positions, not {teacher.weight.shape[0]} and "
                f"{list(teacher_hidden.shape[:-1])} against {self.weight.shape[0]} and {list(hidden.shape[:-1])}"
            )

        def divergence(hidden: Tensor, teacher_hidden: Tensor) -> Tensor:
            with torch.no_grad():
                wanted = teacher.log_prob(teacher_hidden, temperature=temperature)
            difference = wanted - self.log_prob(hidden, temperature=temperature)
            return torch.where(wanted > -torch.inf, wanted.exp() * difference, 0.0).sum(-1)

        rows = saveable(as_rows(hidden)), saveable(as_rows(teacher_hidden.detach()))
        return from_rows(self._chunked(divergence, *rows)[:, None], hidden)[..., 0]

    def entropy(self, hidden: Tensor) -> Tensor:
        """Return the entropy of the distribution in nats, never holding `[..., V]`: `[..., d]` -> `[...]`.

        Components that read the history have the weight 0.
        """
        self._check(hidden)

        def entropy(hidden: Tensor) -> Tensor:
            log_prob = self.log_prob(hidden)
            return -torch.where(log_prob > -torch.inf, log_prob.exp() * log_prob, 0.0).sum(-1)

        return from_rows(self._chunked(entropy, saveable(as_rows(hidden)))[:, None], hidden)[..., 0]

    @torch.no_grad()
    def top_k(self, hidden: Tensor, k: int, *, history: Context | None = None) -> tuple[Tensor, Tensor]:
        """Return the k largest log-probabilities and their classes, without gradients: `[..., d]` -> 2 of `[..., k]`.

        Equal ones are ranked by the lower class. `[..., V]` is never held.
        """
        self._check(hidden)
        rows, others = as_rows(hidden), self._distributions(hidden, history)
        pieces = [
            best_classes(self._row_log_prob(rows[part], _rows(others, part)), k)
            for part in self._parts_held(rows.shape[0])
        ]
        values, classes = (torch.cat(found) for found in zip(*pieces, strict=True))
        return from_rows(values, hidden), from_rows(classes, hidden)

    def argmax(self, hidden: Tensor, *, history: Context | None = None) -> Tensor:
        """Return the most probable class: `[..., d]` -> `[...]`; see `top_k`."""
        return self.top_k(hidden, 1, history=history)[1][..., 0]

    @torch.no_grad()
    def sample(
        self,
        hidden: Tensor,
        *,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        history: Context | None = None,
    ) -> Tensor:
        """Draw a class of each distribution, never holding `[..., V]`: `[..., d]` -> `[...]`."""
        self._check(hidden)
        rows, others = as_rows(hidden), self._distributions(hidden, history, temperature)
        drawn = [
            torch.multinomial(
                self._row_log_prob(rows[part], _rows(others, part), temperature).exp(), 1, generator=generator
            )
            for part in self._parts_held(rows.shape[0])
        ]
        return from_rows(torch.cat(drawn), hidden)[..., 0]

    def _mean_log_prob(
        self,
        parts: Components,
        hidden: Tensor,
        target: Tensor,
        others: Sequence[Distribution | None],
        terms: Terms,
    ) -> Tensor:
        """Return the mean log-probability over classes, recomputed in the backward pass: `[N, d]`, `[N]` -> `[N]`."""

        def mean(hidden: Tensor, target: Tensor, rows: Tensor) -> Tensor:
            scores = self._scaled_scores(hidden, parts.temperature)
            if parts.margin is not None:
                own = replace(self._parts(), temperature=parts.temperature, margin=parts.margin)
                scores = plain_target_scores(own, hidden, own.tensors(), target)[2]
            found = _rows(others, rows)
            if terms.class_weights is None and (attention := self._few_words(found)) is not None:
                return self._mean_with_words(hidden, scores, found, attention)
            return terms.mean_class(self._finite_log_prob(hidden, scores, found))

        return self._chunked(mean, hidden, target, torch.arange(len(target), device=target.device))

    def _few_words(self, others: Sequence[Distribution | None]) -> Attention | None:
        """Return the only distribution other than those of kernels, where it is one over few words, else None."""
        given = [each for each in others if each is not None]
        if self.has_zeros or len(given) != 1 or not isinstance(given[0], Attention):
            return None
        few = given[0].words.shape[1] ** 2 <= self.weight.shape[0] * self.num_components
        return given[0] if few else None

    def _mean_with_words(
        self, hidden: Tensor, scores: list[Tensor], others: Sequence[Distribution | None], attention: Attention
    ) -> Tensor:
        """Return the mean log-probability over classes, mixing only those that are words of a context: `[N]`.

        The kernels alone give the others' log-probabilities. Of a word at several places, each adds its part.
        """
        kernels, ((log_weight, _),) = self._split(hidden, scores, others)
        return self._mean_with_gains(kernels.mean(-1), kernels.gather(1, attention.words), log_weight, attention)

    def _copied_words(self, parts: Components, others: Sequence[Distribution | None], terms: Terms) -> Attention | None:
        """Return the distribution over few words that is mixed with a single kernel, None in other layers."""
        plain = terms.class_weights is None and parts.margin is None and not elementwise.is_transformed()
        return self._few_words(others) if plain and len(self.kernels) == 1 else None

    def _mean_of_one_kernel(
        self,
        hidden: Tensor,
        others: Sequence[Distribution | None],
        attention: Attention,
        normalizers: Tensor,
        means: Tensor,
        further: Tensor,
    ) -> Tensor:
        """Return `_mean_with_words` from what `scores_of_classes` returns: `[N]`."""
        log_weights = self._log_weights(hidden, others)
        shift = (log_weights[:, :1] - normalizers)[:, 0]
        place = 1 + next(number for number, each in enumerate(others) if each is not None)
        found = further[:, 0] + shift[:, None]
        return self._mean_with_gains(means[:, 0] + shift, found, log_weights[:, place], attention)

    def _mean_with_gains(self, mean: Tensor, found: Tensor, log_weight: Tensor, attention: Attention) -> Tensor:
        """Return the mean log-probability over classes from that of the kernels, `[N]`.

        found are the log-probabilities that the kernels give to the attention's words, `[N, E]`; weights are included.
        """
        totals, counts = attention.by_word()
        seen = counts > 0
        odds = log_weight[:, None] + totals.masked_fill(~seen, 0.0) - found
        gains = functional.softplus(odds).masked_fill(~seen, 0.0) / counts.clamp_min(1)
        return mean + gains.sum(-1) / self.weight.shape[0]

    def _chunked(self, function: Callable[..., Tensor], hidden: Tensor, *others: Tensor) -> Tensor:
        """Return a function of positions `[n, d]`, computed for some at a time, and again in the backward pass."""

        # The backward pass takes the parameters of this moment, which `torch.func.functional_call` may have given.
        own = dict(self.named_parameters())

        def plain(*tensors: Tensor) -> Tensor:
            with elementwise.plain_formulas():  # which have second derivatives
                found: Tensor = with_parameters(self, own, function, *tensors)
                return found

        if elementwise.is_transformed():
            return plain(hidden, *others)
        pieces = zip(*(tensor.split(self._rows_held()) for tensor in (hidden, *others)), strict=True)
        return torch.cat([checkpoint(plain, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces])

    def _scaled_scores(self, hidden: Tensor, temperature: float) -> list[Tensor]:
        scores = self.scores(hidden)
        return scores if temperature == 1.0 else [score / temperature for score in scores]

    def _finite_log_prob(self, hidden: Tensor, scores: list[Tensor], others: Sequence[Distribution | None]) -> Tensor:
        """Return minus the loss of each class as a target, finite (sparse paper, eq. 5): `[N, d]` -> `[N, V]`."""
        if not self.has_zeros:
            return self._mixed(hidden, scores, others)
        joint = [score - self.normalizer_of(score)[:, None] for score in scores]
        return torch.logsumexp(torch.stack(self._joint(hidden, joint, others)), dim=0)

    def _rows_held(self) -> int:
        """Return the number of positions whose distributions are held at a time."""
        return max(1, (self.chunk_scores or _HELD_SCORES) // (self.weight.shape[0] * self.num_components))

    def _parts_held(self, count: int) -> list[slice]:
        """Return the positions in parts of `_rows_held`, at least one part."""
        rows = self._rows_held()
        return [slice(first, first + rows) for first in range(0, max(count, 1), rows)]

    def _parts(self) -> Components:
        return Components(
            kernels=self.components(),
            weights=self.class_weights(),
            projections=self.projections if len(self.kernels) > 1 else None,
            bias=self.bias,
            sparse_k=self.sparse_k,
            alpha=self.alpha,
            softcap=self.softcap,
            chunk_scores=self.chunk_scores,
        )


def _rows(others: Sequence[Distribution | None], chosen: Tensor | slice) -> list[Distribution | None]:
    """Return the distributions of some positions."""
    return [None if each is None else each.rows(chosen) for each in others]


def _sum(parts: Tensor) -> Tensor:
    """Return the sum over the first axis: `[K, N, V]` -> `[N, V]`."""
    if not torch.compiler.is_exporting():
        return parts.sum(0)
    # ONNX Runtime multiplies faster than it adds along this axis; autocast, which is off here, would do so in half.
    return (parts.new_ones(1, parts.shape[0]) @ parts.flatten(1)).view_as(parts[0])


@builds_layers
@functools.lru_cache(maxsize=32)
def _from_arguments(arguments: str) -> GeneralizedSoftmax:
    return GeneralizedSoftmax(**json.loads(arguments), device="meta")


def _spread(losses: Tensor, kept: Tensor) -> Tensor:
    """Return losses of the positions that are kept, 0 elsewhere: `[n]`, `[...]` -> `[...]`."""
    return losses.new_zeros(kept.shape).masked_scatter(kept, losses)
