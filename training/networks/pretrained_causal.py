"""Pretrained causal language models that a training starts from.

Directories are read by `training.importing`, which registers its reader here: it imports tasks, which therefore cannot
import it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from models.bundle.contract import SpecialTokens
from models.registry import Registry
from models.tasks.causal_tokenizer import CausalTokenizer
from training.networks.causal_transformer import CausalHead, CausalSettings, CausalTransformer

__all__ = ["HUGGING_FACE", "READERS", "CausalDescription", "PretrainedCausal", "read_pretrained"]

HUGGING_FACE = "hugging-face"
"""The layout of directories that `softserve-train import` reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CausalDescription:
    """The description of a pretrained model that a run keeps in addition to tokenizer and weights."""

    settings: CausalSettings
    """Those of the network, without dropout."""
    special_tokens: SpecialTokens
    """Ids of the special tokens. The start token is that of the model, or the end where it has none."""
    tied: bool
    """Whether the vectors of tokens are the matrix of the model's own output layer."""

    def save(self, path: Path) -> None:
        """Write a JSON file."""
        path.write_bytes(_DESCRIPTION.dump_json(self, indent=2))

    @staticmethod
    def read(path: Path) -> "CausalDescription":
        """Return what `save` wrote."""
        return _DESCRIPTION.validate_json(path.read_bytes())


_DESCRIPTION = TypeAdapter(CausalDescription)


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainedCausal:
    """A causal language model that was read from a directory."""

    name: str
    description: CausalDescription
    tokenizer: CausalTokenizer
    network: CausalTransformer
    head: CausalHead
    """Its own output layer."""


READERS: Registry[Callable[[str], PretrainedCausal]] = Registry(
    "training.importing", "layout of pretrained causal models", group="softserve.pretrained_causal"
)
"""Readers of pretrained models, by the layout of their directories."""


def read_pretrained(where: str) -> PretrainedCausal:
    """Return the model of a directory, or of `hf:owner/name@revision`, as `softserve-train import` reads it.

    Raises `ValueError` for a directory that cannot be imported as a causal language model.
    """
    try:
        return READERS[HUGGING_FACE](where)
    except ValueError as error:
        raise ValueError(f"network.pretrained: {error}") from error
