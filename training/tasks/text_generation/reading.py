"""Source texts and their target texts: from a corpus of the registry, or from a user's own files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data.corpus_splits import corpus_split
from training.data.own_files import PAIRS, read_split
from training.data.pair_batching import Pair, PairBatches
from training.data.settings import GenerationSettings

__all__ = ["RewrittenBatches", "RewrittenText", "read_rewritten"]


@dataclass(frozen=True, slots=True)
class RewrittenText:
    """A source text and all its target texts, such as several questions about one sentence."""

    source: str
    targets: tuple[str, ...]


def read_rewritten(data: GenerationSettings, split: str, data_dir: Path) -> list[RewrittenText]:
    """Return the texts of `train`, `dev` or `test`, each once, in the order of the file.

    A split without a file is held out of the training texts (see
    `training.data.own_files.records_of_split`). Raises what `corpus_split` and, for own files, `read_split` raise.
    """
    if data.files is not None:
        pairs = read_split(data.files, split, data_dir)
    else:
        assert data.corpus is not None
        pairs = corpus_split(data.corpus, split, data_dir, PAIRS)
    targets: dict[str, list[str]] = {}
    for source, target in pairs:
        targets.setdefault(source, []).append(target)
    texts = [RewrittenText(source, tuple(found)) for source, found in targets.items()]
    return texts[: data.limit]


class RewrittenBatches(PairBatches):
    """Batches of pairs that know their texts: `indices` of a batch are places in `texts`, a pair each."""

    def __init__(
        self, texts: Sequence[RewrittenText], pairs: Sequence[Pair], *, end_id: int, batch_tokens: int
    ) -> None:
        super().__init__(pairs, end_id=end_id, batch_tokens=batch_tokens)
        self.texts = texts
