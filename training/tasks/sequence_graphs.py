"""The contracts of the graphs `encode` and `step`, which all models have that write a target from a source.

Shapes: `B` sources, `K` hypotheses a source, `S` source tokens, `M` slots of a cache, `C` candidates a hypothesis,
`d` hidden size, `H` heads.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from training.bundling.graphs import ExportGraph, contract, random_sequences
from training.networks.sequence_to_sequence import SequenceToSequenceModel

__all__ = ["example_source", "example_step", "sequence_graphs"]

_STEPS = 4
"""Steps in an example's caches."""


def sequence_graphs(model: SequenceToSequenceModel, encoder: nn.Module, step: nn.Module) -> Mapping[str, ExportGraph]:
    """Return the graphs of a model as the manifest names them.

    `encoder` reads sources `[B, S]` and lengths `[B]`, and returns for each layer keys and values `[B, H, S, d / H]`,
    then the model's `source_tensors`.
    `step` reads tokens `[B, K]`, positions `[B]`, slots `[B, K]`, visible `[B, K, M]`, source lengths `[B]`, `C` as `k`
    `[]`, the caches' keys and values `[B, H, M, d / H]` of each layer, and the encoder's outputs; it returns
    log-probabilities and tokens `[B, K, C]`, most likely first, and the new caches. That of a model which
    `reads_slot_positions` reads the positions of the slots `[B, M]` after `k`.
    """
    source = example_source(model, batch_size=3, length=7, seed=0)
    with torch.no_grad():
        found = encoder(*source)
    _, heads, _, size = found[0].shape
    memory: dict[str, tuple[str, tuple[str | int, ...]]] = {}
    caches: dict[str, tuple[str, tuple[str | int, ...]]] = {}
    lengths = ("int64", ("batch",))
    for index in range((len(found) - len(model.source_tensors)) // 2):
        for part in ("keys", "values"):
            memory[f"memory_{part}_{index}"] = ("float32", ("batch", heads, "source", size))
            caches[f"{part}_{index}"] = ("float32", ("batch", heads, "slots", size))
    memory |= model.source_tensors
    encode = contract({"source": ("int64", ("batch", "source")), "source_lengths": lengths}, memory)
    take_step = contract(
        {
            "tokens": ("int64", ("batch", "beam")),
            "positions": lengths,
            "slots": ("int64", ("batch", "beam")),
            "visible": ("bool", ("batch", "beam", "slots")),
            "source_lengths": lengths,
            "k": ("int64", ()),
            **({"slot_positions": ("int64", ("batch", "slots"))} if model.reads_slot_positions else {}),
            **caches,
            **memory,
        },
        {
            "log_probabilities": ("float32", ("batch", "beam", "k")),
            "candidates": ("int64", ("batch", "beam", "k")),
            **{f"new_{name}": tensor for name, tensor in caches.items()},
        },
    )
    example = example_step(model, encoder, batch_size=3, beam=2, length=7, seed=1)
    return {
        "encode": ExportGraph(encoder, encode, source),
        "step": ExportGraph(step, take_step, example),
    }


def example_source(model: SequenceToSequenceModel, *, batch_size: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return random sources `[B, S]` and lengths `[B]`, of which the first is S."""
    generator = torch.Generator().manual_seed(seed)
    return random_sequences(model.source_size, batch_size, length, generator)


@torch.no_grad()
def example_step(
    model: SequenceToSequenceModel, encoder: nn.Module, *, batch_size: int, beam: int, length: int, seed: int
) -> tuple[Tensor, ...]:
    """Return inputs of one of the first steps, caches filled with random numbers."""
    generator = torch.Generator().manual_seed(seed)
    source, lengths = example_source(model, batch_size=batch_size, length=length, seed=seed)
    memory = encoder(source, lengths)
    positions, count = torch.randint(_STEPS, (batch_size,), generator=generator), _STEPS * beam
    slots = torch.rand(batch_size, count, generator=generator).argsort(dim=1)[:, :beam]
    own = slots[:, :, None] == torch.arange(count)
    past = (torch.rand(own.shape, generator=generator) < 0.5) & ~own.any(dim=1, keepdim=True)
    _, heads, _, size = memory[0].shape
    caches = (
        torch.rand(len(memory) - len(model.source_tensors), batch_size, heads, count, size, generator=generator) * 2 - 1
    )
    tokens = torch.randint(model.output_layer.weight.shape[0], (batch_size, beam), generator=generator)
    state = *caches, *memory
    if model.reads_slot_positions:
        state = torch.randint(_STEPS, (batch_size, count), generator=generator), *state
    return tokens, positions, slots, own | past, lengths, torch.tensor(2 * beam), *state
