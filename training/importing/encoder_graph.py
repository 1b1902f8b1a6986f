"""The graph of imported text classifiers: a module of transformers with the attention of exported graphs.

Shapes: `B` texts, `T` tokens, `C` classes, `d` hidden size, `H` heads.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.bundling.topk import top_k
from training.importing.disentangled import DisentangledAttention
from training.importing.importer import need
from training.networks.operators import attend

__all__ = ["ClassifyEncoderGraph", "log_probabilities", "top_classes"]

_ATTENTION = "softserve"
"""Name of `_attend` among the attention functions of transformers."""


def log_probabilities(logits: Tensor, *, independent: bool) -> Tensor:
    """Return log-probabilities of logits, both `[B, C]`: of one softmax, or of a sigmoid for each class."""
    return functional.logsigmoid(logits) if independent else functional.log_softmax(logits, dim=-1)


def top_classes(logits: Tensor, k: Tensor, *, independent: bool) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and numbers of the k best classes: `[B, C]`, `[]` -> two of `[B, k]`."""
    return top_k(log_probabilities(logits, independent=independent), k)


class ClassifyEncoderGraph(nn.Module):
    """Computes the most probable classes of each text."""

    def __init__(self, model: Any, *, first_position: int | None, independent: bool) -> None:
        """`model` is a classifier of transformers, of which a copy that shares the weights is changed.

        `first_position` is the number of the first token's position, None for a model that numbers positions itself.
        """
        super().__init__()
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.model = copy.deepcopy(model, shared)
        self._first_position, self._independent = first_position, independent
        need("transformers").AttentionInterface.register(_ATTENTION, _attend)
        self.model.config._attn_implementation = _ATTENTION
        for layer in self.model.modules():
            attention = getattr(layer, "self", None)
            if type(attention).__name__ == "DisentangledSelfAttention":
                positions = self.model.config.max_position_embeddings
                layer.self = DisentangledAttention(attention, _relative_vectors(self.model), positions)

    def forward(self, tokens: Tensor, lengths: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """tokens `[B, T]`, lengths `[B]`, k `[]` -> log-probabilities and numbers of the k best classes, `[B, k]`."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        options: dict[str, Any] = {"attention_mask": (places < lengths[:, None]).long()}
        if self._first_position is not None:
            options["position_ids"] = places[None] + self._first_position
        logits = self.model(input_ids=tokens, lengths=lengths, **options).logits
        return top_classes(logits, k, independent=self._independent)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    lengths: Tensor,
    scaling: float | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """Attend to the first `lengths` `[B]` keys: three of `[B, H, T, d / H]` -> `[B, T, H, d / H]`."""
    del module, attention_mask, options
    heads, size = query.shape[1], query.shape[3]
    scaled = query * (size**-0.5 if scaling is None else scaling)
    queries, keys, values = (part.transpose(1, 2).flatten(2) for part in (scaled, key, value))
    return attend(queries, keys, values, lengths, heads).unflatten(-1, (heads, size)), None


def _relative_vectors(model: Any) -> Tensor | None:
    """Return the vectors of relative positions of a DeBERTa model, `[2 S, d]`, if it has any."""
    with torch.no_grad():
        vectors: Tensor | None = model.base_model.encoder.get_rel_embedding()
        return vectors
