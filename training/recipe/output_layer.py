"""The recipe's section `output_layer`."""

import math
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from training.settings import Fraction, Settings
from training.softmax.alpha_entmax import check_alpha
from training.softmax.components import Component, build_component
from training.softmax.kernel import is_positive_integer
from training.softmax.kernels import build_kernel
from training.softmax.mixture import GeneralizedSoftmax, checked_margin, parse_components, parse_kernels

__all__ = ["OutputLayerSettings"]


class OutputLayerSettings(Settings):
    """The softmax layer; see `training.softmax.GeneralizedSoftmax`."""

    kernels: str | list[str | dict[str, Any]] = "lin"
    """Such as `lin`, `3*lin, log`, `package.module:ClassName`, or a list of names and mappings with hyperparameters; in
    language models also `cache`, `pointer` and `unigram` behind the kernels, in translation models `copy`."""
    untied: Literal["full"] | int | None = None
    """Projection matrices of a mixture: shared (null), one for each component (`full`), or corrections of this rank."""
    bias: bool = False
    """Whether each class has a learnt number that is added to its score; in language models it starts at the logarithm
    of the word's frequency."""
    sparse_k: int | None = None
    """Top-k classes of each component that get a probability (sparse paper); all classes without it."""
    alpha: float = 1.0
    """1 is softmax, 1.5 entmax and 2 sparsemax (Peters et al. 2019), in which classes have probability 0 below a
    threshold that follows from the scores; with one kernel, without `sparse_k`."""
    label_smoothing: Fraction = 0.0
    """Fraction of each target that is spread over all classes, in training only."""
    angular_margin: Annotated[float, Field(ge=0, lt=math.pi / 2)] = 0.0
    """Radians that are added to the angle between hidden state and target, in the loss of classifiers with the kernel
    `cos` alone (ArcFace); 0.5 is usual for faces."""
    cosine_margin: Annotated[float, Field(ge=0, lt=2)] = 0.0
    """Number that is subtracted from the cosine of that angle (CosFace); 0.35 is usual for faces."""
    variance_penalty: Annotated[float, Field(ge=0)] = 0.0
    """rho of the mixture regularizer (kernel paper, eq. 14); it has no effect on a single kernel."""
    balance_penalty: Annotated[float, Field(ge=0)] = 0.0
    """Factor of the divergence of a mixture's mean weights over a batch from equal ones, which is added to the loss:
    all components are used, but not at each position."""
    component_dropout: Fraction = 0.0
    """Probability of leaving a component of a mixture out of the loss of a position, in training only."""

    def _ineffective(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if len(parse_kernels(self.kernels)) == 1:
            yield ("variance_penalty", "balance_penalty", "component_dropout"), "on a single kernel"

    def build(self, num_classes: int, hidden_size: int, *, softcap: float | None = None) -> GeneralizedSoftmax:
        """Return the layer with new parameters; warns where `sparse_k` has no effect on so few classes.

        `softcap` is the bound of its scores; see `GeneralizedSoftmax`.
        """
        if self.sparse_k is not None and self.sparse_k >= num_classes:
            warnings.warn(f"sparse_k = {self.sparse_k} has no effect on {num_classes} classes", stacklevel=2)
        return GeneralizedSoftmax(num_classes, hidden_size, softcap=softcap, **self.model_dump())

    @field_validator("kernels")
    @classmethod
    def _known_kernels(cls, value: str | list[str | dict[str, Any]]) -> str | list[str | dict[str, Any]]:
        kernels, others = parse_components(value)
        for spec in kernels:
            build_kernel(**{"hidden_size": 1, **spec})  # the layer gives its own
        for spec in others:
            build_component(num_classes=1, hidden_size=1, **spec)
        return value

    @field_validator("alpha")
    @classmethod
    def _known_alpha(cls, value: float) -> float:
        check_alpha(value)
        return value

    def other_components(self) -> list[Component]:
        """Return components that are not kernels, of the least sizes."""
        return [build_component(num_classes=1, hidden_size=1, **spec) for spec in parse_components(self.kernels)[1]]

    @property
    def margin(self) -> str | None:
        """Return the name of a margin of the loss, None without one."""
        return next((name for name in ("angular_margin", "cosine_margin") if getattr(self, name)), None)

    @model_validator(mode="after")
    def _angles(self) -> Self:
        kernels = [build_kernel(**{"hidden_size": 1, **spec}) for spec in parse_components(self.kernels)[0]]
        checked_margin(kernels, self.angular_margin, self.cosine_margin)
        return self

    @model_validator(mode="after")
    def _one_distribution(self) -> Self:
        if self.alpha != 1.0 and (self.sparse_k is not None or len(parse_kernels(self.kernels)) > 1):
            raise ValueError(f"alpha: {self.alpha} takes one kernel, without sparse_k")
        return self

    @field_validator("untied", mode="before")
    @classmethod
    def _known_untied(cls, value: object, others: ValidationInfo) -> object:
        if value not in (None, "full") and not is_positive_integer(value):
            raise ValueError(f'untied must be null, "full" or a positive rank, not {value!r}')
        if value is not None and "kernels" in others.data and len(parse_components(others.data["kernels"])[0]) == 1:
            raise ValueError("untied has no effect with a single kernel, which shares its matrix with no other")
        return value

    @field_validator("sparse_k", mode="before")
    @classmethod
    def _known_sparse_k(cls, value: object) -> object:
        if value is not None and not is_positive_integer(value):
            raise ValueError(f"sparse_k must be null or a positive integer, not {value!r}")
        return value
