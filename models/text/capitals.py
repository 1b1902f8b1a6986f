"""Sentences in capitals, which models read worse than others: they are read in lower case, and written in capitals."""

__all__ = ["in_capitals", "is_in_capitals", "sentence_case"]

_FEWEST_LETTERS = 8
_LONG_WORD = 5
"""Letters of a word that is unlikely to be an abbreviation."""


def is_in_capitals(text: str) -> bool:
    """Return whether a text has several words, one of them long, and no letter in lower case."""
    if not text.isupper():  # which is fast, and false where there is a letter in lower case
        return False
    words = ["".join(filter(str.isalpha, word)) for word in text.split()]
    letters = [len(word) for word in words if word]
    return len(letters) > 1 and sum(letters) >= _FEWEST_LETTERS and max(letters) >= _LONG_WORD


def sentence_case(text: str) -> str:
    """Return a text in capitals with the first letter alone in upper case, of the same length."""
    lower = "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)
    first = next((place for place, letter in enumerate(text) if letter.isalpha()), 0)
    return lower[:first] + text[first : first + 1] + lower[first + 1 :]


def in_capitals(text: str) -> str:
    """Return a text in capitals, of the same length."""
    return "".join(letter.upper() if len(letter.upper()) == 1 else letter for letter in text)
