"""The device that trains, and whether it multiplies bfloat16 natively."""

import torch

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


def native_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies bfloat16 matrices in hardware; emulation is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
