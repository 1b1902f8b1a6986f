"""The recipe of a translation model for a user's sentence pairs."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from training.data.inspection import Inspected
from training.data.report import likely_language
from training.recipe.own.columns import source_and_target, text_column
from training.recipe.own.document import Planned
from training.recipe.own.sections import batch_size, columns_section, held_out, set_schedule, tokens_of

__all__ = ["plan_translator"]

_TOKENS_A_WORD = 1.5
_FEW, _SOME, _MANY = 5_000, 100_000, 300_000
"""Pairs at which sizes change."""
_UPDATES = 12_000
"""Updates that a training should have."""
_FINE_TUNED_EPOCHS = 5
"""The most epochs of a training that starts from a model."""


def plan_translator(
    files: Sequence[Inspected],
    given: Mapping[str, str],
    *,
    languages: tuple[str, str] | None,
    initial: Callable[[str, str], tuple[str, Mapping[str, Any]] | None] | None = None,
    epochs: int | None,
    epoch_steps: int | None,
) -> Planned:
    """Return the recipe for a file of pairs, or for two parallel files, source first.

    `initial` finds a model of two languages to start from, and its recipe.

    `given` are the columns that the user names, `languages` those of source and target, which are detected without.
    `epochs` and `epoch_steps` are used where they are known; otherwise they are chosen and estimated.

    Raises `ValueError` for more than two files, for files of other numbers of lines, for a file of one column, and
    where both sides seem to be in one language.
    """
    plan = Planned(content={"name": "", "task": "translation"})
    sources, targets = _sides(plan, files, given)
    plan.found = [f"{len(sources):,} pairs."]
    source, target = languages or _languages(files, plan, sources, targets)
    plan.choose("data.source", source, "" if languages else "detected; --languages says otherwise")
    plan.choose("data.target", target)
    count = len(sources)
    preset, dropout = ("tiny", 0.3) if count < _SOME else ("small", 0.2 if count < _MANY else 0.1)
    vocabulary = 1000 if count < _FEW else 4000 if count < _SOME else 8000
    found = None if initial is None else initial(source, target)
    if found is None:
        plan.choose("data.vocab_size", vocabulary, f"tokens of both languages, for {count:,} pairs")
    lengths = tokens_of([*sources, *targets], _TOKENS_A_WORD)
    batch = batch_size(lengths.mean * count, 1024 if count < _SOME else 2048 if count < _MANY else 4096)
    longest = next((size for size in (64, 128) if lengths.p99 <= size), 256)
    plan.choose("data.max_tokens", longest, f"99 % of the sentences have fewer than some {lengths.p99:.0f} tokens")
    plan.choose("data.batch_tokens", batch, "small batches make more updates of few pairs" if count < _SOME else "")
    steps = epoch_steps or math.ceil(held_out(count) * lengths.mean / (0.85 * batch))
    if found is not None:
        _from_initial(plan, *found)
        wanted = epochs or min(_FINE_TUNED_EPOCHS, max(1, math.ceil(_UPDATES / steps)))
        set_schedule(plan, epochs=wanted, epoch_steps=steps, learning_rate=3e-4, warmup=0.1)
        return _described(plan, source, target, files)
    plan.choose("network.preset", preset, f"{count:,} pairs teach no larger network" if preset == "tiny" else "")
    plan.choose("network.dropout", dropout, "higher for fewer pairs")
    plan.choose("output_layer.kernels", "pow")
    plan.choose("output_layer.label_smoothing", 0.1)
    wanted = epochs or min(100, max(5, math.ceil(_UPDATES / steps)))
    set_schedule(
        plan,
        epochs=wanted,
        epoch_steps=steps,
        learning_rate=3e-3 if preset == "tiny" else 1e-3,
        warmup=0.15,
        average=4,
        stops_early=False,  # BLEU can stay at 0 for the first epochs
    )
    plan.choose("loop.adam_beta2", 0.98)
    return _described(plan, source, target, files)


def _from_initial(plan: Planned, initial: str, recipe: Mapping[str, Any]) -> None:
    """Set the fields of a run that starts from a model: its network and output layer."""
    plan.choose("initial", initial, "a model of these languages is there; new --from-scratch starts without it")
    for name in ("hidden_size", "inner_size", "heads", "encoder_layers", "decoder_layers", "norm", "dropout"):
        plan.choose(f"network.{name}", recipe["network"][name])
    for name in ("kernels", "label_smoothing"):
        plan.choose(f"output_layer.{name}", recipe["output_layer"][name])


def _described(plan: Planned, source: str, target: str, files: Sequence[Inspected]) -> Planned:
    plan.choose("export.description", f"{source} to {target}, trained on {files[0].path.name}")
    plan.choose("export.licence", "unstated")
    return plan


def _sides(plan: Planned, files: Sequence[Inspected], given: Mapping[str, str]) -> tuple[Sequence[str], Sequence[str]]:
    if len(files) == 1:
        source, target = source_and_target(files[0], given)
        columns_section(plan, files[0], {"source": source, "target": target})
        return files[0].texts[source], files[0].texts[target]
    if len(files) > 2:
        raise ValueError(f"a translator is made from one file of pairs or two parallel files, not from {len(files)}")
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


def _languages(
    files: Sequence[Inspected], plan: Planned, sources: Sequence[str], targets: Sequence[str]
) -> tuple[str, str]:
    """Return the languages that the names of columns or files say, or those that are detected."""
    columns = plan.content["data"]["files"].get("columns", {})
    names = [columns.get("source", ""), columns.get("target", "")]
    if len(files) == 2:
        names = [each.path.name.removesuffix(".gz").rpartition(".")[2] for each in files]
    codes = [
        name.lower()[:2] if re.fullmatch(r"[a-zA-Z]{2}([-_][a-zA-Z]+)?", name) else likely_language(texts) or "und"
        for name, texts in zip(names, (sources, targets), strict=True)
    ]
    if codes[0] == codes[1]:
        raise ValueError(
            f"{files[0].path}: both sides seem to be in {codes[0]!r}; --languages says it, such as --languages de-en"
        )
    return codes[0], codes[1]
