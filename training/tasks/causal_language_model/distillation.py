"""Distillation: a causal language model learns from the distributions of another one as well as from the texts.

Shapes: `N` positions with a target, `d` hidden size, `V` tokens of the vocabulary.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from models.tasks.causal_tokenizer import CausalTokenizer
from training.data.batching import IGNORED
from training.data.window_batching import WindowBatch
from training.networks.causal_transformer import CausalTransformer
from training.networks.pretrained_causal import PretrainedCausal
from training.softmax import GeneralizedSoftmax

__all__ = ["Teacher", "check_teacher"]


@dataclass(frozen=True, slots=True)
class Teacher:
    """A model whose distributions another one learns, without dropout and gradients."""

    network: CausalTransformer
    layer: GeneralizedSoftmax
    tokenizer: CausalTokenizer

    @classmethod
    def of_pretrained(cls, source: PretrainedCausal) -> Self:
        """Return a pretrained model with its own output layer."""
        matrix, settings = source.head.linear.weight, source.network.settings
        classes, size = matrix.shape
        layer = GeneralizedSoftmax(classes, size, "lin", softcap=settings.final_softcap)
        with torch.no_grad():
            layer.weight.copy_(matrix)
        return cls(source.network, layer, source.tokenizer)

    def on(self, device: torch.device) -> Self:
        """Return the teacher, moved to a device, ready to be used."""
        for module in (self.network, self.layer):
            module.to(device).eval().requires_grad_(False)
        return self

    def divergence(self, batch: WindowBatch, layer: GeneralizedSoftmax, hidden: Tensor, temperature: float) -> Tensor:
        """Return the sum of `KL(teacher || layer)` over the positions with a target, in nats.

        `hidden` are the context vectors `[N, d]` of the model that learns. The scores of both are divided by the
        temperature T, and the sum is multiplied by `T^2`, so that the gradients of a softmax have the size of those
        without a temperature (Hinton et al. 2015).
        """
        with torch.no_grad():
            outputs = self.network(batch.inputs, batch.places, batch.texts)[batch.targets != IGNORED]
        found = layer.kl_divergence(hidden, self.layer, outputs, temperature=temperature)
        return temperature**2 * found.sum()


def check_teacher(teacher: Teacher, tokenizer: CausalTokenizer, classes: int, positions: int) -> None:
    """Raise `ValueError` unless a teacher has the tokens of a model with so many classes, and reads its texts."""
    own, other = (
        (each.start_id, each.end_id, [each.word(token) for token in range(each.vocab_size)])
        for each in (tokenizer, teacher.tokenizer)
    )
    if own != other or teacher.layer.weight.shape[0] != classes:
        raise ValueError(
            "distillation.teacher has another vocabulary; a run from scratch takes over that of another run as its "
            "`initial` or as its teacher, and a pretrained network needs a teacher of its own vocabulary"
        )
    if teacher.network.settings.positions < positions:
        raise ValueError(
            f"distillation.teacher reads {teacher.network.settings.positions} tokens at most, fewer than "
            f"network.positions, {positions}"
        )
