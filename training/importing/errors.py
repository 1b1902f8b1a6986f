"""The error of imports, and what its messages advise."""

from pydantic import ValidationError

__all__ = ["BY_ONNX", "BY_OWN_IMPORTER", "SAVED_AGAIN", "ImportRefused", "described"]

BY_ONNX = (
    "import its ONNX file where it has one (path/onnx/model.onnx or hf:owner/name:onnx/model.onnx), or make one: "
    "optimum-cli export onnx --model DIRECTORY OUTPUT (with --trust-remote-code its own code runs), torch.onnx.export"
)
"""Advice for encoders: any that torch computes can be served by its ONNX graph."""
BY_OWN_IMPORTER = "an importer of it can be added by the entry points softserve.training.importing"
"""Advice for language models and translation models, which are not imported from ONNX files."""
SAVED_AGAIN = "save it again by save_pretrained of transformers, or download it again"
"""Advice for damaged or incomplete files."""


class ImportRefused(ValueError):
    """A model directory that cannot become a bundle; the message says why, and what can be done instead."""


def described(error: ValidationError) -> str:
    """Return the error of each field, in one line."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
