"""The recipe of a text generator for a user's sources and targets."""

import math
from collections.abc import Mapping, Sequence

from training.data.inspection import Inspected
from training.data.report import likely_language, normalized
from training.recipe.own.document import Planned
from training.recipe.own.sections import batch_size, held_out, pair_sides, set_schedule, tokens_of

__all__ = ["plan_text_generator"]

_TOKENS_A_WORD = 1.4
_UPDATES, _MOST_EPOCHS = 1_500, 30
"""Updates that a small training should have, and the most epochs for them."""
_SHORTEST_TARGET = 8


def plan_text_generator(
    files: Sequence[Inspected],
    given: Mapping[str, str],
    *,
    pretrained: str | None,
    epochs: int | None,
    epoch_steps: int | None,
) -> Planned:
    """Return the recipe for a file of pairs, or for two parallel files, source first.

    `given` are the columns that the user names, `pretrained` the English encoder that is installed, if there is one.
    `epochs` and `epoch_steps` are used where they are known; otherwise they are chosen and estimated.

    Raises the errors of `pair_sides`.
    """
    plan = Planned(content={"name": "", "task": "text-generation"})
    sources, targets = pair_sides(plan, files, given)
    language = likely_language(sources)
    distinct = len(set(map(normalized, sources)))
    plan.found = [f"{len(sources):,} pairs of {distinct:,} different sources; language {language or 'unknown'}."]
    lengths, outputs = tokens_of(sources, _TOKENS_A_WORD, added=2), tokens_of(targets, _TOKENS_A_WORD)
    longest = next((size for size in (32, 64, 128, 192) if lengths.p99 <= size), 256)
    plan.choose("data.max_tokens", longest, f"99 % of the sources have fewer than some {lengths.p99:.0f} tokens")
    most = min(128, max(_SHORTEST_TARGET, math.ceil(1.2 * outputs.p99)))
    plan.choose("data.max_output_tokens", most, f"99 % of the targets have fewer than some {outputs.p99:.0f} tokens")
    mean = min(lengths.mean, 0.8 * longest) + min(outputs.mean, most)
    batch = max(batch_size(mean * len(sources), 1536), longest, most)
    plan.choose("data.batch_tokens", batch, f"some {batch / mean:.0f} pairs an update")
    encoder = pretrained if language == "en" else None
    if encoder:
        plan.choose("network.pretrained", encoder, "the texts are English, and this encoder is installed")
    else:
        _from_scratch(plan, [*sources, *targets])
    plan.choose("output_layer.kernels", "lin")
    steps = epoch_steps or math.ceil(held_out(len(sources)) * mean / (0.85 * batch))
    wanted = epochs or min(_MOST_EPOCHS, max(4, math.ceil(_UPDATES / steps)))
    rate = 5e-4 if encoder else 1e-3
    set_schedule(plan, epochs=wanted, epoch_steps=steps, learning_rate=rate, warmup=0.1, average=3)
    plan.choose("loop.weight_decay", 0.01)
    plan.choose("export.description", f"Writes targets like those of {files[0].path.name}")
    plan.choose("export.licence", "unstated")
    return plan


def _from_scratch(plan: Planned, texts: Sequence[str]) -> None:
    words = len({word for text in texts for word in normalized(text).split()})
    plan.choose("network.hidden_size", 256, "an encoder from scratch: the texts are not English, or none is installed")
    plan.choose("network.inner_size", 1024)
    plan.choose("network.layers", 4)
    plan.choose("network.vocab_size", min(8000, max(500, words)), f"word pieces; the texts have {words:,} words")
