"""The recipe of a causal language model for a user's text."""

import math
from collections.abc import Mapping

from training.data.inspection import Inspected
from training.data.report import likely_language
from training.recipe.own.columns import text_column
from training.recipe.own.document import Planned
from training.recipe.own.sections import batch_size, columns_section, held_out, set_schedule, tokens_of
from training.tasks.language_model.own_recipe import is_running_text

__all__ = ["plan_causal_language_model"]

_TOKENS_A_WORD = 1.5
"""Subword tokens that a word usually has."""
_SMALL, _MEDIUM = 300_000, 3_000_000
"""Tokens at which sizes change."""
_LEAST_VOCABULARY, _MOST_VOCABULARY = 512, 8000
_TOKENS_A_PIECE = 50
"""Tokens of the text for each one of the vocabulary, so that most are seen often enough."""
_TRAINED_TOKENS = 3_000_000
"""Tokens that a training should read, those of all epochs."""


def plan_causal_language_model(
    found: Inspected, given: Mapping[str, str], *, epochs: int | None, epoch_steps: int | None
) -> Planned:
    """Return the recipe of a Transformer for a file of texts.

    `given` may have the column that the user names. `epochs` and `epoch_steps` are used where they are known; otherwise
    they are chosen and estimated. Raises `ValueError` for a named column that there is not.
    """
    column = text_column(found, given)
    lines = [text for text in found.texts[column] if text]
    plan = Planned(content={"name": "", "task": "causal-language-model"})
    columns_section(plan, found, {} if found.format == "plain text" else {"text": column})
    lengths = tokens_of(lines, _TOKENS_A_WORD)
    tokens = int(lengths.mean * len(lines))
    running = found.format == "plain text" and is_running_text(lines)
    plan.found = [
        f"{len(lines):,} lines, some {tokens:,} subword tokens; language {likely_language(lines) or 'unknown'}."
    ]
    if running:
        plan.choose("data.context", "stream", "lines are cut inside sentences or are paragraphs: one running text")
    else:
        plan.choose("data.context", "sentence", "each line is taken as a text of its own")
    vocabulary = min(_MOST_VOCABULARY, max(_LEAST_VOCABULARY, tokens // _TOKENS_A_PIECE))
    plan.choose("data.vocab_size", vocabulary, f"bytes and parts of words, for some {tokens:,} tokens")
    positions = 256 if running else next((size for size in (64, 128) if lengths.p99 < 0.8 * size), 256)
    reason = "windows of the running text" if running else f"99 % of the lines have fewer than {lengths.p99:.0f} tokens"
    plan.choose("network.positions", positions, reason)
    batch = max(positions, batch_size(tokens, 2048))
    plan.choose("data.batch_tokens", batch, f"small batches make more updates of {tokens:,} tokens")
    hidden, layers, dropout = (128, 3, 0.3) if tokens < _SMALL else (256, 4, 0.2) if tokens < _MEDIUM else (384, 6, 0.1)
    plan.choose("network.hidden_size", hidden, f"for some {tokens:,} tokens")
    plan.choose("network.layers", layers)
    plan.choose("network.heads", hidden // 64)
    plan.choose("network.dropout", dropout, "higher for less text")
    plan.choose("output_layer.kernels", "lin", "a mixture collapses on little text")
    plan.choose("output_layer.bias", True, "starts at the tokens' frequencies, which helps at once")
    steps = epoch_steps or math.ceil(held_out(len(lines)) / len(lines) * tokens / (0.9 * batch))
    wanted = epochs or min(30, max(3, math.ceil(_TRAINED_TOKENS / tokens)))
    set_schedule(plan, epochs=wanted, epoch_steps=steps, learning_rate=2e-3, warmup=0.05)
    plan.choose("loop.adam_beta2", 0.98, "usual for Transformers")
    plan.choose("loop.weight_decay", 0.01)
    plan.choose("export.description", f"Next token and scores of texts like {found.path.name}")
    plan.choose("export.licence", "unstated")
    return plan
