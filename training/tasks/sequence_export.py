"""Export of models that write a target from a source: verification, int8 weights, measurement.

Shapes: `B` sources, `K` hypotheses a source, `C` candidates a hypothesis, `V` tokens.
"""

import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import torch
from torch import Tensor

from models.backend import Array, Backend
from models.bundle.contract import SpecialTokens
from models.bundle.manifest import Graph
from models.decoding.beam_search import SearchOptions
from models.decoding.continuous import Decoding, Footprint
from models.decoding.sequence_to_sequence import SourceSequence
from training.bundling.calibration import RangeRecorder
from training.bundling.graphs import ExportGraph
from training.bundling.quantize import quantize_int8_static
from training.bundling.task_export import TOKENIZER, TaskExport
from training.bundling.verify import absolute_difference, inputs_of, outputs_of
from training.networks.sequence_to_sequence import SequenceToSequenceModel
from training.tasks.sequence_graphs import example_source, example_step
from training.tasks.sequence_to_sequence import SequenceToSequenceTask

__all__ = [
    "CALIBRATION_SOURCES",
    "LONGEST",
    "ComparedRun",
    "SequenceExport",
    "compared_runs",
    "difference_by_token",
    "largest_run_difference",
    "largest_sequence_difference",
    "quantize_sequences",
]

CALIBRATION_SOURCES = 256
"""Training texts by which int8 ranges are set."""
_CALIBRATION_BATCH = 32
_CALIBRATION_BEAM = 4

_SHAPES = ((1, 1, 1), (2, 5, 40), (5, 3, 11))
"""Sources, hypotheses and source lengths to compare at; none is the one that was traced (3, 2, 7)."""
LONGEST = max(length for _, _, length in _SHAPES)
"""The longest source that graphs are compared at."""


class SequenceExport(TaskExport):
    """Export of a model that writes a target from a source."""

    quantization = "int8-static"
    positions: ClassVar[tuple[str, ...]]
    """Tables of positions, which are small and stay float32 in int8 graphs."""

    task: SequenceToSequenceTask[Any]

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.task.tokenizer.save}

    @abc.abstractmethod
    def calibration(self) -> Sequence[SourceSequence]:
        """Return training texts to observe activations with."""

    @property
    def longest(self) -> int:
        """Return the length of the longest source that graphs are compared at."""
        return LONGEST

    def largest_difference(self, backend: Backend) -> float:
        return largest_sequence_difference(backend, self.graphs, self.task.model, longest=self.longest)

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        """Return graphs with int8 products, by the ranges of activations in beam searches on training texts."""
        tokens = SpecialTokens(unknown=self.task.tokenizer.unknown_id, end=self.task.tokenizer.end_id)
        vocab_size = self.task.model.output_layer.weight.shape[0]
        contracts = {name: graph.contract for name, graph in self.graphs.items()}
        return quantize_sequences(
            models, contracts, self.calibration(), tokens=tokens, vocab_size=vocab_size, keep=self.positions
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRun:
    """One run of a graph, and what its module computes of the same inputs."""

    graph: str
    inputs: Mapping[str, Array]
    lengths: Array
    """Tokens of each source `[B]`; values at padding are not compared."""
    expected: Mapping[str, Array]
    ranked: tuple[Array, Array] | None
    """Of a step, log-probabilities and tokens `[B, K, V]`, most likely first."""
    in_logarithms: bool
    """Whether logarithms of probabilities are compared; where one falls to 0, rounding moves it without a bound."""


@torch.no_grad()
def compared_runs(
    graphs: Mapping[str, ExportGraph], model: SequenceToSequenceModel, *, longest: int = LONGEST
) -> list[ComparedRun]:
    """Return runs of both graphs at several shapes, computed by the modules."""
    encoder, found = graphs["encode"].module, []
    for seed, (batch_size, beam, most) in enumerate(_SHAPES, 10):
        length = min(most, longest)
        source, lengths = example_source(model, batch_size=batch_size, length=length, seed=seed)
        step = example_step(model, encoder, batch_size=batch_size, beam=beam, length=length, seed=seed)
        for name, inputs in (("encode", (source, lengths)), ("step", step)):
            ranked = _with_k(graphs[name], inputs, model.output_layer.weight.shape[0]) if name == "step" else None
            run = ComparedRun(
                graph=name,
                inputs=inputs_of(graphs[name], inputs),
                lengths=lengths.numpy(),
                expected=outputs_of(graphs[name], inputs),
                ranked=ranked,
                in_logarithms=model.output_layer.alpha == 1.0,
            )
            found.append(run)
    return found


def largest_run_difference(backend: Backend, runs: Sequence[ComparedRun]) -> float:
    """Return the largest difference of a backend over all outputs of all runs, except on padding."""
    return float(np.max([_run_difference(backend, run) for run in runs]))


def _run_difference(backend: Backend, run: ComparedRun) -> float:
    names, worst = list(run.expected), 0.0
    got = dict(zip(names, backend.run(run.graph, run.inputs, names), strict=True))
    scale = np.asarray if run.in_logarithms else np.exp
    for key, value in run.expected.items():
        if key == "candidates":
            assert run.ranked is not None
            values, tokens = run.ranked
            difference = difference_by_token(scale(values), tokens, scale(got["log_probabilities"]), got[key])
        elif key == "log_probabilities":
            difference = absolute_difference(scale(value), scale(got[key]))
        else:
            difference = absolute_difference(value, got[key])
        if key.startswith("memory"):
            padding = np.arange(value.shape[2]) >= run.lengths[:, None]
            np.moveaxis(difference, 2, 1)[padding] = 0
        worst = float(np.maximum(worst, np.max(difference)))
    return worst


def largest_sequence_difference(
    backend: Backend, graphs: Mapping[str, ExportGraph], model: SequenceToSequenceModel, *, longest: int = LONGEST
) -> float:
    """Return the largest difference over both graphs, all outputs and several shapes, except on padding."""
    return largest_run_difference(backend, compared_runs(graphs, model, longest=longest))


def _with_k(graph: ExportGraph, inputs: tuple[Tensor, ...], k: int) -> tuple[Array, Array]:
    """Return the log-probabilities and tokens `[B, K, k]` of the module of `step`."""
    given = dict(zip([each.name for each in graph.contract.inputs], inputs, strict=True)) | {"k": torch.tensor(k)}
    found = outputs_of(graph, tuple(given.values()))
    return found["log_probabilities"], found["candidates"]


def difference_by_token(log_probabilities: Array, tokens: Array, found: Array, candidates: Array) -> Array:
    """Return the differences of log-probabilities `[B, K, C]` from those of the same tokens.

    log_probabilities and tokens: of all tokens, most likely first, `[B, K, V]`; found and candidates: `[B, K, C]`.
    Tokens are not compared rank by rank, since those of equal log-probabilities may change places. A token that a
    sparse layer leaves out counts as the least probable one that it keeps, since rounding may decide which that is.
    """
    if candidates.min() < 0 or candidates.max() >= tokens.shape[-1]:
        return np.full_like(found, np.inf)
    by_token = np.take_along_axis(log_probabilities, tokens.argsort(-1), -1)
    expected = np.take_along_axis(by_token, candidates, -1)
    least = np.where(np.isneginf(by_token), np.inf, by_token).min(-1, keepdims=True)
    return absolute_difference(np.where(np.isneginf(expected) & ~np.isneginf(found), least, expected), found)


def quantize_sequences(
    models: Mapping[str, onnx.ModelProto],
    contracts: Mapping[str, Graph],
    queries: Sequence[SourceSequence],
    *,
    tokens: SpecialTokens,
    vocab_size: int,
    keep: Collection[str],
) -> Mapping[str, onnx.ModelProto]:
    """Return graphs with int8 products, by the ranges of activations in beam searches; `keep` stays float32."""
    recorder = RangeRecorder(models)
    footprint = Footprint.of_encoder(contracts["encode"], vocab_size=vocab_size)
    for first in range(0, len(queries), _CALIBRATION_BATCH):
        group = queries[first : first + _CALIBRATION_BATCH]
        decoding = Decoding(
            recorder,
            footprint=footprint,
            beam_size=_CALIBRATION_BEAM,
            end_id=tokens.end,
            start_id=tokens.start,
            idle_share=0.0,  # finished sentences would be observed too
            slot_positions=any(each.name == "slot_positions" for each in contracts["step"].inputs),
        )
        searches = [
            (index, SearchOptions(prefix=query.options.prefix), query.max_tokens) for index, query in enumerate(group)
        ]
        decoding.add([query.tokens for query in group], searches)
        while len(decoding):
            decoding.step()
    return {name: quantize_int8_static(model, recorder.ranges(name), keep=keep) for name, model in models.items()}
