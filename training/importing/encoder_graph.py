"""The graph of an imported encoder: a module of transformers, with the attention of exported graphs where it fits.

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

__all__ = ["EncoderModule", "TopClasses", "log_probabilities"]

_ATTENTION = "softserve"
"""Name of `_attend` among the attention functions of transformers."""


def log_probabilities(logits: Tensor, *, independent: bool) -> Tensor:
    """Return log-probabilities of logits, both `[B, C]`: of one softmax, or of a sigmoid for each class."""
    return functional.logsigmoid(logits) if independent else functional.log_softmax(logits, dim=-1)


class TopClasses(nn.Module):
    """Chooses the most probable classes of each text by its scores."""

    def __init__(self, *, independent: bool, normalizers: bool = False) -> None:
        """`normalizers` adds an output, the logarithm of the softmax's denominator."""
        super().__init__()
        self._independent, self._normalizers = independent, normalizers

    def forward(self, output: Any, lengths: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        """k `[]` -> log-probabilities and numbers of the k best classes, `[B, k]`, and the normalizers `[B]`."""
        del lengths
        values = log_probabilities(output.logits, independent=self._independent)
        best = top_k(values, k)
        return (*best, output.logits[:, 0] - values[:, 0]) if self._normalizers else best


class EncoderModule(nn.Module):
    """A module of transformers and a head on its output."""

    def __init__(self, model: Any, head: nn.Module, *, fused: bool, first_position: int | None, segments: bool) -> None:
        """`model` is one of transformers. Where `fused`, a copy that shares the weights is given other attention.

        `first_position` is the number of the first token's position, None for a model that numbers positions itself.
        With `segments`, the graph takes the place of the second text's first token, from which the second segment
        begins.
        """
        super().__init__()
        self.head, self._segments, self._fused, self._first_position = head, segments, fused, first_position
        if not fused:
            self.model = model
            return
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.model = copy.deepcopy(model, shared)
        need("transformers").AttentionInterface.register(_ATTENTION, _attend)
        self.model.config._attn_implementation = _ATTENTION
        for layer in self.model.modules():
            attention = getattr(layer, "self", None)
            if type(attention).__name__ == "DisentangledSelfAttention":
                positions = self.model.config.max_position_embeddings
                layer.self = DisentangledAttention(attention, _relative_vectors(self.model), positions)

    def forward(self, tokens: Tensor, lengths: Tensor, *further: Tensor) -> Any:
        """tokens `[B, T]`, lengths `[B]`, with segments the places of second texts `[B]`, and inputs of the head."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        options: dict[str, Any] = {"attention_mask": (places < lengths[:, None]).long()}
        if self._segments:
            second, *further = further  # type: ignore[assignment]
            options["token_type_ids"] = (places >= second[:, None]).long()
        if self._first_position is not None:
            options["position_ids"] = places[None] + self._first_position
        if self._fused:
            options["lengths"] = lengths
        return self.head(self.model(input_ids=tokens, **options), lengths, *further)


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
