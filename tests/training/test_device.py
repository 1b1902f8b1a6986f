"""The device that trains."""

import pytest
import torch

from training.device import choose_device, native_bfloat16


def test_devices_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="'toaster' is not available"):
        choose_device("toaster")
    for available, chosen in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert choose_device("auto") == torch.device(chosen)


@pytest.mark.parametrize(
    ("capabilities", "native"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"bf16": True}, True),
        ({"avx512_bf16": False, "amx_bf16": False, "avx512_f": True, "amx_tile": True}, False),
        ({}, False),
    ],
    ids=str,
)
def test_bfloat16_is_native_where_the_processor_multiplies_it(
    capabilities: dict[str, bool], native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert native_bfloat16(torch.device("cpu")) == native
