"""Whether a device multiplies half precision natively."""

import torch

__all__ = ["native_bfloat16", "native_half"]


def native_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies bfloat16 matrices in hardware; emulation is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def native_half(kind: torch.dtype) -> bool:
    """Return whether the CPU multiplies float16 or bfloat16 matrices in hardware."""
    if kind == torch.bfloat16:
        return native_bfloat16(torch.device("cpu"))
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_fp16", "amx_fp16", "fp16_arith"))
