"""Changed copies of sentence pairs, so that a translation model meets more than its corpus.

The corpus has well-typed single sentences with few numbers; users write without capitals and full stops, with typing
errors, several sentences at once, and with order numbers and times that are to be copied.
"""

import random
from collections.abc import Sequence

from pydantic import Field

from training.data.entities import Entities, TextPair
from training.data.typing_errors import with_typing_errors
from training.settings import Fraction, PositiveInt, Settings

__all__ = ["Augmentation", "augmented"]

_FINAL = ".!?"
_BARE_UMLAUTS = 0.25
"""Fraction of the sources without umlauts in which they are one letter."""
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})
_BARE = str.maketrans("äöüÄÖÜ", "aouAOU", "") | {ord("ß"): "ss"}


class Augmentation(Settings):
    """How pairs are changed. An epoch has each pair as it is, and `copies` changed ones.

    All others are the probability that a copy is changed so. Sources alone are changed in case, umlauts and spelling.
    """

    copies: int = Field(default=1, ge=0)
    """Changed copies of each pair in an epoch; those without any change are left out."""
    join: Fraction = 0.0
    """One or two other pairs follow."""
    join_characters: PositiveInt = 250
    """Joined sources are no longer than this."""
    exchange: Fraction = 0.0
    """Names and numbers that both sides have are exchanged for others, so that the model learns to copy."""
    extend: Fraction = 0.0
    """A number, a code or an emoji is put before or after both sides."""
    final_punctuation: Fraction = 0.0
    """Both sides lose their final punctuation."""
    lower_case: Fraction = 0.0
    """The source is in lower case."""
    upper_case: Fraction = 0.0
    """The source is in upper case."""
    umlauts: Fraction = 0.0
    """Umlauts are written as two letters (`ae`), or sometimes as one (`a`)."""
    typing_errors: Fraction = 0.0
    """One word in five has a typing error."""
    short_copies: int = Field(default=0, ge=0)
    """More copies of each pair whose source has at most two words."""


def augmented(
    pairs: Sequence[TextPair], settings: Augmentation, entities: Entities, generator: random.Random
) -> list[TextPair]:
    """Return the pairs, then changed copies of them."""
    found = list(pairs)
    for pair in pairs:
        copies = settings.copies + (settings.short_copies if len(pair[0].split()) <= 2 else 0)
        for _ in range(copies):
            changed = _changed(pair, pairs, settings, entities, generator)
            if changed != pair:
                found.append(changed)
    return found


def _changed(
    pair: TextPair,
    others: Sequence[TextPair],
    settings: Augmentation,
    entities: Entities,
    generator: random.Random,
) -> TextPair:
    if generator.random() < settings.join:
        for _ in range(generator.choice((1, 1, 2))):
            other = generator.choice(others)
            if len(pair[0]) + len(other[0]) < settings.join_characters:
                pair = f"{pair[0]} {other[0]}", f"{pair[1]} {other[1]}"
    if generator.random() < settings.exchange:
        pair = entities.exchanged(pair, generator)
    if generator.random() < settings.final_punctuation and all(text[-1] in _FINAL for text in pair):
        pair = pair[0].rstrip(_FINAL) or pair[0], pair[1].rstrip(_FINAL) or pair[1]
    if generator.random() < settings.extend:
        pair = entities.extended(pair, generator)
    return _typed(pair[0], settings, generator), pair[1]


def _typed(source: str, settings: Augmentation, generator: random.Random) -> str:
    """Return a source as a user in a hurry may type it."""
    if generator.random() < settings.umlauts:
        source = source.translate(_BARE if generator.random() < _BARE_UMLAUTS else _UMLAUTS)
    if generator.random() < settings.typing_errors:
        source = with_typing_errors(source, generator)
    if generator.random() < settings.lower_case:
        return source.lower()
    return source.upper() if generator.random() < settings.upper_case else source
