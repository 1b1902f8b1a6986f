"""What the export of a text generator does differently from that of other tasks."""

from collections.abc import Mapping, Sequence

from models.decoding.beam_search import SearchOptions
from models.tasks.text_generation import Generator
from models.decoding.sequence_to_sequence import SourceQuery
from models.bundle.store import Model
from training.data.rewritten_texts import RewrittenText, read_rewritten
from training.export.generation_graphs import generation_graphs
from training.export.sequence_to_sequence import CALIBRATION_SOURCES, SequenceExport
from training.networks.generation_model import GenerationModel
from training.tasks.generation_quality import measured
from training.tasks.text_generation import TextGenerationTask

__all__ = ["TextGenerationExport", "bundle_generation"]


class TextGenerationExport(SequenceExport):
    """Graphs, manifest fields and quality of a text generator."""

    torchscript = "generator.pt"
    positions = ("encoder.positions",)

    def __init__(self, task: TextGenerationTask) -> None:
        self.task = task
        self.tokenizer = task.tokenizer
        self.graphs = generation_graphs(task.model)

    def network(self) -> GenerationModel:
        return self.task.model

    def end_id(self) -> int:
        return self.tokenizer.end_id

    @property
    def longest(self) -> int:
        """What leaves room for some steps."""
        return min(super().longest, self.task.recipe.data.max_tokens)

    def files(self) -> Mapping[str, str]:
        return {}

    def description(self) -> Mapping[str, object]:
        data, export = self.task.recipe.data, self.task.recipe.export
        sizes = self.task.config.model_dump(include={"hidden_size", "inner_size", "heads", "layers", "positions"})
        return {
            "network": {"kind": "unilm", **sizes},
            "limits": {
                "max_tokens": min(export.max_tokens, data.max_tokens),
                "max_output_tokens": data.max_output_tokens,
            },
        }

    def calibration(self) -> Sequence[SourceQuery]:
        data = self.task.recipe.data
        texts = [each.source for each in read_rewritten(data, "train", self.task.data_dir)]
        sources = self.tokenizer.encode_batch(texts[:: -(-len(texts) // CALIBRATION_SOURCES)])
        cut = [tuple(ids[:-1][: data.max_tokens - 1]) for ids in sources]
        return [SourceQuery(ids, 1, SearchOptions(), data.max_output_tokens) for ids in cut]

    def measure(self, model: Model, split: str, corpus: str | None = None) -> Mapping[str, float]:
        assert isinstance(model, Generator)
        data = self.task.recipe.data
        if corpus is not None:
            data = data.model_copy(update={"corpus": corpus, "files": None})
        return bundle_generation(model, read_rewritten(data, split, self.task.data_dir))


def bundle_generation(
    model: Generator, texts: Sequence[RewrittenText], beam_size: int = 5, *, options: SearchOptions | None = None
) -> dict[str, float]:
    """Metrics of what a loaded bundle writes, through the same code that serves it."""
    results = model.generate([text.source for text in texts], beam_size, options=options, truncate=True)
    return measured([result.outputs[0].text for result in results], [text.targets for text in texts])
