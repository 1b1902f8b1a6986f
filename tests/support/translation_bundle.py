"""Make a translation bundle with random weights, to compare engines at sizes that no trained bundle has.

    python -m tests.support.translation_bundle my-models --preset base

The bundle is written by the training package from a corpus of made-up words and an untrained model. Its end token has a
score below the best ones in every context, so that translations are as long as the limit allows.
"""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from torch import nn

from models.text.tokenization import SubwordTokenizer
from training.networks.translation_model import TranslationModel
from training.recipe import Recipe
from training.recipe.loading import load_recipe
from training.run import checkpoint
from training.run.directory import Evaluation, Progress, RunDirectory
from training.run.export import export_run
from training.run.session import open_task, start_run
from training.tasks.translation import TranslationTask

__all__ = ["make_bundle", "randomize"]

Preset = Literal["tiny", "small", "base"]

_RECIPE = Path(__file__).parents[2] / "training" / "recipes" / "own-pairs.yaml"
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_HELD_OUT = 4
"""Pairs of each of dev and test: their BLEU says nothing, but an export measures it."""
_SPREAD = 0.02
"""Standard deviation of biases and of the factors of layer norms."""

_DECODER_SCALE = 8.0
"""Factor of the outputs of decoder layers."""


def main(output: Annotated[Path, tyro.conf.Positional], preset: Preset = "base", vocab_size: int = 10_000) -> None:
    """Write OUTPUT/random-PRESET/1, int8-static, and print its path.

    Args:
        output: Directory that will hold the bundle.
        preset: Sizes of the network: tiny, small or base (6 + 6 layers, 512 hidden units).
        vocab_size: Tokens of the vocabulary.
    """
    print(make_bundle(output, preset, vocab_size))


def make_bundle(output: Path, preset: Preset, vocab_size: int, overrides: Sequence[str] = ()) -> Path:
    """Write the bundle `<output>/random-<preset>/1`, which is replaced, and return its path.

    `overrides` are fields of the recipe and their values, such as `network.encoder_layers=1`.
    """
    fields = {
        "name": f"random-{preset}",
        "data.vocab_size": vocab_size,
        "data.files.dev": "dev.tsv",
        "data.files.test": "test.tsv",
        "network.preset": preset,
        "output_layer.kernels": "lin",
        "export.quantization": "int8",
        "export.torchscript": False,
        "export.description": "Random weights for benchmarks: its translations mean nothing",
    }
    recipe = load_recipe(_RECIPE, [*(f"{path}={value!r}" for path, value in fields.items()), *overrides])
    with tempfile.TemporaryDirectory() as directory:
        data, run = Path(directory), RunDirectory(Path(directory) / "run")
        _write_corpus(data, vocab_size)
        _write_run(recipe, run, data)
        return export_run(run, output, data, force=True).path


def _write_corpus(directory: Path, vocab_size: int) -> None:
    """Write pairs of sentences of made-up words, as many different words as the vocabulary has tokens."""
    generator = random.Random(0)
    words = [_word(generator) for _ in range(vocab_size)]
    lines = []
    for first in range(0, vocab_size, 8):  # every word at least twice, others at random
        sentence = words[first : first + 8]
        lines.append(f"{' '.join(sentence)}\t{' '.join([*reversed(sentence), *generator.choices(words, k=4)])}\n")
    (directory / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    for index, split in enumerate(("dev", "test")):
        held_out = lines[index * _HELD_OUT :][:_HELD_OUT]
        (directory / f"{split}.tsv").write_text("".join(held_out), encoding="utf-8")


def _word(generator: random.Random) -> str:
    syllables = generator.randint(2, 4)
    return "".join(generator.choice(_CONSONANTS) + generator.choice(_VOWELS) for _ in range(syllables))


def _write_run(recipe: Recipe, run: RunDirectory, data_dir: Path) -> None:
    """Write a run directory whose checkpoint is a model with random weights."""
    start_run(recipe, run, data_dir)
    found = SubwordTokenizer.from_file(run.tokenizer).vocab_size
    wanted = recipe.model_dump()["data"]["vocab_size"]
    if found != wanted:
        raise ValueError(f"the made-up words have {found} different tokens, not {wanted}")
    torch.manual_seed(recipe.seed)
    task = open_task(recipe, run, data_dir, torch.device("cpu"))
    assert isinstance(task, TranslationTask)
    randomize(task.model, task.tokenizer.end_id)
    checkpoint.save(run.best, {"model": task.model.state_dict()})
    untrained = Evaluation(epoch=0, step=0, train_loss=0.0, metric=0.0, seconds=0.0)
    run.write_history(Progress(history=[untrained]))


@torch.no_grad()
def randomize(model: TranslationModel, end_id: int) -> None:
    """Give an untrained model different biases and layer norms in every layer, and an end token of score 0.

    Graphs store equal weights once, which a trained model does not have. Decoder layers get larger outputs: otherwise
    the best next token is always the last one, whose word vector the residual connections pass on. Components that
    are not kernels get random parameters.
    """
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.LayerNorm)):
            module.bias.normal_(0.0, _SPREAD)
        if isinstance(module, nn.LayerNorm):
            module.weight.normal_(1.0, _SPREAD)
    for layer in model.network.decoder_layers():
        for linear in (layer.self_attention.output, layer.cross_attention.output, layer.feed_forward.outer):
            linear.weight *= _DECODER_SCALE
    model.output_layer.weight[end_id] = 0.0
    for component in model.output_layer.other_components():
        for parameter in component.parameters():
            parameter.normal_(0.0, 1 / model.network.hidden_size)


if __name__ == "__main__":
    tyro.cli(main)
