"""The device that trains, and whether it multiplies bfloat16 natively."""

import torch

from training.softmax.device import native_bfloat16

__all__ = ["choose_device", "native_bfloat16"]


def choose_device(name: str) -> torch.device:
    """Return a device; `auto` is CUDA where there is one, else the CPU.

    Raises `ValueError` for a device that torch does not know or that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} is not available: {str(error).splitlines()[0]}") from error
    return device
