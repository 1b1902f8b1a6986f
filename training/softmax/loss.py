"""Losses of kernel softmax layers computed in chunks of positions, never holding `[N, V]`.

Shapes: `N` positions, `V` classes (words), `d` hidden size, `K` mixture components, `n` positions of one chunk.

A mixture's log-probability of a target needs two numbers of each component, the target's score and the logarithm of the
normalizer, `[N, K]` each. `target_scores` computes them a chunk of positions at a time and drops the scores; its
backward pass computes them again. Where the sum of the losses is asked for, the gradient of a chunk is known as soon as
the scores of all components are, so `softmax_cross_entropy` and `mixture_cross_entropy` need one pass and a quarter
fewer multiplications.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.nn import functional

from . import elementwise
from .alpha_entmax import conjugate, dense_entmax, support
from .kernel import at_least_float32, readable, saveable
from .passes import ComponentPass, Components, ScoredBlock, common_chunks, passes
from .sparse import best_classes

__all__ = [
    "Components",
    "Terms",
    "check_loss",
    "mixture_cross_entropy",
    "normalizer_of",
    "plain_target_scores",
    "scores_of_classes",
    "softmax_cross_entropy",
    "target_scores",
]

_GATHERED = 1 << 20
"""Elements of the class vectors, or of their gradients, that are gathered at a time."""
_FEW = 128
"""A layer with so many times more classes than have a gradient computes the gradient of these alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How the loss of a position follows from its scores `z` and the logarithm of their normalizer, `log Z`.

        loss = (1 - e) w_t (log Z - z_t) + e mean_v w_v (log Z - z_v) + z_loss (log Z)^2

    for the target t, label smoothing e and class weights w, as in `torch.nn.functional.cross_entropy`.
    """

    label_smoothing: float = 0.0
    z_loss: float = 0.0
    class_weights: Tensor | None = None
    """`[V]`, without a gradient; all 1 without it."""
    kept: Tensor | None = None
    """`[N]`, 0 or 1: positions that count; all without it."""

    def of_targets(self, target: Tensor) -> Tensor | None:
        """Return the weight of each position's target `[N]`, smoothing apart; None if all are 1."""
        found = None if self.class_weights is None else self.class_weights[target]
        if self.kept is None:
            return found
        return self.kept if found is None else found * self.kept

    def mean_class(self, values: Tensor) -> Tensor:
        """Return the mean of values over all classes, each with its weight: `[N, V]` -> `[N]`."""
        if self.class_weights is None:
            return values.mean(-1)
        return torch.mv(values, self.class_weights.to(values.dtype)) / values.shape[-1]

    def of_position(self, target: Tensor, chosen: Tensor, normalizer: Tensor, mean_score: Tensor | None) -> Tensor:
        """Return the losses of one component from `z_t`, `log Z` and, with smoothing, `mean_class(z)`, `[N]` each."""
        weights = self.of_targets(target)
        losses = (1 - self.label_smoothing) * (normalizer - chosen)
        losses = losses if weights is None else losses * weights
        if mean_score is not None:
            spread = self.label_smoothing * (normalizer * self._mean_weight() - mean_score)
            losses = losses + (spread if self.kept is None else spread * self.kept)
        if self.z_loss:
            squares = self.z_loss * normalizer.square()
            losses = losses + (squares if self.kept is None else squares * self.kept)
        return losses

    def _mean_weight(self) -> Tensor | float:
        return 1.0 if self.class_weights is None else self.class_weights.mean()

    def gradient(
        self, probabilities: Tensor, column: Tensor, normalizer: Tensor, target: Tensor | None = None
    ) -> Tensor:
        """Return the gradient in the scores `[N, C]` from probabilities, which it overwrites, and `log Z` `[N]`.

        The target's score is in `column` `[N]`, which is the target where the columns are all classes.
        """
        weights, smoothing = self.of_targets(column if target is None else target), self.label_smoothing
        of_normalizer: Tensor | None = None
        if weights is not None or self.z_loss:
            plain = normalizer.new_ones(()) if weights is None else weights
            kept = 1.0 if self.kept is None else self.kept
            spread = smoothing * self._mean_weight() * kept
            of_normalizer = (1 - smoothing) * plain + spread + 2 * self.z_loss * normalizer * kept
        if of_normalizer is not None:
            probabilities.mul_(of_normalizer[:, None])
        if smoothing:
            even = smoothing / probabilities.shape[1]
            if weights is None:
                probabilities.sub_(even)
            else:
                shares = probabilities.new_full((1,), even) if self.class_weights is None else even * self.class_weights
                probabilities.sub_(shares if self.kept is None else self.kept[:, None] * shares)
        chosen = probabilities.new_full(column.shape, smoothing - 1)
        chosen = chosen if weights is None else chosen * weights
        return probabilities.scatter_add_(1, column[:, None], chosen[:, None].to(probabilities.dtype))


def check_loss(reduction: str, label_smoothing: float, z_loss: float, temperature: float) -> None:
    """Raise `ValueError` for options of a loss that are out of range."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', not {reduction!r}")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1): {label_smoothing!r}")
    if not z_loss >= 0 or not temperature > 0:
        raise ValueError(f"z_loss must not be negative, and temperature positive, not {z_loss!r} and {temperature!r}")


def target_scores(parts: Components, hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return targets' scores and logarithms of the normalizers: hidden `[N, d]`, target `[N]` -> 2 of `[N, K]`."""
    tensors = map(saveable, (hidden, *parts.tensors()))
    result: tuple[Tensor, Tensor] = _TargetScores.apply(parts, saveable(target), None, *tensors)  # type: ignore[no-untyped-call]
    return result


def scores_of_classes(
    parts: Components, hidden: Tensor, target: Tensor, classes: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `target_scores`, means over all scores, and scores of further classes: 3 of `[N, K]` and `[N, K, C]`.

    hidden `[N, d]`, target `[N]`, classes `[N, C]`; of softmaxes, without `sparse_k` and with the alpha 1.
    """
    tensors = map(saveable, (hidden, *parts.tensors()))
    result: tuple[Tensor, Tensor, Tensor, Tensor]
    result = _TargetScores.apply(parts, saveable(target), saveable(classes), *tensors)  # type: ignore[no-untyped-call]
    return result


def plain_target_scores(
    parts: Components, hidden: Tensor, tensors: Sequence[Tensor], target: Tensor
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return what `target_scores` does, and all scores, K of `[N, V]`, by formulas that are differentiated anywhere.

    They hold `[N, V]`: for second derivatives, and for the transformations of `torch.func`.
    """
    with elementwise.plain_formulas():
        scores = [
            parts.adjusted(parts.with_margin(call, call("forward", weight, component), target), bias)
            for call, weight, component, bias in parts.components(hidden, tensors)
        ]
    chosen = torch.stack([score.gather(-1, target[..., None])[..., 0] for score in scores], dim=-1)
    normalizers = torch.stack([normalizer_of(score, parts.sparse_k, parts.alpha) for score in scores], dim=-1)
    return chosen, normalizers, scores


def normalizer_of(scores: Tensor, sparse_k: int | None, alpha: float) -> Tensor:
    """Return F of the loss `F - z_target`, differentiable as it is: `[..., V]` -> `[...]`.

    The logarithm of the sum of exponentials, of the k best with `sparse_k`; with another alpha than 1, `conjugate`.
    """
    if alpha != 1.0:
        return conjugate(scores, alpha)
    kept = best_classes(scores, sparse_k)[0] if _is_sparse(sparse_k, scores) else scores
    return torch.logsumexp(kept, dim=-1)


def softmax_cross_entropy(parts: Components, hidden: Tensor, target: Tensor, terms: Terms | None = None) -> Tensor:
    """Return the summed loss of a single component: hidden `[N, d]`, target `[N]` -> scalar."""
    tensors = [saveable(tensor) for tensor in (hidden, *parts.tensors())]
    differentiate = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    terms = Terms() if terms is None else terms
    loss: Tensor = _SoftmaxCrossEntropy.apply(parts, target, terms, differentiate, *tensors)  # type: ignore[no-untyped-call]
    return loss


def mixture_cross_entropy(
    parts: Components, hidden: Tensor, target: Tensor, log_weights: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Return the summed loss of a mixture: hidden `[N, d]`, target `[N]`, log_weights `[N, K + J]` -> scalar.

        sum over n of -w_n log (sum over k <= K of exp(log_weights_nk) p_k(target_n) + sum over j > K of
        exp(log_weights_nj))

    for K components with the weights of a mixture, and J others, whose log-probabilities of the target log_weights
    include. weights `[N]` are all 1 by default, and have no gradient. Of softmaxes, without `sparse_k` and with the
    alpha 1.
    """
    tensors = [saveable(tensor) for tensor in (log_weights, hidden, *parts.tensors())]
    differentiate = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors[1:])
    loss: Tensor = _MixtureCrossEntropy.apply(parts, target, weights, differentiate, *tensors)  # type: ignore[no-untyped-call]
    return loss


def _autocast(device: str) -> torch.autocast:
    return torch.autocast(device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))


def _gradients_with_graph(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grads: Sequence[Tensor], wanted: Sequence[bool]
) -> Iterator[Tensor | None]:
    """Yield the gradients of the inputs, which can be differentiated again; None where none is wanted."""
    chosen = [value for value, needed in zip(inputs, wanted, strict=True) if needed]
    found = iter(torch.autograd.grad(outputs, chosen, grads, create_graph=True, allow_unused=True))
    return (next(found) if needed else None for needed in wanted)


class _TargetScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, parts: Components, target: Tensor, classes: Tensor | None, hidden: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        shape = (target.shape[0], len(parts.kernels))
        chosen, normalizers, means = (at_least_float32(hidden).new_empty(shape) for _ in range(3))
        further = chosen.new_empty((*shape, 0 if classes is None else classes.shape[1]))
        kept = _gathered(parts)
        best = chosen.new_empty((*shape, kept))
        places = target.new_empty((*shape, kept))
        for k, component in enumerate(passes(parts, hidden, tensors, None)):
            # In equal chunks the backward pass computes the same scores: rounding may depend on the number of rows.
            plain = not kept and classes is None and _is_softmax(parts)
            for block in component.scored(target, dense_gradient=not kept, exponentials=plain):
                part, scores = block.part, block.scores
                chosen[part, k] = block.chosen
                if classes is not None:
                    means[part, k], further[part, k] = scores.mean(-1), scores.gather(1, classes[part])
                if kept:
                    best[part, k], places[part, k] = best_classes(scores, kept)
                    normalizers[part, k] = torch.logsumexp(best[part, k], dim=-1)
                else:
                    normalizers[part, k] = _normalizer(block, parts)
        ctx.parts, ctx.autocast = parts, _autocast(hidden.device.type)
        ctx.save_for_backward(target, classes, normalizers, best, places, hidden, *tensors)
        return (chosen, normalizers) if classes is None else (chosen, normalizers, means, further)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:  # the scores of the forward pass are computed again
            if not torch.is_grad_enabled():
                return _TargetScores._gradients(ctx, *grads)
            target, classes, _, _, _, *inputs = ctx.saved_tensors
            chosen, normalizers, scores = plain_target_scores(ctx.parts, inputs[0], inputs[1:], target)
            outputs = [chosen, normalizers]
            if classes is not None:
                outputs.append(torch.stack([score.mean(-1) for score in scores], dim=-1))
                outputs.append(torch.stack([score.gather(-1, classes) for score in scores], dim=1))
            return None, None, None, *_gradients_with_graph(outputs, inputs, grads, ctx.needs_input_grad[3:])

    @staticmethod
    def _gradients(
        ctx: Any,
        grad_chosen: Tensor,
        grad_normalizers: Tensor,
        grad_means: Tensor | None = None,
        grad_further: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        target, classes, normalizers, best, places, hidden, *tensors = ctx.saved_tensors
        inputs = [hidden, *tensors]
        gradients = _sums(inputs, ctx.needs_input_grad[3:])
        for k, component in enumerate(passes(ctx.parts, hidden, tensors, gradients)):
            if _gathered(ctx.parts):
                probabilities = torch.exp(best[:, k] - normalizers[:, k, None])
                grad = torch.cat([probabilities * grad_normalizers[:, k, None], grad_chosen[:, k, None]], dim=1)
                _backpropagate_chosen(component, torch.cat([places[:, k], target[:, None]], dim=1), grad)
                continue
            plain = classes is None and _is_softmax(ctx.parts)
            for block in component.scored(target, exponentials=plain):
                part = block.part
                grad = _probabilities(block, normalizers[part, k], ctx.parts)
                grad.mul_(grad_normalizers[part, k, None])
                grad.scatter_add_(1, target[part, None], grad_chosen[part, k, None])
                if grad_means is not None and grad_further is not None:
                    grad.add_(grad_means[part, k, None] / grad.shape[1])
                    grad.scatter_add_(1, classes[part], grad_further[part, k])
                block.backpropagate(grad)
            component.finish()
        return (
            None,
            None,
            None,
            *(
                None if gradient is None else gradient.to(value.dtype)
                for gradient, value in zip(gradients, inputs, strict=True)
            ),
        )


class _SoftmaxCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        parts: Components,
        target: Tensor,
        terms: Terms,
        differentiate: bool,
        hidden: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        ctx.parts, ctx.terms, ctx.autocast = parts, terms, _autocast(hidden.device.type)
        ctx.save_for_backward(target, hidden, *tensors)
        wanted = ctx.needs_input_grad[4:] if differentiate else None
        loss, gradients = _loss_of_one(parts, target, terms, [hidden, *tensors], wanted)
        ctx.gradients = _rounded(gradients, [hidden, *tensors])
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        target, *inputs = ctx.saved_tensors
        wanted = ctx.needs_input_grad[4:]
        with ctx.autocast:
            if torch.is_grad_enabled():
                loss = plain_losses(ctx.parts, inputs[0], inputs[1:], target, ctx.terms).sum()
                return None, None, None, None, *_gradients_with_graph([loss], inputs, [grad], wanted)
            if ctx.gradients is None:
                ctx.gradients = _loss_of_one(ctx.parts, target, ctx.terms, inputs, wanted)[1]
        return None, None, None, None, *_handed_over(ctx, grad, inputs)


class _MixtureCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        parts: Components,
        target: Tensor,
        weights: Tensor | None,
        differentiate: bool,
        log_weights: Tensor,
        hidden: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        ctx.parts, ctx.autocast = parts, _autocast(hidden.device.type)
        ctx.save_for_backward(target, weights, log_weights, hidden, *tensors)
        wanted = ctx.needs_input_grad[5:] if differentiate else None
        loss, gradients = _loss_of_mixture(parts, target, weights, log_weights, [hidden, *tensors], wanted)
        ctx.gradients = _rounded(gradients, [log_weights, hidden, *tensors])
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        target, weights, log_weights, *inputs = ctx.saved_tensors
        wanted = ctx.needs_input_grad[5:]
        with ctx.autocast:
            if torch.is_grad_enabled():
                chosen, normalizers, _ = plain_target_scores(ctx.parts, inputs[0], inputs[1:], target)
                kernels = chosen.shape[1]
                joint = torch.cat([log_weights[:, :kernels] + chosen - normalizers, log_weights[:, kernels:]], dim=-1)
                of_weights = -grad * torch.softmax(joint, dim=-1)
                of_weights = of_weights if weights is None else of_weights * weights[:, None]
                # log_weights may depend on hidden: the scores alone are differentiated here.
                own = of_weights[:, :kernels]
                found = _gradients_with_graph([chosen, normalizers], inputs, [own, -own], wanted)
                return None, None, None, None, of_weights, *found
            if ctx.gradients is None:
                ctx.gradients = _loss_of_mixture(ctx.parts, target, weights, log_weights, inputs, wanted)[1]
        return None, None, None, None, *_handed_over(ctx, grad, [log_weights, *inputs])


def _loss_of_one(
    parts: Components, target: Tensor, terms: Terms, inputs: Sequence[Tensor], wanted: Sequence[bool] | None
) -> tuple[Tensor, list[Tensor | None]]:
    """Return `softmax_cross_entropy`, and its gradients in hidden states and `parts.tensors()` that are wanted."""
    hidden, *tensors = inputs
    gradients = None if wanted is None else _sums(inputs, wanted)
    none: list[Tensor | None] = [None] * len(inputs)
    total = at_least_float32(hidden).new_zeros(())
    (component,) = passes(parts, hidden, tensors, gradients)
    if (kept := _gathered(parts)) and len(target) and not terms.label_smoothing:
        return _sparse_cross_entropy(component, target, terms, kept, gradients is not None), gradients or none
    most = parts.weights[0].shape[0] // _FEW - 1
    plain = _is_softmax(parts) and not terms.label_smoothing
    for block in component.scored(target, exponentials=plain):
        part, scores = block.part, block.scores
        own = terms if terms.kept is None else replace(terms, kept=terms.kept[part])
        mean_score = own.mean_class(scores) if terms.label_smoothing else None
        few = None if parts.alpha == 1.0 else support(scores, parts.alpha)
        dense = bool(terms.label_smoothing) or parts.margin is not None
        gathered = few is not None and not dense and few.classes.shape[1] <= most
        if few is not None and gathered:
            normalizer = few.value
            if gradients is not None:
                grad = _of_few(own, few.probabilities, normalizer, target[part])
                classes = torch.cat([few.classes, target[part, None]], dim=1)
                _backpropagate_chosen(component, classes, grad, part.start)
        elif gradients is None:
            normalizer = _normalizer(block, parts) if few is None else few.value
        else:
            if few is None:
                normalizer, grad = _softmax(block, parts)
            else:
                normalizer, grad = few.value, _at(few.classes, few.probabilities, scores)
            block.backpropagate(own.gradient(grad, target[part], normalizer))
        total += own.of_position(target[part], block.chosen, normalizer, mean_score).sum()
    if gradients is not None:
        component.finish()
    return total, gradients or none


def _loss_of_mixture(
    parts: Components,
    target: Tensor,
    weights: Tensor | None,
    log_weights: Tensor,
    inputs: Sequence[Tensor],
    wanted: Sequence[bool] | None,
) -> tuple[Tensor, list[Tensor | None]]:
    """Return `mixture_cross_entropy` and its gradients in log_weights, hidden states and `parts.tensors()`.

    That in log_weights is always computed, of the others those that are wanted.
    """
    hidden, *tensors = inputs
    gradients = None if wanted is None else _sums(inputs, wanted)
    of_weights = torch.zeros_like(log_weights)
    total = at_least_float32(hidden).new_zeros(())
    components = list(passes(parts, hidden, tensors, gradients))
    chunks = common_chunks(components)
    scored = (component.scored(target, chunks=chunks, exponentials=True) for component in components)
    for blocks in zip(*scored, strict=True):
        part = blocks[0].part
        softmaxes = [_softmax(block, parts) for block in blocks]
        normalizers = torch.stack([normalizer for normalizer, _ in softmaxes], 1)
        joint = log_weights[part].clone()
        joint[:, : len(blocks)] += torch.stack([block.chosen for block in blocks], 1) - normalizers
        losses = -torch.logsumexp(joint, dim=-1)
        # What each component has of the target's probability, negative: the gradient in the logarithm of its part.
        shares = (joint + losses.clamp_max(torch.finfo(losses.dtype).max)[:, None]).exp_().neg_()
        if weights is not None:
            losses, shares = losses * weights[part], shares * weights[part, None]
        total += losses.sum()
        of_weights[part] = shares
        if gradients is not None:
            for k, (block, (_, grad)) in enumerate(zip(blocks, softmaxes, strict=True)):
                share = shares[:, k, None]
                block.backpropagate(grad.mul_(-share).scatter_add_(1, target[part, None], share))
    if gradients is not None:
        for component in components:
            component.finish()
    return total, [of_weights, *(gradients or [None] * len(inputs))]


def _rounded(gradients: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return gradients as they are kept until the backward pass."""
    # float16 would lose small gradients before the backward pass multiplies them by a loss scale.
    return [
        gradient.to(torch.bfloat16) if gradient is not None and value.dtype == torch.bfloat16 else gradient
        for gradient, value in zip(gradients, inputs, strict=True)
    ]


def _handed_over(ctx: Any, grad: Tensor, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return the gradients of the inputs, given that of the loss, and forget them: `[V, d]` is not held twice.

    Where a graph is retained, a second backward pass computes them again.
    """
    gradients, ctx.gradients = ctx.gradients, None
    return [
        None if gradient is None else _times(gradient, grad).to(value.dtype)
        for gradient, value in zip(gradients, inputs, strict=True)
    ]


def _times(gradient: Tensor, grad: Tensor) -> Tensor:
    """Return gradient times a scalar, in its memory where possible."""
    functorch = torch._C._functorch
    if functorch.is_legacy_batchedtensor(grad) or functorch.is_batchedtensor(grad):  # several scalars
        return gradient * grad
    return gradient if readable(grad) and float(grad) == 1.0 else gradient.mul_(grad)


def plain_losses(parts: Components, hidden: Tensor, tensors: Sequence[Tensor], target: Tensor, terms: Terms) -> Tensor:
    """Return the losses of a single component's positions by `plain_target_scores`: `[N, d]`, `[N]` -> `[N]`."""
    chosen, normalizers, (scores,) = plain_target_scores(parts, hidden, tensors, target)
    mean_score = terms.mean_class(scores) if terms.label_smoothing else None
    return terms.of_position(target, chosen[..., 0], normalizers[..., 0], mean_score)


def _sums(tensors: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    """Return zeros to which gradients are added, at least float32; None for tensors that need no gradient."""
    return [
        torch.zeros_like(tensor, dtype=at_least_float32(tensor.new_empty(0)).dtype) if needed else None
        for tensor, needed in zip(tensors, wanted, strict=True)
    ]


def _gathered(parts: Components) -> int:
    """Return `sparse_k` where the gradient is computed for the classes that have one alone, 0 where for all."""
    kept = 0 if parts.margin is not None else parts.sparse_k or 0
    return kept if _FEW * (kept + 1) <= parts.weights[0].shape[0] else 0


def _sparse_cross_entropy(
    component: ComponentPass, target: Tensor, terms: Terms, sparse_k: int, differentiate: bool
) -> Tensor:
    """Return the summed loss (sparse paper, eq. 5), and add the gradient to the sums of the component."""
    chosen, normalizers, best, classes = [], [], [], []
    for block in component.scored(target, dense_gradient=False):
        values, kept = best_classes(block.scores, sparse_k)
        normalizers.append(torch.logsumexp(values, dim=-1))
        chosen.append(block.chosen)
        best.append(values.sub(normalizers[-1][:, None]).exp_())
        classes.append(kept)
    normalizer = torch.cat(normalizers)
    if differentiate:
        grad = _of_few(terms, torch.cat(best), normalizer, target)
        _backpropagate_chosen(component, torch.cat([torch.cat(classes), target[:, None]], dim=1), grad)
    return terms.of_position(target, torch.cat(chosen), normalizer, None).sum()


def _of_few(terms: Terms, probabilities: Tensor, normalizer: Tensor, target: Tensor) -> Tensor:
    """Return the gradient `[n, C + 1]` in the scores of some classes `[n, C]`, and of the target, without smoothing.

    The target's column comes last, and a second time among the others if it is one of them.
    """
    last = torch.full_like(target, probabilities.shape[1])
    return terms.gradient(functional.pad(probabilities, (0, 1)), last, normalizer, target)


def _backpropagate_chosen(component: ComponentPass, classes: Tensor, grad: Tensor, first: int = 0) -> None:
    """Add the gradient `[n, C]` of the scores of some classes `[n, C]`, from position `first`, to the sums."""
    rows = max(1, _GATHERED // (classes.shape[1] * component.hidden_size))
    for start in range(0, classes.shape[0], rows):
        part = slice(start, min(start + rows, classes.shape[0]))
        component.backpropagate_chosen(slice(first + part.start, first + part.stop), classes[part], grad[part])


def _is_softmax(parts: Components) -> bool:
    """Return whether probabilities are those of a softmax over all classes, for which exponentials are enough."""
    return parts.alpha == 1.0 and parts.sparse_k is None


def _normalizer(block: ScoredBlock, parts: Components) -> Tensor:
    """Return `normalizer_of` `[n]`; overwrites the scores."""
    if parts.alpha != 1.0:
        return dense_entmax(block.scores, parts.alpha)[0]
    if _is_sparse(parts.sparse_k, block.scores):
        return normalizer_of(block.scores, parts.sparse_k, 1.0)
    return _exponentials(block)[0]


def _softmax(block: ScoredBlock, parts: Components) -> tuple[Tensor, Tensor]:
    """Return `_normalizer` `[n]` and softmax, sparse-softmax or entmax `[n, V]`; overwrites the scores."""
    scores = block.scores
    if parts.alpha != 1.0:
        return dense_entmax(scores, parts.alpha)
    if _is_sparse(parts.sparse_k, scores):
        values, classes = best_classes(scores, parts.sparse_k)
        normalizer = torch.logsumexp(values, dim=-1)
        return normalizer, _at(classes, values.sub(normalizer[:, None]).exp_(), scores)
    normalizer, total = _exponentials(block)
    return normalizer, scores.div_(total)


def _probabilities(block: ScoredBlock, normalizer: Tensor, parts: Components) -> Tensor:
    """Return `_softmax` for a known normalizer; overwrites the scores."""
    scores = block.scores
    if block.shift is not None:
        return scores.mul_(torch.exp(block.shift - _finite(normalizer))[:, None])
    if parts.alpha != 1.0:
        return dense_entmax(scores, parts.alpha)[1]
    if _is_sparse(parts.sparse_k, scores):
        values, classes = best_classes(scores, parts.sparse_k)
        return _at(classes, values.sub(normalizer[:, None]).exp_(), scores)
    return scores.sub_(_finite(normalizer)[:, None]).exp_()


def _is_sparse(sparse_k: int | None, scores: Tensor) -> TypeGuard[int]:
    return sparse_k is not None and sparse_k < scores.shape[-1]


def _exponentials(block: ScoredBlock) -> tuple[Tensor, Tensor]:
    """Replace scores by exponentials of at most 1; return the log of the sum `[n]` and the sum of those `[n, 1]`."""
    scores, largest = block.scores, block.shift
    if largest is None:
        largest = _finite(scores.amax(-1, keepdim=True))
        scores.sub_(largest).exp_()
    total = scores.sum(-1, keepdim=True)
    return (largest + total.log())[:, 0], total


def _finite(values: Tensor) -> Tensor:
    """Return values above minus infinity, which those of a position have where the bias excludes all its classes."""
    return values.clamp_min(torch.finfo(values.dtype).min)


def _at(classes: Tensor, values: Tensor, scores: Tensor) -> Tensor:
    """Return values `[n, k]` at their classes, 0 elsewhere: `[n, V]`, which overwrites the scores."""
    return scores.zero_().scatter_(1, classes, values)
