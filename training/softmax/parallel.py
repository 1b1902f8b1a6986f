"""The loss of a layer whose classes are shared between the processes of a group, each with some rows of the weight.

Shapes: `N` positions, `V` classes (words) of all processes, `v` classes of this process, `d` hidden size, `K` mixture
components; `...` are any leading dimensions of positions, such as batch and time.

A target's log-probability needs its scores and the logarithms of the normalizers, `[N, K]` each (`loss`). A process
computes those of its own classes; sums and maxima over the group make them those of all classes:

    log Z = log sum_r exp(log Z_r)    for the logarithms `log Z_r` of the normalizers of rank r

    shard, first_class = split_classes(GeneralizedSoftmax(50_000, 512, "lin, log"))
    loss = vocabulary_parallel_loss(shard, hidden, target, first_class=first_class, reduction="mean")
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, distributed, nn

from .elementwise import first_derivative
from .kernel import as_rows, check_hidden, readable, saveable, with_parameters
from .loss import check_loss, target_scores
from .mixture import GeneralizedSoftmax
from .sparse import Reduction, check_integers, check_target_shape

__all__ = ["split_classes", "vocabulary_parallel_loss", "whole_state"]

_CLASS_AXES = {"weight": 0, "bias": 0, "other_weights": 1, "left": 1}
"""Parameters of a layer that have an axis of classes; the others are the same in all processes."""


def split_classes(
    layer: GeneralizedSoftmax, *, process_group: distributed.ProcessGroup | None = None
) -> tuple[GeneralizedSoftmax, int]:
    """Return a layer of this process's share of the classes, `[v, d]` of `[V, d]`, and the first of these classes.

    Each process of the group, by default of all, calls it with the same layer. Ranks have successive ranges of
    classes, whose sizes differ by at most one. The parameters are copies. Raises `ValueError` for fewer classes than
    processes, and for a layer with components that are not kernels.
    """
    if layer.others:
        raise ValueError("a layer with components that are not kernels cannot be shared between processes")
    rank, ranks = distributed.get_rank(process_group), distributed.get_world_size(process_group)
    classes = layer.weight.shape[0]
    if classes < ranks:
        raise ValueError(f"{classes} classes cannot be shared between {ranks} processes")
    start = rank * (classes // ranks) + min(rank, classes % ranks)
    count = classes // ranks + (rank < classes % ranks)
    parts: dict[int, Any] = {}  # what deepcopy takes for these parameters, by their id
    for name, parameter in layer.named_parameters(recurse=False):
        if name in _CLASS_AXES:
            rows = parameter.detach().narrow(_CLASS_AXES[name], start, count).clone()
            parts[id(parameter)] = nn.Parameter(rows, requires_grad=parameter.requires_grad)
    return copy.deepcopy(layer, parts), start


@torch.no_grad()
def whole_state(
    shard: GeneralizedSoftmax, *, first_class: int, process_group: distributed.ProcessGroup | None = None
) -> dict[str, Any]:
    """Return the `state_dict` of a layer with the classes of all processes, each of which calls it and receives it.

    shard and first_class: those of `split_classes`. A `GeneralizedSoftmax` of `V` classes and otherwise equal arguments
    loads it.
    """
    count = torch.tensor(shard.weight.shape[0], device=shard.weight.device)
    distributed.all_reduce(count, group=process_group)
    state = dict(shard.state_dict())
    for name, axis in _CLASS_AXES.items():
        if name in state:
            part = state[name]
            shape = [*part.shape[:axis], int(count), *part.shape[axis + 1 :]]
            state[name] = part.new_zeros(shape)
            state[name].narrow(axis, first_class, part.shape[axis]).copy_(part)
            distributed.all_reduce(state[name], group=process_group)
    return state


def vocabulary_parallel_loss(
    shard: GeneralizedSoftmax,
    hidden: Tensor,
    target: Tensor,
    *,
    first_class: int,
    process_group: distributed.ProcessGroup | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "sum",
    z_loss: float = 0.0,
    temperature: float = 1.0,
) -> Tensor:
    """Return `GeneralizedSoftmax.loss` of a layer whose classes are shared between processes.

    hidden `[..., d]`, target `[...]` -> scalar, or `[...]` with reduction `none`. The result is the same in all
    processes of the group, by default all, each of which calls the function with

    * shard, first_class: the layer of its own classes, `first_class` and those after it (`split_classes`);
    * hidden, target: the same numbers in all processes; targets are classes of all processes, 0 to `V - 1`;
    * the other arguments: the same, and those of `GeneralizedSoftmax.loss`.

    The processes exchange `[N, 2 K + 1]` sums and `[N, K]` maxima. Each calls `backward` of the same loss, where this
    function sums over the processes the gradients of hidden states, projections, low-rank factors `right` and learnt
    hyperparameters. All gradients are complete then, and callers must not sum them once more: those of hidden states,
    of what computed them and of parameters without an axis of classes are the same in all processes, and those of
    weight and bias are of the process's own classes. What requires a gradient must be the same in all processes.
    There are no second derivatives.

    Raises `ValueError` in all processes for arguments of another shape or range, layers with `sparse_k`, `alpha`,
    `label_smoothing`, `component_dropout` or margins, and targets that not exactly one process has as its class; on a
    GPU these have loss NaN.
    """
    _check(shard, hidden, target)
    check_loss(reduction, 0.0, z_loss, temperature)
    rows, classes = saveable(as_rows(hidden)), saveable(target.flatten().long())
    kept = classes != ignore_index
    own = classes - first_class
    inside = kept & (own >= 0) & (own < shard.weight.shape[0])
    shared, parameters = _with_summed_gradients(shard, rows, process_group)

    def own_scores(hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return target_scores(replace(shard._parts(), temperature=temperature), hidden, target)

    scores = with_parameters(shard, parameters, own_scores, shared, own.where(inside, 0))
    chosen, normalizers, found = _Combined.apply(*scores, inside, process_group)  # type: ignore[no-untyped-call]
    chosen = _checked(chosen, classes, kept & (found != 1))
    losses = -torch.logsumexp(shard.log_mixture_weights(rows) + chosen - normalizers, dim=-1)
    if z_loss:
        losses = losses + z_loss * normalizers.square().mean(-1)
    if shard.num_components > 1:
        losses = losses + shard.penalties(shard.mixture_weights(rows), kept.to(losses.dtype))
    losses = losses.masked_fill(~kept, 0.0)
    if reduction == "none":
        return losses.view(target.shape)
    return losses.sum() if reduction == "sum" else losses.sum() / kept.sum().clamp_min(1)


def _check(shard: GeneralizedSoftmax, hidden: Tensor, target: Tensor) -> None:
    check_hidden(shard.weight, hidden, shard.hidden_size)
    check_target_shape(hidden, target)
    check_integers(target)
    for name in ("sparse_k", "label_smoothing", "component_dropout", "angular_margin", "cosine_margin"):
        if value := getattr(shard, name):
            raise ValueError(f"{name} = {value}: not possible where classes are shared between processes")
    if shard.alpha != 1.0:
        raise ValueError(f"alpha = {shard.alpha}: not possible where classes are shared between processes")


def _checked(chosen: Tensor, target: Tensor, wrong: Tensor) -> Tensor:
    """Return targets' scores `[N, K]`, NaN where targets are wrong `[N]`; raise `ValueError` if Python sees one."""
    if readable(wrong) and bool(wrong.any()):
        raise ValueError(f"target {int(target[wrong][0])} must be a class of exactly one process")
    return chosen.masked_fill(wrong[:, None], torch.nan)


def _with_summed_gradients(
    shard: GeneralizedSoftmax, hidden: Tensor, group: distributed.ProcessGroup | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return hidden states and parameters of the layer, by their names, whose gradients are summed.

    These are what the scores of all processes are computed from. The prior is left out: mixture weights, and so their
    gradients, are those of all classes.
    """
    values = {"hidden": hidden}
    for name, parameter in shard.named_parameters():
        if name not in _CLASS_AXES and name != "prior":
            values[name] = saveable(parameter)
    wanted = [name for name, value in values.items() if value.requires_grad and torch.is_grad_enabled()]
    if wanted:
        summed: Sequence[Tensor] = _SumGradients.apply(group, *(values[name] for name in wanted))  # type: ignore[no-untyped-call]
        values.update(zip(wanted, summed, strict=True))
    return values.pop("hidden"), values


class _SumGradients(torch.autograd.Function):
    """Return tensors unchanged, and sum their gradients over the processes."""

    @staticmethod
    def forward(ctx: Any, group: distributed.ProcessGroup | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        sums = [gradient.clone(memory_format=torch.contiguous_format) for gradient in gradients]
        for total in sums:
            distributed.all_reduce(total, group=ctx.group)
        return None, *sums


class _Combined(torch.autograd.Function):
    """Combine targets' scores and logarithms of the normalizers of all processes.

    All processes compute the same loss of the result, so that its gradient is not summed over them.
    """

    @staticmethod
    def forward(
        ctx: Any, chosen: Tensor, normalizers: Tensor, inside: Tensor, group: distributed.ProcessGroup | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return targets' scores and `log Z` `[N, K]`, and the number of processes that have the target `[N]`."""
        count = chosen.shape[1]
        largest = normalizers.clone()
        distributed.all_reduce(largest, distributed.ReduceOp.MAX, group)
        own = chosen.masked_fill(~inside[:, None], 0.0)
        sums = torch.cat([own, (normalizers - largest).exp(), inside[:, None].to(own.dtype)], dim=1)
        distributed.all_reduce(sums, group=group)
        combined, total, found = sums.split([count, count, 1], dim=1)
        total = largest + total.log()
        ctx.save_for_backward(inside, (normalizers - total).exp())
        found = found[:, 0].clone()
        ctx.mark_non_differentiable(found)
        return combined.clone(), total, found

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad_chosen: Tensor, grad_total: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        inside, shares = ctx.saved_tensors
        return grad_chosen.masked_fill(~inside[:, None], 0.0), grad_total * shares, None, None
