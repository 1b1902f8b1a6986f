"""The HTTP service: models behind a batching engine. Never imports `training`, never needs torch for ONNX bundles."""

from importlib.util import find_spec
from pathlib import Path


def _check_models() -> None:
    """Raise `ImportError` where another package named `models`, such as one in the working directory, comes first."""
    own = Path(__file__).resolve().parents[1] / "models" / "__init__.py"
    found = find_spec("models")
    if found is not None and found.origin is not None and Path(found.origin).resolve() != own:
        raise ImportError(
            f"{found.origin} hides the package models of Softserve, {own}: rename it, or start Python elsewhere"
        )


_check_models()
