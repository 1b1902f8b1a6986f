"""How weights are updated: AdamW, the schedule of its learning rate, gradient clipping and mixed precision."""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from training.device import native_bfloat16
from training.recipe import LoopSettings

__all__ = [
    "Optimization",
    "check_precision",
    "learning_rate_factor",
    "parameter_groups",
    "resolved_precision",
    "scheduled_updates",
]

_EMBEDDINGS = (
    "output_layer.weight",
    "output_layer.other_weights",
    "output_layer.left",
    "distances.vectors",
    "own_source_vectors",
    "own_target_vectors",
    "positions",
)
"""Ends of the names of embeddings that do not belong to an `nn.Embedding`."""


def check_precision(settings: LoopSettings, device: torch.device) -> None:
    """Raise `ValueError` for float16 without a GPU."""
    if settings.precision == "float16" and device.type != "cuda":
        raise ValueError(f"loop.precision: float16 needs a GPU, and the device is {device}; take bfloat16 or float32")


def resolved_precision(settings: LoopSettings, device: torch.device) -> str:
    """Return the precision of products on a device: that of the settings, or what `auto` stands for there."""
    if settings.precision != "auto":
        return settings.precision
    return "bfloat16" if native_bfloat16(device) else "float32"


def learning_rate_factor(step: int, total: int, settings: LoopSettings, time_used: float = 0.0) -> float:
    """Return the factor of the learning rate: linear warm-up, then the decay that the settings name.

    `cosine` ends at `final_learning_rate` (Loshchilov and Hutter 2017, eq. 5), `inverse-sqrt` falls with the root of
    the steps (Vaswani et al. 2017, eq. 3). `time_used` is the fraction of `minutes` that is used: warm-up and cosine
    decay go by it where it is more than the fraction of the steps.
    """
    done = max(step, time_used * total)
    if done < settings.warmup_steps:
        return (done + 1) / settings.warmup_steps
    if settings.schedule == "inverse-sqrt":
        return math.sqrt(max(1, settings.warmup_steps) / (step + 1))
    rest = min(1.0, (done - settings.warmup_steps) / max(1, total - settings.warmup_steps))
    low = settings.final_learning_rate
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * rest))


def scheduled_updates(epoch_updates: int, settings: LoopSettings) -> int:
    """Return the number of updates over which cosine decay falls."""
    updates = epoch_updates * (settings.schedule_epochs or settings.epochs)
    return updates if settings.max_steps is None else min(updates, settings.max_steps)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return the groups of AdamW: matrices, which decay, and embeddings, biases and parameters of norms, which do not.

    There is one group of all parameters if the weight decay is 0. Frozen parameters are in none.
    """
    if not weight_decay:
        return [{"params": [each for each in model.parameters() if each.requires_grad], "weight_decay": 0.0}]
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decaying: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        kept = parameter.dim() < 2 or id(parameter) in embeddings or name.endswith(_EMBEDDINGS)
        (others if kept else decaying).append(parameter)
    return [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def _separated_priors(groups: list[dict[str, Any]], model: nn.Module) -> dict[str, Any]:
    """Take the parameters that the weights of mixtures follow from out of the groups; return a group of them."""
    priors = {id(parameter) for name, parameter in model.named_parameters() if name.rpartition(".")[2] == "prior"}
    (decay,) = {group["weight_decay"] for group in groups for each in group["params"] if id(each) in priors} or {0.0}
    taken = [each for group in groups for each in group["params"] if id(each) in priors]
    for group in groups:
        group["params"] = [each for each in group["params"] if id(each) not in priors]
    return {"params": taken, "weight_decay": decay}


class Optimization:
    """Optimizer, schedule and loss scaling of a training run; a step is an update."""

    def __init__(self, model: nn.Module, settings: LoopSettings, device: torch.device, *, epoch_updates: int) -> None:
        """`epoch_updates` is the number of updates an epoch. Raises `ValueError` for float16 without a GPU."""
        check_precision(settings, device)
        self._model, self._settings, self._device = model, settings, device
        total = scheduled_updates(epoch_updates, settings)
        self.time_used = 0.0
        """Fraction of `settings.minutes` that is used after the next step."""

        def factor(step: int) -> float:
            return learning_rate_factor(step, total, settings, self.time_used)

        groups = parameter_groups(model, settings.weight_decay)
        factors: list[Callable[[int], float]] = [factor] * len(groups)
        if first := settings.equal_weights_steps:
            groups.append(_separated_priors(groups, model))
            factors.append(lambda step: 0.0 if step < first else factor(step))
        self._optimizer = torch.optim.AdamW(
            groups, lr=settings.learning_rate, betas=(0.9, settings.adam_beta2), fused=True
        )
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, factors)
        self._scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "float16")
        self._scaler.scale(torch.zeros((), device=device))  # makes the scale, also where a process has no rows at first

    @property
    def learning_rate(self) -> float:
        """Return the learning rate of the next step."""
        return float(self._schedule.get_last_lr()[0])

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which losses are computed."""
        precision = resolved_precision(self._settings, self._device)
        dtype = torch.float16 if precision == "float16" else torch.bfloat16
        return torch.autocast(self._device.type, dtype=dtype, enabled=precision != "float32")

    def zero_grad(self) -> None:
        """Drop the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss, which is scaled for float16."""
        self._scaler.scale(loss).backward()

    def step(self, factor: float = 1.0) -> Tensor:
        """Update the weights by the gradients times a factor, clipped; return the norm that the gradients had.

        With float16, gradients that are not finite make no update, but a smaller scale of the next loss.
        """
        self._scaler.unscale_(self._optimizer)
        if factor != 1:
            for parameter in self._model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)
        norm = nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.clip_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._schedule.step()
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a checkpoint keeps."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`, which may have other fields too."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])
        if self._scaler.is_enabled():
            self._scaler.load_state_dict(state["scaler"])
