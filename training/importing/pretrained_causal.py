"""Causal language models of directories, for trainings that start from them."""

from training.importing.causal import CausalImporter
from training.importing.causal_config import ARCHITECTURE_NAMES
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions
from training.importing.source import open_source
from training.networks.pretrained_causal import HUGGING_FACE, READERS, CausalDescription, PretrainedCausal

__all__ = ["read_directory"]


@READERS.register(HUGGING_FACE)
def read_directory(where: str) -> PretrainedCausal:
    """Return the model of a directory, or of `hf:owner/name@revision`; raises `ImportRefused`."""
    source = open_source(where)
    if source.onnx is not None or source.architecture not in ARCHITECTURE_NAMES:
        found = source.onnx or source.architecture
        raise ImportRefused(f"{found} is none of the causal language models {', '.join(ARCHITECTURE_NAMES)}")
    model = CausalImporter(source, ImportOptions())
    special = model.special_tokens
    if special.start is None:
        special = special.model_copy(update={"start": special.end})
    return PretrainedCausal(
        name=source.name,
        description=CausalDescription(settings=model.causal.settings, special_tokens=special, tied=model.causal.tied),
        tokenizer=model.tokenizer,
        network=model.network,
        head=model.head,
    )
