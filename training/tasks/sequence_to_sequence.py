"""Training that tasks share whose models write a target from a source."""

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor

from models.text.tokenization import EncoderTokenizer, SubwordTokenizer
from training.data.batching import IGNORED, Batches
from training.data.pair_batching import PairBatch, PairBatches
from training.networks.sequence_to_sequence import SequenceToSequenceModel
from training.softmax import Source
from training.tasks.evaluation import evaluate_examples
from training.tasks.task import Quality, Task

__all__ = ["SequenceToSequenceTask"]


QualityT = TypeVar("QualityT", bound=Quality)


class SequenceToSequenceTask(Task[PairBatch], abc.ABC, Generic[QualityT]):
    """Learns the next token of each target; is selected by the outputs of greedy search."""

    outputs = "tokens"
    tokenizer: SubwordTokenizer | EncoderTokenizer
    model: SequenceToSequenceModel

    @abc.abstractmethod
    def batches(self, split: str) -> Batches[PairBatch]:
        """Return the batches of a split; training batches are shuffled by the recipe's seed, without too long pairs."""

    @abc.abstractmethod
    def most_tokens(self, batch: PairBatch) -> int:
        """Return the largest number of tokens of an output for a batch's sources."""

    @abc.abstractmethod
    def quality(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> QualityT:
        """Return the quality of a split's outputs; `references` are one or more for each output."""

    def loss(self, batch: PairBatch) -> tuple[Tensor, int]:
        targets = batch.targets.to(self.device)
        given = (each.to(self.device) for each in (batch.source, batch.source_lengths, batch.inputs))
        if self.model.output_layer.reads_source:
            return self.target_loss(*self.model.read(*given), targets)
        return self.target_loss(self.model(*given), None, targets)

    def target_loss(self, hidden: Tensor, source: Source | None, targets: Tensor) -> tuple[Tensor, int]:
        """Return the summed loss of targets `[B, T]`, and their number.

        hidden `[B, T, d]`; `source` where the output layer reads it.
        """
        valid = targets != IGNORED
        kept = targets[valid]
        if source is not None:
            return self.model.output_layer.loss(hidden, targets, history=source), kept.shape[0]
        return self.model.output_layer.loss(hidden[valid], kept), kept.shape[0]

    def evaluate(self, batches: Batches[PairBatch]) -> QualityT:
        """Return the quality of greedy search; references are the decoded targets unless the batches have others."""
        return self.quality(*self.outputs_and_references(batches))

    def outputs_and_references(self, batches: Batches[PairBatch]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return the outputs of greedy search and the references of each."""
        outputs, targets = zip(*evaluate_examples(self.model, batches, self._greedy, self.group), strict=True)
        references = batches.references if isinstance(batches, PairBatches) else None
        return outputs, references or [(target,) for target in targets]

    def _greedy(self, batch: PairBatch) -> list[tuple[str, str]]:
        """Return outputs and targets."""
        outputs = self.model.greedy(
            batch.source.to(self.device),
            batch.source_lengths.to(self.device),
            end_id=self.tokenizer.end_id,
            max_tokens=self.most_tokens(batch),
        )
        targets = [row[row != IGNORED].tolist() for row in batch.targets]
        decode = self.tokenizer.decode_batch
        return list(zip(decode(outputs), decode(targets), strict=True))

    def report(self, split: str) -> list[str]:
        return [f"greedy, {metric} {value:.2f}" for metric, value in self.measure(split).metrics.items()]

    @classmethod
    def report_bundle(cls, model: Any, recipe: Any, split: str, data_dir: Path) -> list[str]:
        values = cls.measure_bundle(model, recipe, split, data_dir)
        return [f"beam 5, {metric} {value:.2f}" for metric, value in values.items()]
