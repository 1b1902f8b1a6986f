"""The recipe of a language model for a user's text."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from training.data.inspection import Inspected
from training.data.report import likely_language, normalized
from training.recipe.own.columns import text_column
from training.recipe.own.document import Planned
from training.recipe.own.sections import columns_section, held_out, set_schedule

__all__ = ["is_running_text", "plan_language_model"]

_TOKENS_A_WORD = 1.15
"""Tokens that a word has with its punctuation."""
_STEPS = 35
"""Steps of back-propagation through time."""
_SMALL, _MEDIUM = 300_000, 3_000_000
"""Tokens at which sizes change."""
_TRAINED_TOKENS = 900_000
"""Tokens that a training should read, those of all epochs."""
_ENDINGS = (".", "!", "?", "…", '"', "”", "“", "'", ":", ")")
_MARKED_LINES = 0.2
"""Fraction of lines with the end of a sentence in them that a running text has at least."""
_CUT_LINES, _PARAGRAPH_WORDS = 0.4, 40
"""Fraction of lines that end inside a sentence and are continued in the next one, and words of a line that is a
paragraph, from which lines are taken as a running text."""


def is_running_text(lines: Sequence[str]) -> bool:
    """Return whether lines are a running text, such as a book: lines are cut inside sentences, or are paragraphs."""
    if len(lines) < 20:
        return False
    cut = [not line.endswith(_ENDINGS) and following[:1].islower() for line, following in itertools.pairwise(lines)]
    if sum(any(mark in line for mark in ".!?…") for line in lines) < _MARKED_LINES * len(lines):
        return False  # sentences without punctuation, a line each
    paragraphs = statistics.fmean(len(line.split()) for line in lines) > _PARAGRAPH_WORDS
    return sum(cut) > _CUT_LINES * len(cut) or paragraphs


def plan_language_model(
    found: Inspected, given: Mapping[str, str], *, epochs: int | None, epoch_steps: int | None
) -> Planned:
    """Return the recipe for a file of texts.

    `given` may have the column that the user names. `epochs` and `epoch_steps` are used where they are known; otherwise
    they are chosen and estimated. Raises `ValueError` for a named column that there is not.
    """
    column = text_column(found, given)
    lines = [text for text in found.texts[column] if text]
    plan = Planned(content={"name": "", "task": "language-model"})
    columns_section(plan, found, {} if found.format == "plain text" else {"text": column})
    words = Counter(word for line in lines for word in normalized(line).split())
    tokens = int(words.total() * _TOKENS_A_WORD)
    once = sum(count == 1 for count in words.values())
    running = found.format == "plain text" and is_running_text(lines)
    plan.found = [
        f"{len(lines):,} lines, {words.total():,} words, {len(words):,} different ones, {once:,} of them once; "
        f"language {likely_language(lines) or 'unknown'}."
    ]
    if running:
        plan.choose("data.context", "stream", "lines are cut inside sentences or are paragraphs: one running text")
    else:
        plan.choose("data.context", "sentence", "each line is taken as a text of its own")
    plan.choose("data.min_count", 2 if tokens < _MEDIUM else 3, f"rarer words are <unk>: {once:,} words occur once")
    plan.choose("data.lowercase", True)
    batch = (10 if tokens < _SMALL else 20 if tokens < _MEDIUM else 40) * _STEPS
    plan.choose("data.batch_tokens", batch, f"small batches make more updates of {tokens:,} tokens")
    hidden, dropout = (256, 0.5) if tokens < _SMALL else (384, 0.3) if tokens < _MEDIUM else (512, 0.1)
    plan.choose("network.hidden_size", hidden, f"for some {tokens:,} tokens")
    plan.choose("network.num_layers", 2 if tokens >= _SMALL else 1)
    plan.choose("network.dropout", dropout, "higher for less text")
    plan.choose("output_layer.kernels", "lin", "a mixture collapses on little text")
    plan.choose("output_layer.bias", True, "starts at the words' frequencies, which helps at once")
    steps = epoch_steps or math.ceil(held_out(len(lines)) / len(lines) * tokens / batch)
    wanted = epochs or min(30, max(3, math.ceil(_TRAINED_TOKENS / tokens)))
    set_schedule(plan, epochs=wanted, epoch_steps=steps, learning_rate=3e-3, warmup=0.03)
    plan.choose("export.description", f"Next word in texts like {found.path.name}")
    plan.choose("export.licence", "unstated")
    longest = max(len(line.split()) for line in lines)
    if longest * 1.5 > 1000:
        plan.choose("export.max_tokens", 2 * longest, f"the longest line has {longest:,} words")
    return plan
