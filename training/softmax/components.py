"""Mixture components that are not kernels: distributions over classes that may depend on the context of a position.

Shapes: `B` texts, `T` positions of each, `N = B T` positions, `E` words of the history, `S` tokens of the source, `V`
classes (words), `d` hidden size.

A kernel's distribution follows from the hidden state and the class vectors alone. That of a `Component` may follow from
anything in the context: the words just read and the hidden states they were read with (`History`), or the source that a
text is written from (`Source`). A component returns its distribution in a form of its own: `Attention` holds the
weights of the context's words instead of `[N, V]`. All computations are in log space.
"""

import abc
import math
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from .kernel import at_least_float32, is_positive_integer, saveable

__all__ = [
    "COMPONENTS",
    "Attention",
    "Cache",
    "Component",
    "Context",
    "Copy",
    "Distribution",
    "History",
    "Memory",
    "Pointer",
    "Source",
    "Unigram",
    "build_component",
    "component_class",
]


@dataclass(frozen=True, slots=True)
class History:
    """The words before each position, with the hidden states that they were predicted from and that followed them."""

    words: Tensor
    """`[B, E]`, in the order of the text."""
    states: Tensor
    """`[B, E + 1, d]`: number e is the hidden state before word e was read, number e + 1 the one after it."""
    visible: Tensor
    """`[B, T, E]`: whether a word comes before a position, in its text."""

    def check(self, hidden: Tensor) -> None:
        """Raise `ValueError` unless the history is that of hidden states `[B, T, d]`."""
        batch, steps, size = _text_shape(hidden, "history")
        count = self.words.shape[-1]
        _check_shapes(
            hidden,
            {
                "history.words": (self.words, (batch, count)),
                "history.states": (self.states, (batch, count + 1, size)),
                "history.visible": (self.visible, (batch, steps, count)),
            },
        )

    def at(self, positions: Tensor) -> Self:
        """Return the history of one position of each text: positions `[B]`."""
        texts = torch.arange(positions.shape[0], device=positions.device)
        return replace(self, visible=self.visible[texts, positions][:, None])

    def last(self, window: int | None) -> Tensor:
        """Return which of the last `window` visible words each position sees, all without it: `[B, T, E]`."""
        if window is None:
            return self.visible
        later = self.visible.flip(-1).cumsum(-1).flip(-1)  # visible words from this one on
        return self.visible & (later <= window)


@dataclass(frozen=True, slots=True)
class Source:
    """The source that each text is written from, such as the sentence that is translated; all positions see it."""

    words: Tensor
    """`[B, S]`, classes of the output layer."""
    states: Tensor
    """`[B, S, d]`: the encoder's outputs."""
    visible: Tensor
    """`[B, S]`: whether a token is one of the source, not padding."""

    def check(self, hidden: Tensor) -> None:
        """Raise `ValueError` unless the source is that of hidden states `[B, T, d]`."""
        batch, _, size = _text_shape(hidden, "source")
        count = self.words.shape[-1]
        _check_shapes(
            hidden,
            {
                "source.words": (self.words, (batch, count)),
                "source.states": (self.states, (batch, count, size)),
                "source.visible": (self.visible, (batch, count)),
            },
        )

    def first_places(self) -> Tensor:
        """Return for each token the first position with the same one: `[B, S]`."""
        places = torch.arange(self.words.shape[1], device=self.words.device)
        same = self.words[:, :, None] == self.words[:, None]
        return torch.where(same, places, self.words.shape[1]).amin(-1)


Context = History | Source
"""What components may read in addition to the hidden state of a position."""


def _text_shape(hidden: Tensor, context: str) -> tuple[int, int, int]:
    """Return B, T and d; raises `ValueError` for hidden states of another number of dimensions."""
    if hidden.dim() != 3:
        raise ValueError(f"hidden must be [B, T, d] where there is a {context}, not {list(hidden.shape)}")
    batch, steps, size = hidden.shape
    return batch, steps, size


def _check_shapes(hidden: Tensor, tensors: Mapping[str, tuple[Tensor, tuple[int, ...]]]) -> None:
    for name, (tensor, shape) in tensors.items():
        if (found := tuple(tensor.shape)) != shape:
            raise ValueError(f"{name} must be {list(shape)} for hidden {list(hidden.shape)}, not {found}")


@dataclass(frozen=True, slots=True)
class Memory:
    """The last words of each text, and the hidden states before them, which the next batch's history begins with."""

    words: Tensor
    """`[B, M]`, negative where there is none."""
    states: Tensor
    """`[B, M, d]`, without a gradient."""

    @classmethod
    def empty(cls, hidden: Tensor) -> Self:
        """Return a memory without words for hidden states `[B, T, d]`."""
        return cls(
            hidden.new_zeros(len(hidden), 0, dtype=torch.long), hidden.new_zeros(len(hidden), 0, hidden.shape[2])
        )

    def read(self, hidden: Tensor, words: Tensor, window: int | None) -> tuple[History, Self]:
        """Return the history of positions whose next words are known, and the memory of `window` words after them.

        hidden `[B, T, d]`, words `[B, T]`, the targets: a negative one, where a text is padded, is in no history. A
        position sees the words before its own. Without `window` all words are kept.
        """
        history, everything = self.history(hidden, words[:, :-1]), torch.cat([self.words, words], dim=1)
        first = 0 if window is None else max(0, everything.shape[1] - window)
        return history, replace(self, words=everything[:, first:], states=history.states[:, first:].detach())

    def history(self, hidden: Tensor, words: Tensor) -> History:
        """Return the history of positions: hidden `[B, T, d]`, words `[B, T - 1]` behind all of them but the last."""
        kept, steps = self.words.shape[1], hidden.shape[1]
        everything = torch.cat([self.words, words], dim=1)
        states = torch.cat([self.states.to(hidden.dtype), hidden], dim=1)
        places = torch.arange(kept + steps - 1, device=hidden.device)
        before = places < kept + torch.arange(steps, device=hidden.device)[:, None]
        return History(everything.clamp_min(0), states, before & (everything >= 0)[:, None])


class Distribution(Protocol):
    """The distributions of a component at N positions."""

    @property
    def log_mass(self) -> Tensor:
        """Return the summand of the logit of the component's weight, minus infinity without a distribution: `[N]`."""

    def log_prob(self, num_classes: int) -> Tensor:
        """Return the log-probability of every class, minus infinity where it is 0: `[N, V]`."""

    def target_log_prob(self, target: Tensor) -> Tensor:
        """Return the log-probability of one class a position, never holding `[N, V]`: `[N]` -> `[N]`."""

    def rows(self, chosen: Tensor | slice) -> Self:
        """Return the distributions of some positions."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Distributions over the words of a context: the probability of a class is the sum over the places of its word."""

    log_weights: Tensor
    """`[N, E]`: of each place, minus infinity where it is not seen."""
    words: Tensor
    """`[N, E]`"""
    log_mass: Tensor
    """`[N]`"""

    @classmethod
    def of_scores(cls, scores: Tensor, context: Context, seen: Tensor, log_mass: Tensor | None = None) -> Self:
        """Return the softmax of scores over the places seen: `[B, T, E]` each; log_mass `[B, T]` is 0 by default.

        A position that sees no word has the log mass minus infinity.
        """
        masked = scores.masked_fill(~seen, -torch.inf).flatten(0, 1)
        empty = ~seen.any(-1).flatten()
        # The softmax over no place would be NaN, and so would be its gradient.
        log_weights = torch.log_softmax(masked.masked_fill(empty[:, None], 0.0), dim=-1)
        log_weights = log_weights.masked_fill(~seen.flatten(0, 1), -torch.inf)
        mass = log_weights.new_zeros(log_weights.shape[0]) if log_mass is None else log_mass.flatten()
        words = context.words[:, None].expand(seen.shape).flatten(0, 1)
        return cls(log_weights, words, mass.masked_fill(empty, -torch.inf))

    @classmethod
    def pointing(cls, scores: Tensor, context: Context, seen: Tensor, temperature: float) -> Self:
        """Return the softmax of scores / temperature, with the mean of exp(score) over the places seen as mass.

        scores and seen `[B, T, E]`.
        """
        count = seen.sum(-1)
        # Of a position that sees no word, any finite values: it has no mass, whatever they are.
        masked = scores.masked_fill(~(seen | (count == 0)[..., None]), -torch.inf)
        log_mass = torch.logsumexp(masked, dim=-1) - count.clamp_min(1).log() if masked.shape[-1] else None
        return cls.of_scores(scores / temperature, context, seen, log_mass)

    def log_prob(self, num_classes: int) -> Tensor:
        shape = (self.words.shape[0], num_classes)
        largest = self.log_weights.new_full(shape, -torch.inf)
        largest = largest.scatter_reduce(1, self.words, self.log_weights.detach(), "amax")
        absent = largest == -torch.inf
        shift = largest.masked_fill(absent, 0.0)
        total = self.log_weights.new_zeros(shape)
        total = total.scatter_add(1, self.words, (self.log_weights - shift.gather(1, self.words)).exp())
        return (total.masked_fill(absent, 1.0).log() + shift).masked_fill(absent, -torch.inf)

    def target_log_prob(self, target: Tensor) -> Tensor:
        if not self.words.shape[1]:
            return torch.full_like(self.log_mass, -torch.inf)
        found = (self.words == target[:, None]) & (self.log_weights > -torch.inf)
        absent = ~found.any(-1)
        chosen = self.log_weights.masked_fill(~(found | absent[:, None]), -torch.inf)
        # Where the target is absent, any finite values: the logarithm of no place would have the gradient NaN.
        return torch.logsumexp(chosen.masked_fill(absent[:, None], 0.0), dim=-1).masked_fill(absent, -torch.inf)

    def by_word(self) -> tuple[Tensor, Tensor]:
        """Return for each place the log-probability of its word and the places of that: two of `[N, E]`.

        A place that is not seen has the log-probability minus infinity and the number 0. Holds `[N, E, E]`.
        """
        seen = self.log_weights > -torch.inf
        same = (self.words[:, :, None] == self.words[:, None]) & (seen[:, :, None] & seen[:, None])
        # Of a place that is not seen, any finite values: the softmax over no place would have the gradient NaN.
        finite = self.log_weights.masked_fill(~seen, 0.0)[:, None]
        total = torch.logsumexp(finite.masked_fill(~same & seen[:, :, None], -torch.inf), dim=-1)
        return total.masked_fill(~seen, -torch.inf), same.sum(-1)

    def rows(self, chosen: Tensor | slice) -> Self:
        return replace(
            self, log_weights=self.log_weights[chosen], words=self.words[chosen], log_mass=self.log_mass[chosen]
        )


@dataclass(frozen=True, slots=True)
class Shared:
    """One distribution over all classes at every position."""

    log_probabilities: Tensor
    """`[V]`"""
    log_mass: Tensor
    """`[N]`"""

    def log_prob(self, num_classes: int) -> Tensor:
        del num_classes
        return self.log_probabilities.expand(self.log_mass.shape[0], -1)

    def target_log_prob(self, target: Tensor) -> Tensor:
        return self.log_probabilities[target]

    def rows(self, chosen: Tensor | slice) -> Self:
        return replace(self, log_mass=self.log_mass[chosen])


class Component(nn.Module, abc.ABC):
    """A mixture component other than a kernel: a distribution over classes in each context.

    A subclass defines `distribution`, `hyperparameters`, and a constructor that takes `num_classes`, `hidden_size` and
    its hyperparameters as keyword arguments.
    """

    name: ClassVar[str]
    """Name in recipes; that of a class of your own is `package.module:ClassName`."""
    reads_history: ClassVar[bool] = True
    """Whether the component has a distribution only where it is given a history."""
    reads_source: ClassVar[bool] = False
    """Whether the component has a distribution only where it is given a source; `reads_history` is false then."""
    learns: ClassVar[bool] = True
    """Whether the component has parameters; without any, and with a constant weight, no training depends on it."""
    window: int | None = None
    """The most words of a history that the component reads; all of them without it."""

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.name = vars(cls).get("name", f"{cls.__module__}:{cls.__qualname__}")

    def __init__(self, weight: float | None = None) -> None:
        """`weight` is the component's constant weight in the mixture; without it, the weight is learnt."""
        super().__init__()
        if weight is not None and not 0 < weight < 1:
            raise ValueError(f"weight of component {self.name!r} must lie between 0 and 1, not {weight!r}")
        self.weight = weight

    def reset_parameters(self) -> None:
        """Draw the parameters again; by default there are none."""

    @property
    @abc.abstractmethod
    def hyperparameters(self) -> dict[str, Any]:
        """Return the arguments that the constructor was called with, without the sizes."""

    @abc.abstractmethod
    def distribution(self, hidden: Tensor, context: Any, temperature: float = 1.0) -> Distribution:
        """Return the distributions at the positions of hidden states `[B, T, d]`, or `[..., d]` without a context.

        `context` is the `History` or `Source` that the component reads, anything or None where it reads neither.
        `temperature` divides the scores that the distribution is a softmax of.
        """

    def can_read(self, context: Context | None) -> bool:
        """Return whether the component has a distribution in a context."""
        wanted = History if self.reads_history else Source if self.reads_source else object
        return isinstance(context, wanted)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.hyperparameters.items())


def _check_positive(name: str, component: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} of component {component!r} must be a positive finite number, not {value!r}")
    return float(value)


def _check_window(component: str, window: int | None) -> int | None:
    if window is not None and not is_positive_integer(window):
        raise ValueError(f"window of component {component!r} must be a positive integer or null, not {window!r}")
    return window


class Cache(Component):
    """The continuous cache (Grave et al. 2017, eq. 3): `p(w) ~ sum over places i with word w of exp(theta h . h_i)`.

    `h_i` is the hidden state that the word at place i was predicted from. The cache has no parameters. A cache with a
    constant weight, Grave's "linear interpolation", needs no training either: it can be added to a trained layer.
    """

    name = "cache"
    learns = False

    def __init__(
        self,
        num_classes: int,
        hidden_size: int,
        *,
        theta: float = 0.3,
        window: int | None = 500,
        weight: float | None = None,
    ) -> None:
        """`theta` is the sharpness: with 0, which is not possible, all words would count alike. `window` is N."""
        super().__init__(weight)
        del num_classes, hidden_size
        self.theta = _check_positive("theta", self.name, theta)
        self.window = _check_window(self.name, window)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {"theta": self.theta, "window": self.window, "weight": self.weight}

    def distribution(self, hidden: Tensor, context: History, temperature: float = 1.0) -> Attention:
        scores = at_least_float32(hidden @ context.states[:, :-1].transpose(1, 2))
        return Attention.of_scores(scores * (self.theta / temperature), context, context.last(self.window))


class Pointer(Component):
    """The pointer of the sentinel mixture (Merity et al. 2017): `p(w) ~ sum over places i with word w of exp(q . h_i)`.

    `q = tanh(query^T h + offset)`, and `h_i` is the hidden state after the word at place i was read. As in the paper,
    the weight follows from the scores: the mean of `exp(q . h_i)` over the places is a factor of it, and `prior`
    has the place of the sentinel. The paper takes the sum, which gives the pointer nearly all of the weight at first.
    """

    name = "pointer"

    def __init__(
        self,
        num_classes: int,
        hidden_size: int,
        *,
        window: int | None = 100,
        weight: float | None = None,
    ) -> None:
        super().__init__(weight)
        del num_classes
        self.window = _check_window(self.name, window)
        self.query = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.offset = nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw a query that keeps norms; the offset is 0."""
        nn.init.normal_(self.query, std=self.query.shape[0] ** -0.5)
        nn.init.zeros_(self.offset)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {"window": self.window, "weight": self.weight}

    def distribution(self, hidden: Tensor, context: History, temperature: float = 1.0) -> Attention:
        query = torch.tanh(saveable(hidden) @ saveable(self.query) + saveable(self.offset))
        scores = at_least_float32(query @ context.states[:, 1:].transpose(1, 2))
        return Attention.pointing(scores, context, context.last(self.window), temperature)


_COPIED_AT_FIRST = 0.01
"""Weight of a new copy component, relative to that of a kernel."""


class Copy(Component):
    """Copying from the source: `p(w) ~ sum over source positions s with token w of exp(q . e_s)` (Gu et al. 2016).

    `q = query^T h + offset`, and `e_s` is the encoder's output at s; a projection of it would be a factor of `query`.
    As of the pointer, the mean of `exp(q . e_s)` over the positions is a factor of the component's weight. Two others
    are `exp(gate . c)`, where c is the mean of the `e_s` that the component points at, by its probabilities of the
    positions (See et al. 2017, eq. 8): what stands there says whether it is to be copied; and `exp(log_factor)`, by
    which a new component has little weight.
    """

    name = "copy"
    reads_history = False
    reads_source = True

    def __init__(self, num_classes: int, hidden_size: int, *, weight: float | None = None) -> None:
        super().__init__(weight)
        del num_classes
        self.query = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.offset = nn.Parameter(torch.empty(hidden_size))
        self.gate = nn.Parameter(torch.empty(hidden_size)) if weight is None else None
        self.log_factor = nn.Parameter(torch.empty(1)) if weight is None else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw a query by which normalized states have scores around 1; offset and gate are 0."""
        nn.init.normal_(self.query, std=1 / self.query.shape[0])
        nn.init.zeros_(self.offset)
        if self.gate is not None and self.log_factor is not None:
            nn.init.zeros_(self.gate)
            nn.init.constant_(self.log_factor, math.log(_COPIED_AT_FIRST))

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def distribution(self, hidden: Tensor, context: Source, temperature: float = 1.0) -> Attention:
        query = saveable(hidden) @ saveable(self.query) + saveable(self.offset)
        scores = at_least_float32(query @ context.states.transpose(1, 2))
        seen = context.visible[:, None].expand(scores.shape)
        found = Attention.pointing(scores, context, seen, temperature)
        if self.gate is None or self.log_factor is None:
            return found
        pointed = found if temperature == 1.0 else Attention.pointing(scores, context, seen, 1.0)
        gains = at_least_float32(context.states @ saveable(self.gate))[:, None].expand(scores.shape).flatten(0, 1)
        gated = (pointed.log_weights.exp() * gains).sum(-1) + saveable(self.log_factor)
        return replace(found, log_mass=found.log_mass + gated)


class Unigram(Component):
    """A learnt distribution of the classes that is the same in every context: `softmax(logits)`.

    In language models `logits` `[V]` start at the logarithms of the words' frequencies.
    """

    name = "unigram"
    reads_history = False

    def __init__(self, num_classes: int, hidden_size: int, *, weight: float | None = None) -> None:
        super().__init__(weight)
        del hidden_size
        self.logits = nn.Parameter(torch.zeros(num_classes))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set the logits to 0, those of the uniform distribution."""
        nn.init.zeros_(self.logits)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def distribution(self, hidden: Tensor, context: object, temperature: float = 1.0) -> Shared:
        del context
        logits = at_least_float32(saveable(self.logits)) / temperature
        return Shared(
            functional.log_softmax(logits, dim=-1), at_least_float32(torch.zeros_like(hidden[..., 0])).flatten()
        )


COMPONENTS: Mapping[str, type[Component]] = {each.name: each for each in (Cache, Pointer, Unigram, Copy)}
"""Components other than kernels by name."""


def component_class(name: object) -> type[Component] | None:
    """Return the class of a component that is not a kernel, by its name or `package.module:ClassName`, else None."""
    if not isinstance(name, str) or ":" not in name:
        return COMPONENTS.get(name) if isinstance(name, str) else None
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return None  # `build_kernel` says why
    return found if isinstance(found, type) and issubclass(found, Component) else None


def build_component(name: str, num_classes: int, hidden_size: int, **hyperparameters: Any) -> Component:
    """Return a component by its name in `COMPONENTS` or by `package.module:ClassName`.

    Raises `ValueError` for an unknown name, and for a hyperparameter that the component does not have or that is out of
    range.
    """
    kind: Any = component_class(name)
    if kind is None:
        raise ValueError(f"unknown component {name!r}; known components: {', '.join(COMPONENTS)}")
    try:
        component: Component = kind(num_classes=num_classes, hidden_size=hidden_size, **hyperparameters)
    except TypeError as error:
        raise ValueError(f"component {name!r}: {error}") from error
    return component
