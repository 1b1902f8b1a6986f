"""Export of text generators: manifest section, calibration, measurement, model card."""

from collections.abc import Mapping, Sequence

from models.bundle.manifest import BundleManifest
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.tasks.text_generation import GenerationConfig
from training.bundling.model_card import Card
from training.bundling.task_export import vocabulary_section
from training.tasks.sequence_export import CALIBRATION_SOURCES, SequenceExport
from training.tasks.text_generation.graphs import generation_graphs
from training.tasks.text_generation.reading import read_source_targets
from training.tasks.text_generation.task import TextGenerationTask

__all__ = ["TextGenerationExport"]


class TextGenerationExport(SequenceExport):
    """Export of a text generator."""

    torchscript = "generator.pt"
    positions = ("encoder.positions",)

    task: TextGenerationTask

    def __init__(self, task: TextGenerationTask) -> None:
        self.task = task
        self.graphs = generation_graphs(task.model)

    @property
    def longest(self) -> int:
        """Return the length of the longest source that leaves positions for some steps."""
        return min(super().longest, self.task.recipe.data.max_tokens)

    def config(self) -> Mapping[str, object]:
        data, export = self.task.recipe.data, self.task.recipe.export
        sizes = self.task.config.model_dump(include={"hidden_size", "inner_size", "heads", "layers", "positions"})
        return {
            "network": {"kind": "unilm", **sizes},
            **vocabulary_section(self.task.tokenizer),
            "limits": {
                "max_tokens": min(export.max_tokens, data.max_tokens),
                "max_output_tokens": data.max_output_tokens,
            },
        }

    def calibration(self) -> Sequence[SourceSequence]:
        data = self.task.recipe.data
        texts = [each.source for each in read_source_targets(data, "train", self.task.data_dir)]
        sources = self.task.tokenizer.encode_batch(texts[:: -(-len(texts) // CALIBRATION_SOURCES)])
        cut = [tuple(ids[:-1][: data.max_tokens - 1]) for ids in sources]
        return [SourceSequence(ids, 1, SearchOptions(), data.max_output_tokens) for ids in cut]

    @classmethod
    def card(cls, manifest: BundleManifest[GenerationConfig]) -> Card:
        config, network = manifest.config, manifest.config.network
        return Card(
            unit="words",
            network=f"BERT encoder that also writes (UniLM), {network.layers} layers, {network.hidden_size} hidden "
            f"units, {network.heads} heads, feed-forward {network.inner_size}, word vectors tied",
            outputs=f"Vocabulary: {config.vocab_size} word pieces",
            limits=f"Texts of up to {config.limits.max_tokens} word pieces are read, and up to "
            f"{config.limits.max_output_tokens} are written. It repeats\nthe biases of its corpus, and is no source of "
            "facts.",
            quality="Of texts written with beam size 5, 0 to 100: F1 of ROUGE with stemming, best of a text's "
            "references, and unsmoothed BLEU of words and punctuation in lower case. Equal sources count once.",
        )
