"""What the tasks have in common that learn to write a target from a source."""

import abc
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from torch import Tensor, device

from training.data.batching import IGNORED
from training.data.pair_batching import PairBatch, PairBatches
from training.networks.sequence_to_sequence import SequenceToSequenceModel
from training.tasks.task import Batches, Quality

__all__ = ["SequenceToSequenceTask"]


QualityT = TypeVar("QualityT", bound=Quality)


class _Decoder(Protocol):
    end_id: int

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]: ...


class SequenceToSequenceTask(abc.ABC, Generic[QualityT]):
    """Learns the next token of each target; is selected by what greedy search writes."""

    metric: str
    maximize = True
    tokenizer: _Decoder
    device: device
    model: SequenceToSequenceModel

    @abc.abstractmethod
    def initialize(self) -> None:
        """See `Task`."""

    @abc.abstractmethod
    def batches(self, split: str) -> PairBatches:
        """Batches of a split; training batches are shuffled by the recipe's seed and lack pairs that are too long."""

    @abc.abstractmethod
    def most_tokens(self, batch: PairBatch) -> int:
        """Tokens that what is written of a batch's sources may have."""

    @abc.abstractmethod
    def quality(self, outputs: Sequence[str], references: Sequence[str], batches: Batches[PairBatch]) -> QualityT:
        """How good what was written of a split is; `references` are the targets as the tokenizer spells them."""

    def loss(self, batch: PairBatch) -> tuple[Tensor, int]:
        """Summed loss over the batch's targets and their number."""
        targets = batch.targets.to(self.device)
        hidden = self.model(
            batch.source.to(self.device), batch.source_lengths.to(self.device), batch.inputs.to(self.device)
        )
        valid = targets != IGNORED
        kept = targets[valid]
        return self.model.output_layer.loss(hidden[valid], kept), kept.shape[0]

    def evaluate(self, batches: Batches[PairBatch]) -> QualityT:
        """Of what greedy search writes, dropout off."""
        was_training = self.model.training
        self.model.eval()
        found: dict[int, tuple[str, str]] = {}
        for batch in batches.epoch(0):
            texts = self.tokenizer.decode_batch(self._greedy(batch))
            references = self.tokenizer.decode_batch([row[row != IGNORED].tolist() for row in batch.targets])
            found |= zip(batch.indices.tolist(), zip(texts, references, strict=True), strict=True)
        self.model.train(was_training)
        ordered = [found[index] for index in sorted(found)]
        return self.quality([text for text, _ in ordered], [reference for _, reference in ordered], batches)

    def _greedy(self, batch: PairBatch) -> list[list[int]]:
        return self.model.greedy(
            batch.source.to(self.device),
            batch.source_lengths.to(self.device),
            end_id=self.tokenizer.end_id,
            max_tokens=self.most_tokens(batch),
        )

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        assert not state
