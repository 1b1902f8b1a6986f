"""Verify the graphs of a causal language model.

Shapes: `T` tokens, `N` positions, `V` tokens of the vocabulary, `d` hidden size.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch

from models.backend import Array, Backend
from training.bundling.graphs import ExportGraph
from training.bundling.verify import absolute_difference, both_outputs
from training.networks.causal_language_model import TransformerLanguageModel

__all__ = ["largest_difference"]

_LENGTHS = ((1, 1), (40, 40), (11, 4))
"""Lengths of texts to compare at, and of the parts that they are read in; none is the one that was traced (7)."""


@torch.no_grad()
def largest_difference(backend: Backend, model: TransformerLanguageModel, graphs: Mapping[str, ExportGraph]) -> float:
    """Return the largest difference of an output of both graphs from the module's, over all `_LENGTHS`.

    Log-probabilities are also compared with those of the output layer that was trained. It is infinite where a rank is
    not that of the graph's own log-probabilities.
    """
    model.eval()
    settings, vocabulary = model.network.settings, model.output_layer.weight.shape[0]
    positions, worst = settings.positions, 0.0
    for seed, (steps, size) in enumerate(_LENGTHS):
        generator = torch.Generator().manual_seed(10 + seed)
        texts = torch.randint(vocabulary, (2, min(steps, positions)), generator=generator)
        states = model(texts)
        keys_values = torch.zeros(len(settings.layers), 2, 2, settings.key_value_heads, 0, settings.head_size)
        for part in texts.split(size, dim=1):
            before, count = keys_values.shape[4], part.shape[1]
            place = torch.arange(before, before + count)
            visible = torch.arange(before + count) <= place[:, None]
            both = place.expand(2, -1), visible.expand(2, -1, -1)
            given = part, *both, torch.arange(count), *keys_values.flatten(0, 1)
            expected, got = both_outputs(backend, "read", graphs["read"], given)
            for name in expected:
                worst = _larger(worst, expected[name], got[name])
            worst = _larger(worst, states[:, place].numpy(), got["hidden_states"])
            keys_values = torch.cat([keys_values, torch.from_numpy(got["keys_values"])], dim=4)
        whole, hidden = texts[0], states[0]
        groups = (torch.rand(vocabulary, 3, generator=generator) < 0.5).float()
        rows = torch.arange(len(whole)).flip(0)
        inputs = hidden, rows, whole, groups, torch.tensor(vocabulary)
        trained = model.output_layer.log_prob(hidden).numpy()
        for values in both_outputs(backend, "predict", graphs["predict"], inputs):
            by_token = np.take_along_axis(values["best_log_probabilities"], values["best_tokens"].argsort(1), 1)
            chosen = trained[rows.numpy(), whole.numpy()]
            of_groups = np.log(np.exp(trained) @ groups.numpy())
            entropy = -(np.exp(trained) * trained).sum(-1)
            worst = _larger(worst, trained, by_token)
            worst = _larger(worst, chosen, values["log_probabilities"])
            worst = _larger(worst, entropy, values["entropy"])
            worst = _larger(worst, of_groups, values["group_log_probabilities"])
            worst = _larger(worst, trained, values["all_log_probabilities"])
            above = values["all_log_probabilities"][rows.numpy()] > values["log_probabilities"][:, None]
            if not np.array_equal(values["ranks"], 1 + above.sum(1)):
                return math.inf
    return worst


def _larger(worst: float, expected: Array, got: Array) -> float:
    """Return the larger of a number and the largest difference of two arrays; NaN where one is."""
    return float(np.maximum(worst, absolute_difference(expected, got).max()))
