"""The loss as an operator that `torch.compile` keeps whole, so that a compiled model has no graph break.

Traced, the loss of a chunk at a time would be as many copies of its operations as there are chunks, and their order, on
which memory depends, would be the compiler's. The operator computes the gradient along with the loss; for one loss a
position, whose gradient depends on what follows, it computes them again in the backward pass.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .kernel import at_least_float32

__all__ = ["Build", "builds_layers", "compiled_loss"]

Build = Callable[[str], nn.Module]
"""A function that returns a layer on the meta device from the arguments of its constructor, as JSON."""

_NAMESPACE = __name__.replace(".", "_")
_library = torch.library.Library(_NAMESPACE, "DEF")
_library.define(
    "loss(Tensor hidden, Tensor target, Tensor? weight, Tensor? grad, Tensor[] parameters, bool[] wanted, str layer, "
    "str options, ScalarType? autocast) -> Tensor[]"
)
_operator = getattr(torch.ops, _NAMESPACE).loss


_builders: list[Build] = []


def builds_layers(build: Build) -> Build:
    """Register the function that makes layers; an operator's arguments are tensors, numbers and strings."""
    _builders[:] = [build]
    return build


def compiled_loss(
    arguments: str,
    parameters: Sequence[Tensor],
    hidden: Tensor,
    target: Tensor,
    weight: Tensor | None,
    options: str,
) -> Tensor:
    """Return the loss of a layer as one operator in a compiled graph: `[..., d]`, `[...]` -> scalar or `[...]`.

    The layer is that of its constructor's arguments and its parameters, options are those of its `loss`, as JSON.
    """
    kind = hidden.device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    loss: Tensor = _Loss.apply(target, weight, arguments, options, autocast, hidden, *parameters)  # type: ignore[no-untyped-call]
    return loss


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        target: Tensor,
        weight: Tensor | None,
        layer: str,
        options: str,
        autocast: torch.dtype | None,
        hidden: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        single = '"none"' not in options
        wanted = [single and tensor.requires_grad for tensor in (hidden, *parameters)]
        loss, *gradients = _operator(hidden, target, weight, None, parameters, wanted, layer, options, autocast)
        ctx.single, ctx.layer, ctx.options, ctx.autocast = single, layer, options, autocast
        ctx.count = len(gradients)
        ctx.save_for_backward(*gradients, target, weight, hidden, *parameters)
        return loss  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients, (target, weight, *inputs) = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        wanted = list(ctx.needs_input_grad[5:])
        if not ctx.single:
            hidden, *parameters = inputs
            _, *gradients = _operator(
                hidden, target, weight, grad, parameters, wanted, ctx.layer, ctx.options, ctx.autocast
            )
        found, results = iter(gradients), []
        for value, needed in zip(inputs, wanted, strict=True):
            gradient = next(found) if needed else None
            factor = grad if ctx.single else 1.0
            results.append(None if gradient is None else (gradient * factor).to(value.dtype))
        return None, None, None, None, None, *results


def _compute(
    hidden: Tensor,
    target: Tensor,
    weight: Tensor | None,
    grad: Tensor | None,
    parameters: Sequence[Tensor],
    wanted: Sequence[bool],
    layer: str,
    options: str,
    autocast: torch.dtype | None,
) -> list[Tensor]:
    """Return the loss and the wanted gradients of hidden states and parameters."""
    (build,) = _builders
    module, kind = build(layer), hidden.device.type
    # float16 would lose small gradients before the backward pass multiplies them by a loss scale.
    tensors = [tensor.float() if tensor.dtype == torch.float16 else tensor for tensor in (hidden, *parameters)]
    inputs = [tensor.detach().requires_grad_(needed) for tensor, needed in zip(tensors, wanted, strict=True)]
    names = [name for name, _ in module.named_parameters()]
    own = dict(zip(names, inputs[1:], strict=True))
    arguments = {"weight": weight, **json.loads(options)}
    differentiated = [value for value in inputs if value.requires_grad]
    with _autograd(), torch.autocast(kind, autocast, enabled=autocast is not None):
        with torch.set_grad_enabled(bool(differentiated)):
            loss: Tensor = torch.func.functional_call(module, own, (inputs[0], target), arguments)
        if not differentiated:
            return [loss]
        return [loss.detach(), *torch.autograd.grad(loss, differentiated, grad)]


def _autograd() -> Any:
    """Return a context in which autograd records, which it does not inside an operator of a compiled graph."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView):
        excluded = excluded.remove(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


_library.impl("loss", _compute, "CompositeExplicitAutograd")


@torch.library.register_fake(f"{_NAMESPACE}::loss")  # type: ignore[untyped-decorator]
def _shapes(
    hidden: Tensor,
    target: Tensor,
    weight: Tensor | None,
    grad: Tensor | None,
    parameters: Sequence[Tensor],
    wanted: Sequence[bool],
    layer: str,
    options: str,
    autocast: torch.dtype | None,
) -> list[Tensor]:
    dtype = at_least_float32(hidden.new_empty(0)).dtype
    shape = hidden.shape[:-1] if '"none"' in options else ()
    gradients = [
        torch.empty_like(tensor, dtype=torch.float32 if tensor.dtype == torch.float16 else tensor.dtype)
        for tensor, needed in zip((hidden, *parameters), wanted, strict=True)
        if needed
    ]
    return [hidden.new_empty(shape, dtype=dtype), *gradients]
