"""Source texts and their target texts: from a corpus of the registry, or from a user's own files."""

from dataclasses import dataclass
from pathlib import Path

from training.data.corpus_splits import read_columns
from training.data.own_files import PAIRS
from training.tasks.text_generation.settings import GenerationSettings

__all__ = ["SourceTargets", "read_source_targets"]


@dataclass(frozen=True, slots=True)
class SourceTargets:
    """A source text and all its target texts, such as several questions about one sentence."""

    source: str
    targets: tuple[str, ...]


def read_source_targets(data: GenerationSettings, split: str, data_dir: Path) -> list[SourceTargets]:
    """Return the texts of `train`, `dev` or `test`, each once, in the order of the file.

    Raises the errors of `read_columns`.
    """
    targets: dict[str, list[str]] = {}
    for source, target in read_columns(data, split, data_dir, PAIRS):
        targets.setdefault(source, []).append(target)
    texts = [SourceTargets(source, tuple(found)) for source, found in targets.items()]
    return texts[: data.limit_of(split)]
