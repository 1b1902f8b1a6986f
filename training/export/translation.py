"""What the export of a translation model does differently from that of other tasks."""

from collections.abc import Mapping, Sequence

import sacrebleu

from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceQuery
from models.bundle.store import Model
from models.tasks.translation import Translator
from training.export.sequence_to_sequence import CALIBRATION_SOURCES, SequenceExport
from training.export.translation_graphs import translation_graphs
from training.networks.translation_model import TranslationModel
from training.tasks.translation import TranslationTask, split_pairs

__all__ = ["TranslationExport", "bundle_bleu"]


class TranslationExport(SequenceExport):
    """Graphs, manifest fields and quality of a translation model."""

    torchscript = "translation_model.pt"
    positions = ("network.positions",)

    def __init__(self, task: TranslationTask) -> None:
        self.task = task
        self.tokenizer = task.tokenizer
        self.graphs = translation_graphs(task.model)

    def network(self) -> TranslationModel:
        return self.task.model

    def end_id(self) -> int:
        return self.tokenizer.end_id

    def files(self) -> Mapping[str, str]:
        return {}

    def description(self) -> Mapping[str, object]:
        network, data = self.task.recipe.network, self.task.recipe.data
        positions = self.task.model.network.positions.shape[0]
        sizes = network.model_dump(exclude={"preset", "dropout"})
        return {
            "network": {"kind": "transformer", **sizes, "positions": positions},
            "languages": {"source": data.source, "target": data.target},
        }

    def calibration(self) -> Sequence[SourceQuery]:
        texts = [source for source, _ in split_pairs(self.task.recipe.data, "train", self.task.data_dir)]
        sources = self.tokenizer.encode_batch(texts[:: -(-len(texts) // CALIBRATION_SOURCES)])
        return [SourceQuery(tuple(ids), 1, SearchOptions(), 2 * len(ids) + 10) for ids in sources]

    def measure(self, model: Model, split: str, corpus: str | None = None) -> Mapping[str, float]:
        assert isinstance(model, Translator)
        data = self.task.recipe.data
        if corpus is not None:
            data = data.model_copy(update={"corpus": corpus, "files": None})
        return bundle_bleu(model, split_pairs(data, split, self.task.data_dir))


def bundle_bleu(model: Translator, pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """BLEU and chrF of a loaded bundle, beam size 5, through the same code that serves it."""
    translations = [result.translations[0].text for result in model.translate([source for source, _ in pairs])]
    references = [target for _, target in pairs]
    return {
        "BLEU": sacrebleu.corpus_bleu(translations, [references]).score,
        "chrF": sacrebleu.corpus_chrf(translations, [references]).score,
    }
