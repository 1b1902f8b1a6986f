"""Sections that recipes for a user's data share: files and columns, and a schedule in fractions of the training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from training.data.inspection import Inspected
from training.data.settings import HELD_OUT_MOST, HELD_OUT_SHARE
from training.recipe.own.columns import source_and_target, text_column
from training.recipe.own.document import Planned

__all__ = [
    "Lengths",
    "batch_size",
    "columns_section",
    "held_out",
    "only_file",
    "pair_sides",
    "set_schedule",
    "tokens_of",
]

_LEAST_PATIENCE = 3
_LONGEST_WARMUP = 1000
_SMALLEST_BATCH, _FEWEST_UPDATES = 256, 25
"""Tokens of the smallest batch, and updates that an epoch should have before batches are larger."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Estimated lengths in tokens."""

    mean: float
    p99: float


def tokens_of(texts: Sequence[str], tokens_a_word: float, *, added: int = 1) -> Lengths:
    """Return the estimated lengths of texts, `added` tokens at their ends included."""
    counts = sorted(len(text.split()) * tokens_a_word + added for text in texts)
    return Lengths(sum(counts) / len(counts), counts[int(0.99 * (len(counts) - 1))])


def held_out(count: int) -> int:
    """Return how many of `count` records are left for training where two splits are held out."""
    return max(1, count - 2 * min(HELD_OUT_MOST, max(1, count // HELD_OUT_SHARE)))


def batch_size(tokens: float, usual: int) -> int:
    """Return the tokens of a batch: `usual`, or less where the data have so few that an epoch had few updates."""
    fitting = 1 << int(math.log2(max(_SMALLEST_BATCH, tokens / _FEWEST_UPDATES)))
    return min(usual, fitting)


def only_file(files: Sequence[Inspected]) -> Inspected:
    """Return the file; raises `ValueError` for several."""
    if len(files) > 1:
        raise ValueError(f"a model of this kind is made from one file or folder, not from {len(files)}; join them")
    return files[0]


def columns_section(plan: Planned, found: Inspected, columns: Mapping[str, str]) -> None:
    """Set encoding, header and columns of the files; the names of the files are set by the caller."""
    plan.choose("data.files.train", str(found.path))
    if found.encoding != "utf-8":
        plan.choose("data.files.encoding", found.encoding, "the file is not UTF-8: check that its letters are right")
    if found.header is False:
        plan.choose("data.files.header", False, "the first line is a record already")
    own = {role: name for role, name in columns.items() if role != name or found.header is False}
    in_order = found.header is False and list(found.texts) == list(columns.values())
    if own and not in_order:
        what = "numbers of the columns" if found.header is False else "the file's own names"
        plan.choose("data.files.columns", own, what)


def pair_sides(
    plan: Planned, files: Sequence[Inspected], given: Mapping[str, str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Set the files and columns of pairs, which are in one file or two parallel ones; return sources and targets.

    `given` are the columns that the user names. Raises `ValueError` for more than two files, for files of other numbers
    of lines or other encodings, and for a file of one column.
    """
    if len(files) == 1:
        source, target = source_and_target(files[0], given)
        columns_section(plan, files[0], {"source": source, "target": target})
        return files[0].texts[source], files[0].texts[target]
    if len(files) > 2:
        raise ValueError(f"pairs are read from one file of pairs or two parallel files, not from {len(files)}")
    first, second = files
    if any(each.format != "plain text" for each in files):
        named = next(each for each in files if each.format != "plain text")
        raise ValueError(f"{named.path}: two files must be plain text with a sentence a line, not {named.format}")
    if first.count + first.blank != second.count + second.blank:
        raise ValueError(
            f"{first.path} has {first.count + first.blank:,} lines and {second.path} {second.count + second.blank:,}: "
            "lines of the same number must be a pair"
        )
    plan.choose("data.files.train", {"source": str(first.path), "target": str(second.path)}, "lines are pairs")
    if first.encoding != second.encoding:
        raise ValueError(f"{first.path} is in {first.encoding} and {second.path} in {second.encoding}: make both UTF-8")
    if first.encoding != "utf-8":
        plan.choose(
            "data.files.encoding", first.encoding, "the files are not UTF-8: check that their letters are right"
        )
    texts = text_column(first, {}), text_column(second, {})
    return first.texts[texts[0]], second.texts[texts[1]]


def set_schedule(
    plan: Planned,
    *,
    epochs: int,
    epoch_steps: int,
    learning_rate: float,
    warmup: float,
    average: int = 1,
    snapshot_steps: int | None = None,
    stops_early: bool = True,
) -> None:
    """Set the section `loop`: cosine decay over the whole training, warm-up and averaging as fractions of its steps.

    The mean of the weights is that of `average` snapshots, every `snapshot_steps` or a hundredth of the training.
    """
    total = epochs * epoch_steps
    plan.choose("loop.epochs", epochs, f"{epoch_steps:,} updates each")
    plan.choose("loop.learning_rate", learning_rate)
    steps = min(_LONGEST_WARMUP, max(1, round(warmup * total)))
    plan.choose("loop.warmup_steps", steps, f"{steps / total:.0%} of {total:,} updates")
    if average > 1:
        snapshot = snapshot_steps or max(1, round(0.01 * total))
        plan.choose("loop.average", average)
        plan.choose(
            "loop.snapshot_steps", snapshot, f"the mean of the last {average * snapshot / total:.0%} of the training"
        )
    patience = max(_LEAST_PATIENCE, -(-epochs // 3)) if stops_early else epochs
    reason = (
        "a third of the epochs: the learning rate must have time to fall"
        if stops_early
        else "no early stopping: quality rises to the end"
    )
    plan.choose("loop.patience", patience, reason)
