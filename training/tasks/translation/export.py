"""Export of translation models: manifest section, calibration, measurement, model card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import sacrebleu

from models.bundle.manifest import BundleManifest
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.tasks.translation import TranslationConfig, Translator
from training.bundling.model_card import Card
from training.bundling.task_export import vocabulary_section
from training.tasks.sequence_export import CALIBRATION_SOURCES, SequenceExport
from training.tasks.translation.confidence import recipe_confidence
from training.tasks.translation.graphs import translation_graphs
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.sets import confidence_and_sets
from training.tasks.translation.task import TranslationTask

if TYPE_CHECKING:
    from training.bundling.bundle import Draft

__all__ = ["TranslationExport"]


class TranslationExport(SequenceExport):
    """Export of a translation model."""

    torchscript = "translation_model.pt"
    positions = ("network.positions",)

    task: TranslationTask

    def __init__(self, task: TranslationTask) -> None:
        self.task = task
        self.graphs = translation_graphs(task.model)

    def config(self) -> Mapping[str, object]:
        recipe = self.task.recipe
        positions = self.task.model.network.positions.shape[0]
        sizes = recipe.network.model_dump(exclude={"preset", "dropout"})
        return {
            "network": {"kind": "transformer", **sizes, "positions": positions},
            "languages": {"source": recipe.data.source, "target": recipe.data.target},
            **vocabulary_section(self.task.tokenizer),
            "limits": {"max_tokens": recipe.export.max_tokens},
        }

    def calibration(self) -> Sequence[SourceSequence]:
        texts = [source for source, _ in split_pairs(self.task.recipe.data, "train", self.task.data_dir)]
        sources = self.task.tokenizer.encode_batch(texts[:: -(-len(texts) // CALIBRATION_SOURCES)])
        return [SourceSequence(tuple(ids), 1, SearchOptions(), 2 * len(ids) + 10) for ids in sources]

    def calibrated(self, model: Translator, data_dir: Path) -> Mapping[str, object]:
        data = self.task.recipe.data
        confidence = recipe_confidence(model, data, data_dir)
        found = confidence_and_sets(model, confidence, split_pairs(data, "dev", data_dir))
        self.calibration_files = found.files
        return found.fields

    def extend(self, draft: "Draft", data_dir: Path) -> None:
        # Writing graphs imports libraries that take seconds.
        from training.tasks.translation.alignment import extend_draft

        recipe = self.task.recipe
        texts = [source for source, _ in split_pairs(recipe.data, "dev", data_dir)]
        guided = recipe.guided_alignment
        extend_draft(draft, texts, None if guided is None else guided.place(recipe.network.decoder_layers))

    @classmethod
    def card(cls, manifest: BundleManifest[TranslationConfig]) -> Card:
        config, network = manifest.config, manifest.config.network
        return Card(
            unit="words",
            network=f"Transformer, {network.encoder_layers} + {network.decoder_layers} layers, {network.hidden_size} "
            f"hidden units, {network.heads} heads, feed-forward {network.inner_size}, {network.norm}-norm, "
            "word vectors tied",
            outputs=f"Vocabulary: {config.vocab_size} tokens of both languages, `<unk>` and the sentence end `</s>` "
            "included",
            limits=f"Sentences of up to {config.limits.max_tokens} tokens are accepted. It knows what its corpus\n"
            "says and repeats the corpus's biases; it is no source of facts.",
            quality="Of translations with beam size 5, detokenized and cased, by sacrebleu"
            f" (BLEU {_signature(sacrebleu.BLEU())}, chrF {_signature(sacrebleu.CHRF())}).{_confidence(config)}",
            columns={"BLEU": "BLEU", "chrF": "chrF"},
            references={"BLEU": None},
        )


def _confidence(config: TranslationConfig) -> str:
    """Return the description of the confidence for the card."""
    found = config.confidence
    if found is None:
        return ""
    data = "the validation split" if found.fitted_on == "validation split" else found.fitted_on
    return (
        f"\n\nAnswers have a `confidence`, the probability that chrF to a reference is at least {found.poor_chrf:g}. It"
        f" was fitted on {found.sentences:,} sentences: {data}, changed ones and noise. Of those held out"
        f" AUROC is {found.auroc:.3f} and the calibration error {found.calibration_error:.3f}. `low_confidence` is"
        f" said below {found.threshold:g}: {100 * found.precision:.0f} % of these translations of {data}"
        f" are poor, and {100 * found.recall:.0f} % of all poor ones are found."
    )


def _signature(metric: sacrebleu.BLEU | sacrebleu.CHRF) -> str:
    metric.corpus_score(["a"], [["a"]])  # the number of references is part of it
    return str(metric.get_signature())
