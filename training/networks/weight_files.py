"""Files of pretrained weights."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from models.native import native_errors

__all__ = ["read_weights"]


@native_errors("a library that reads weights")
def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file, or in one that `torch.save` wrote; nothing in it is run.

    Raises `OSError` where it cannot be read, and `ValueError` where it holds something else.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found: object = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error
    except Exception as error:  # a damaged pickle raises errors of any class
        reason = str(error).partition(". ")[0] or type(error).__name__
        raise ValueError(f"{path} is not a file of weights: {reason}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a file of weights: it holds an object of type {type(found).__name__}")
    return {name: each for name, each in found.items() if isinstance(name, str) and isinstance(each, Tensor)}
