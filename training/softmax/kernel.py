"""The base class of kernels: a function of inner products and per-class and per-position terms.

Shapes: `N` positions, `V` classes (words), `d` hidden size.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import elementwise
from .device import native_half
from .margin import Margin

__all__ = [
    "Block",
    "BoundKernel",
    "Kernel",
    "Statistics",
    "as_rows",
    "at_least_float32",
    "check_hidden",
    "from_rows",
    "is_positive_integer",
    "origin_of",
    "product_type",
    "readable",
    "saveable",
    "squared_distance",
    "squared_norm",
    "with_parameters",
]

Statistics = tuple[Tensor, ...]
Block = tuple[slice, slice]
"""Columns of the context vector and columns of the word vector that one inner product multiplies."""


def is_positive_integer(value: object) -> bool:
    """Return whether a value is an integer above 0; `True` is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def at_least_float32(values: Tensor) -> Tensor:
    """Widen half precision: matrix products may run in it, sums and differences of their results must not."""
    return values.float() if _is_half(values.dtype) else values


def _is_half(kind: torch.dtype) -> bool:
    return kind in (torch.float16, torch.bfloat16)


def autocasts(values: Tensor) -> bool:
    """Return whether products of values are computed in the type of `torch.autocast`."""
    kind = values.device.type
    return values.dtype == torch.float32 and kind != "meta" and torch.is_autocast_enabled(kind)


def product_type(weight: Tensor) -> torch.dtype:
    """Return the type that inner products with word vectors are computed in: that of autocast or their own.

    It is float32 where a CPU only emulates half precision, which takes several times as long and is less exact.
    """
    kind = torch.get_autocast_dtype(weight.device.type) if autocasts(weight) else weight.dtype
    emulated = weight.device.type == "cpu" and _is_half(kind) and not native_half(kind)
    return torch.float32 if emulated else kind


def saveable(values: Tensor) -> Tensor:
    """Return values that autograd can save for a backward pass: a copy of a tensor that was made in inference mode.

    Without gradients nothing is saved, and the tensor itself is returned.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return values
    return values.clone() if values.is_inference() else values


def check_hidden(weight: Tensor, hidden: Tensor, hidden_size: int | None = None) -> None:
    """Raise `ValueError` unless word vectors `[V, d]` and context vectors `[..., d]` suit each other.

    They must have the same size, which is `hidden_size` if given, and outside of autocast the same type of numbers.
    """
    size = weight.shape[-1] if hidden_size is None else hidden_size
    if weight.shape[-1] != size:
        raise ValueError(f"the projection matrix is {list(weight.shape)}, the hidden size of the layer {size}")
    if hidden.dim() == 0 or hidden.shape[-1] != size:
        raise ValueError(
            f"hidden must be [..., {size}], as the projection matrix {list(weight.shape)} is, not {list(hidden.shape)}"
        )
    if hidden.dtype != weight.dtype and not torch.is_autocast_enabled(weight.device.type):
        raise ValueError(
            f"hidden is {hidden.dtype}, the projection matrix {weight.dtype}: convert one of them, or "
            "compute under torch.autocast"
        )


def readable(values: Tensor) -> bool:
    """Return whether Python may look at values: on other devices it would wait for them, in a transformation it can't.

    Where it may not, out-of-range targets are refused by the device, as those of `torch.nn.functional.cross_entropy`.
    """
    traced = torch.compiler.is_compiling() or elementwise.is_transformed()
    return values.device.type == "cpu" and not traced


def as_rows(values: Tensor) -> Tensor:
    """Return vectors with any leading dimensions as rows: `[..., d]` -> `[N, d]`."""
    # In an exported graph, the usual `[N, d]` must not become a reshape.
    return values if values.dim() == 2 else values.reshape(-1, values.shape[-1])


def from_rows(rows: Tensor, like: Tensor) -> Tensor:
    """Return results of `as_rows(like)` with its leading dimensions: `[N, ...]`, `[..., d]` -> `[..., ...]`."""
    return rows if like.dim() == 2 else rows.reshape((*like.shape[:-1], *rows.shape[1:]))


def squared_norm(vectors: Tensor) -> Tensor:
    """Return `||x||^2` of each row: `[M, e]` -> `[M]`."""
    if elementwise.overwrites() and vectors.requires_grad:
        return elementwise.squared_norm(vectors)
    return (vectors * vectors).sum(-1)


def squared_distance(product: Tensor, class_norm: Tensor, position_norm: Tensor) -> Tensor:
    """Return `||W_v - h||^2` by the Gram identity (eq. 13) from `-2 W_v . h`: `[N, V]`, `[V]`, `[N]` -> `[N, V]`.

    Clamped at 0, because rounding makes it slightly negative.
    """
    return (class_norm + position_norm[..., None] + product).clamp_min(0.0)


def _without_autocast(values: Tensor) -> contextlib.AbstractContextManager[object]:
    return torch.autocast(values.device.type, enabled=False) if autocasts(values) else contextlib.nullcontext()


def origin_of(kernel: "Kernel", weight: Tensor) -> Tensor | None:
    """Return `kernel.origin(weight)` if half precision is involved, which loses what vectors have in common."""
    return kernel.origin(weight.detach()) if _is_half(weight.dtype) or autocasts(weight) else None


def _softplus_inverse(value: float) -> float:
    return value + math.log(-math.expm1(-value))


class Kernel(nn.Module):
    """Compute scores `[V, d] x [N, d] -> [N, V]`; see `build_kernel` for construction by name.

    Hyperparameters are numbers, or with `learnable=True` parameters that softplus keeps positive.

    A kernel of your own is a subclass that overrides `score`, for hyperparameters `defaults`, and for per-class and
    per-position terms `class_statistics`; autograd differentiates it. A recipe names it `package.module:ClassName`.
    """

    __call__: Callable[..., Tensor]
    name: ClassVar[str]
    """Its name in recipes and manifests; a subclass that sets none is named `package.module:ClassName`."""
    fused: ClassVar[bool] = False
    """Whether autograd keeps no result of `score`, whose memory may then be reused (`training.softmax.elementwise`)."""
    defaults: ClassVar[Mapping[str, Callable[[int], float]]] = {}
    """Real-valued hyperparameters, all positive, and their default for a hidden size."""
    class_defaults: ClassVar[Mapping[str, Callable[[int], float]]] = {}
    """Those of them that have another default where the number of classes is known, and that default."""
    has_angle: ClassVar[bool] = False
    """Whether scores are those of cosines, so that `with_margin` is possible."""
    has_exponentials: ClassVar[bool] = False
    """Whether there are `exponentials`, which cost less than scores and their exponentials."""
    learns_in_score: ClassVar[bool] = True
    """Whether `score` takes hyperparameters, which may be learnt."""
    _values: dict[str, float | None]

    def __init_subclass__(cls, *, fused: bool = False, **others: Any) -> None:
        """Give a subclass, which computes something else than its parent, neither its name nor its fused functions."""
        super().__init_subclass__(**others)
        cls.name = vars(cls).get("name", f"{cls.__module__}:{cls.__qualname__}")
        cls.fused = fused
        cls.has_exponentials = vars(cls).get("has_exponentials", False)

    def __init__(
        self,
        *,
        learnable: bool = False,
        hidden_size: int | None = None,
        num_classes: int | None = None,
        **hyperparameters: float | None,
    ) -> None:
        super().__init__()
        self.learnable = learnable
        self._values = {}
        if learnable and not self.defaults:
            raise ValueError(f"learnable: kernel {self.name!r} has no real-valued hyperparameter")
        for name, default in self.defaults.items():
            value = hyperparameters.get(name)
            if value is None and num_classes is not None and name in self.class_defaults:
                value = self.class_defaults[name](num_classes)
            elif value is None and hidden_size is not None:
                value = default(hidden_size)
            self._values[name] = None if value is None else self._positive(name, value)
            if learnable:
                setattr(self, f"raw_{name}", self._raw(name))

    def _positive(self, name: str, value: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{name} of kernel {self.name!r} must be a positive finite number, not {value!r}")
        return float(value)

    def _raw(self, name: str) -> nn.Parameter:
        value = self._values[name]
        if value is None:
            raise ValueError(f"{name} of kernel {self.name!r} needs a value, or hidden_size, to be learnt from there")
        return nn.Parameter(torch.tensor([_softplus_inverse(value)]))

    def reset_parameters(self) -> None:
        """Set learnt hyperparameters to their first values."""
        if self.learnable:
            for name in self.defaults:
                value = self._values[name]
                assert value is not None  # checked by _raw
                nn.init.constant_(getattr(self, f"raw_{name}"), _softplus_inverse(value))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Accept hyperparameters as numbers, as states of earlier versions have them."""
        for name in self.defaults if self.learnable else ():
            value = state_dict.get(key := f"{prefix}raw_{name}")
            if isinstance(value, Tensor) and value.dim() == 0:
                state_dict[key] = value[None]
        super()._load_from_state_dict(state_dict, prefix, *others)

    def value(self, name: str, hidden_size: int) -> float | Tensor:
        """Return a real-valued hyperparameter: a number, or a scalar tensor where it is learnt."""
        if self.learnable:
            return functional.softplus(saveable(getattr(self, f"raw_{name}")))[0]
        value = self._values[name]
        return self.defaults[name](hidden_size) if value is None else value

    def number(self, name: str, hidden_size: int) -> float:
        """Return a real-valued hyperparameter that is not learnt."""
        value = self.value(name, hidden_size)
        assert not isinstance(value, Tensor)
        return value

    def differentiates_fast(self) -> bool:
        """Return whether `score` takes a function of `training.softmax.elementwise` instead of the plain formula."""
        learns = self.learnable and self.learns_in_score
        if not self.fused or learns or elementwise.takes_plain_formulas():
            return False
        return torch.is_grad_enabled() or elementwise.overwrites()

    @property
    def hyperparameters(self) -> dict[str, float]:
        """Return the current values, without those that still depend on the hidden size."""
        known = {name: value for name, value in self._values.items() if value is not None}
        if not self.learnable:
            return known
        return {name: float(torch.as_tensor(self.value(name, 0)).detach()) for name in known}

    def initialize(self, weight: Tensor) -> None:
        """Change new word vectors `[V, d]`, drawn from a normal distribution, in place; by default nothing is."""

    def blocks(self, hidden_size: int) -> Sequence[Block]:
        """Return the columns of each inner product that `score` needs; by default one, of whole vectors."""
        return [(slice(0, hidden_size), slice(0, hidden_size))]

    def origin(self, weight: Tensor) -> Tensor | None:
        """Return a vector `[d]` which subtracted from all word and context vectors changes no score, None without one.

        It is near the word vectors `[V, d]`: in half precision, differences from it are more exact than the vectors.
        """
        return None

    def position_vectors(self, hidden: Tensor) -> Tensor:
        """Return the vectors that are multiplied with word vectors: context vectors `[N, d]` -> `[N, d]`."""
        return hidden

    def class_statistics(self, weight: Tensor) -> Statistics:
        """Return the per-class terms that `score` needs, such as norms: `[V, d]`, at least float32 -> some `[V]`.

        Each class must be computed from its own row alone: training passes some rows at a time, the export all rows in
        float64 once.
        """
        return ()

    def position_statistics(self, hidden: Tensor) -> Statistics:
        """Return the per-position terms, by default the same functions: `[N, d]`, at least float32 -> some `[N]`."""
        return self.class_statistics(hidden)

    def score(self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int) -> Tensor:
        """Return scores `[N, V]` from inner products `[N, V]` and per-class and per-position terms, at least float32.

        products: one `[N, V]` for each of `blocks`. classes and positions: what `class_statistics` `[V]` and
        `position_statistics` `[N]` return. A score depends on its own class and position alone, since training passes
        some positions at a time. Arguments must not be changed in place.
        """
        raise NotImplementedError(f"{type(self).__name__} does not override score")

    def exponentials(
        self, products: Sequence[Tensor], classes: Statistics, positions: Statistics, hidden_size: int
    ) -> Tensor:
        """Return `exp(score)`, at most 1, where the kernel `differentiates_fast`; the incoming gradient is the score's.

        Softmax needs no largest score then, and no exponential.
        """
        raise NotImplementedError(f"{type(self).__name__} does not override exponentials")

    def with_margin(self, scores: Tensor, margin: Margin, hidden_size: int) -> Tensor:
        """Return scores of targets with a margin: `[...]` -> `[...]`."""
        raise NotImplementedError(f"kernel {self.name!r} has no angle")

    def forward(self, weight: Tensor, hidden: Tensor) -> Tensor:
        """Return scores: weight `[V, d]`, hidden `[..., d]` -> `[..., V]`, float32 for half-precision inputs."""
        check_hidden(weight, hidden)
        size, rows, kind = weight.shape[1], as_rows(saveable(hidden)), product_type(weight)
        weight, origin = saveable(weight), origin_of(self, weight)
        if origin is not None:
            weight, rows = at_least_float32(weight) - origin, at_least_float32(rows) - origin
        vectors, factors = self.position_vectors(rows), weight
        if factors.dtype != kind:
            factors = factors.to(kind)
        if vectors.dtype != kind:
            vectors = vectors.to(kind)
        with _without_autocast(weight):
            products = [at_least_float32(vectors[:, left] @ factors[:, right].t()) for left, right in self.blocks(size)]
        classes = self.class_statistics(at_least_float32(weight))
        positions = self.position_statistics(at_least_float32(rows))
        return from_rows(at_least_float32(self.score(products, classes, positions, size)), hidden)

    def pair_scores(self, weight: Tensor, hidden: Tensor) -> Tensor:
        """Return the scores of some classes for each position: weight `[N, C, d]`, hidden `[N, d]` -> `[N, C]`."""
        with elementwise.plain_formulas():
            scores: Tensor = torch.vmap(lambda rows, vector: self(rows, vector[None])[0])(weight, hidden)
        return scores

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value:g}" for key, value in self.hyperparameters.items())


class _Caller(nn.Module):
    """Call a function, so that `torch.func.functional_call` can do it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


def with_parameters(
    module: nn.Module, values: Mapping[str, Tensor], function: Callable[..., Any], *arguments: Any
) -> Any:
    """Return the result of a function that uses a module, whose parameters are `values`, by their names, meanwhile."""
    given = {f"module.{name}": value for name, value in values.items()}
    return torch.func.functional_call(_Caller(module), given, (function, *arguments))


class BoundKernel:
    """Methods of a kernel, computed with given values of its parameters, in their order, instead of its own.

    A backward pass needs those of its forward pass, where `torch.func.functional_call` gave the kernel others.
    """

    def __init__(self, kernel: Kernel, values: Sequence[Tensor]) -> None:
        self.kernel = kernel
        self._values = dict(zip(dict(kernel.named_parameters()), values, strict=True))

    def __call__(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method."""
        function = getattr(self.kernel, method)
        if not self._values:
            return function(*arguments)
        return with_parameters(self.kernel, self._values, function, *arguments)
