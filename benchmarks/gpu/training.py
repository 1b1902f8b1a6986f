"""Training steps on the device, by `benchmarks.training_step`: language models of the size of the Penn Treebank's.

Sentences are of made-up words whose frequencies follow Zipf's law: times do not depend on which words there are.
"""

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.gpu.results import Context, Values
from benchmarks.training_step import Options, measure

__all__ = ["run"]

_ROOT = Path(__file__).parents[2]
_KERNELS = ("lin", "mix2")
_WORDS, _SENTENCES, _LENGTH = 10_000, 20_000, 20
_UPDATES = 40
_OVERRIDES = (
    "network.hidden_size=650",
    "data.batch_tokens=1050",
    "data.min_count=1",
    "output_layer.variance_penalty=0",
)
_SMALL_OVERRIDES = ("network.hidden_size=16", "data.batch_tokens=64", "data.min_count=1")
_SMALL_SENTENCES, _SMALL_UPDATES = 60, 1


_OUTPUT_LAYER = ("output_layer.bias=false", "output_layer.variance_penalty=0.1")


def run(context: Context) -> None:
    """Write a row of each output layer: milliseconds of an update in float32 and bfloat16."""
    _write_sentences(context)
    for kernels in _KERNELS:
        context.measure(kernels, partial(_update, context, kernels))


def _update(context: Context, kernels: str) -> Values:
    chosen = _SMALL_OVERRIDES if context.small else _OVERRIDES
    options = Options(
        recipe=_ROOT / "training" / "recipes" / "own-language-model.yaml",
        data_dir=context.work,
        overrides=(*chosen, *_OUTPUT_LAYER, f"output_layer.kernels={kernels}"),
        updates=_SMALL_UPDATES if context.small else _UPDATES,
        device=context.device,
    )
    return {f"{name}_ms": 1000 * seconds for name, (seconds, _) in measure(options).items()}


def _write_sentences(context: Context) -> None:
    generator = np.random.default_rng(0)
    count = _SMALL_SENTENCES if context.small else _SENTENCES
    words = np.minimum(generator.zipf(1.2, (count, _LENGTH)), _WORDS)
    lines = (" ".join(f"w{word}" for word in line) for line in words.tolist())
    (context.work / "text.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
