"""The recipe of a token classifier for a user's tagged sentences."""

import math
from collections import Counter
from collections.abc import Mapping

from training.data.inspection import Inspected
from training.data.report import likely_language, normalized
from training.data.settings import SplitFiles
from training.recipe.own.document import Planned
from training.recipe.own.sections import batch_size, held_out, set_schedule, tokens_of
from training.tasks.token_classification.reading import OUTSIDE, TaggedSentence, read_sentences
from training.tasks.token_classification.settings import Scheme

__all__ = ["plan_token_classifier"]

_PRETRAINED_TOKENS, _SCRATCH_TOKENS = 1.4, 1.6
"""Tokens that a word usually has."""
_UPDATES_PRETRAINED, _UPDATES_SCRATCH = 800, 1500
"""Updates that a small training should have."""
_FEW = 20_000
"""Sentences below which an encoder from scratch is small."""


def plan_token_classifier(
    found: Inspected, given: Mapping[str, str], *, pretrained: str | None, epochs: int | None, epoch_steps: int | None
) -> Planned:
    """Return the recipe for a file of tagged sentences.

    `given` are the columns that the user names, `pretrained` the English encoder that is installed, if there is one.
    `epochs` and `epoch_steps` are used where they are known; otherwise they are chosen and estimated.

    Raises `ValueError` for lines that are no token with its tag, and for a single tag.
    """
    plan = Planned(content={"name": "", "task": "token-classification"})
    plan.choose("data.files.train", str(found.path))
    if found.encoding != "utf-8":
        plan.choose("data.files.encoding", found.encoding, "the file is not UTF-8: check that its letters are right")
    if given:
        plan.choose("data.files.columns", dict(given), "as they were named")
    sentences, scheme = _sentences(found, given)
    if scheme != "iob2":
        plan.choose("data.scheme", scheme, "the tags are no IOB2")
    tags = Counter(tag for each in sentences for tag in each.tags)
    if len(tags) < 2:
        raise ValueError(f"{found.path}: there is only one tag, {next(iter(tags))!r}")
    types = sorted({kind for each in sentences for kind in each.types})
    texts = [each.text for each in sentences]
    language = likely_language(texts)
    encoder = pretrained if language == "en" else None
    outside = tags[OUTSIDE] / tags.total()
    plan.found = [
        f"{len(sentences):,} sentences of {tags.total():,} words, {outside:.0%} of them outside of entities; "
        f"{len(types)} types: {', '.join(types[:10])}{', ...' if len(types) > 10 else ''}; "
        f"language {language or 'unknown'}."
    ]
    lengths = tokens_of(texts, _PRETRAINED_TOKENS if encoder else _SCRATCH_TOKENS, added=2)
    longest = next((size for size in (32, 64, 128) if lengths.p99 <= size), 256)
    plan.choose("data.max_tokens", longest, f"99 % of the sentences have fewer than some {lengths.p99:.0f} tokens")
    mean = min(lengths.mean, 0.8 * longest)
    batch = max(batch_size(mean * len(texts), 512 if longest <= 64 else 1024 if longest <= 128 else 2048), longest)
    plan.choose("data.batch_tokens", batch, f"some {batch / mean:.0f} sentences an update")
    if encoder:
        plan.choose("network.pretrained", encoder, "the texts are English, and this encoder is installed")
    else:
        _from_scratch(plan, texts, language)
    plan.choose("output_layer.kernels", "lin")
    steps = epoch_steps or math.ceil(held_out(len(texts)) * mean / (0.85 * batch))
    updates, most = (_UPDATES_PRETRAINED, 20) if encoder else (_UPDATES_SCRATCH, 40)
    wanted = epochs or min(most, max(4 if encoder else 8, math.ceil(updates / steps)))
    set_schedule(plan, epochs=wanted, epoch_steps=steps, learning_rate=2e-4 if encoder else 1e-3, warmup=0.1)
    plan.choose("loop.weight_decay", 0.01)
    plan.choose("export.description", f"Tags words of texts like those of {found.path.name}")
    plan.choose("export.licence", "unstated")
    return plan


def _sentences(found: Inspected, given: Mapping[str, str]) -> tuple[list[TaggedSentence], Scheme]:
    """Return the sentences, and whether their tags are IOB2."""
    if unknown := sorted(given.keys() - {"tokens", "tags"}):
        raise ValueError(
            f"--columns {unknown[0]}={given[unknown[0]]}: there is no {unknown[0]!r} here, but tokens and tags"
        )
    files = SplitFiles(train=str(found.path), encoding=found.encoding, columns=dict(given))
    sentences = read_sentences(found.path, files, "any")
    prefixed = all(tag == OUTSIDE or tag.startswith(("B-", "I-")) for each in sentences for tag in each.tags)
    if not prefixed:
        return sentences, "any"
    return read_sentences(found.path, files, "iob2"), "iob2"


def _from_scratch(plan: Planned, texts: list[str], language: str | None) -> None:
    words = len({word for text in texts for word in normalized(text).split()})
    reason = f"the texts are not English but {language}" if language != "en" else "no pretrained encoder is installed"
    small = len(texts) < _FEW
    plan.choose("network.hidden_size", 128 if small else 256, f"an encoder from scratch: {reason}")
    plan.choose("network.inner_size", 512 if small else 1024)
    plan.choose("network.layers", 2 if small else 4)
    plan.choose("network.vocab_size", min(8000, max(500, words)), f"word pieces; the texts have {words:,} words")
    plan.choose("network.dropout", 0.3 if small else 0.1, f"{len(texts):,} sentences are few" if small else "")
