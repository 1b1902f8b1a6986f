"""Calibration examples of sets of next words: a word of the vocabulary, or the sentence end."""

import random

from models.tasks.language_model import LanguageModel
from models.text.tokenization import END
from training.tasks.word_sets import Followed, Following

__all__ = ["FOLLOWING"]


def _followed_word(model: LanguageModel, text: str, generator: random.Random) -> Followed | None:
    """Return an example of a word of the vocabulary, or of the sentence end."""
    words = model.spelled(model.token_ids(text))
    if len(words) > model.longest_input:
        return None
    place = generator.randint(0, len(words))
    word, ends = (END, True) if place == len(words) else (words[place], False)
    return Followed(" ".join(words[:place]), lambda each: each.word == word and each.sentence_end == ends)


FOLLOWING = (Following("word", _followed_word),)
"""Units of next words of a language model of words."""
