"""Calibration examples of sets of next words and next tokens of a model of subwords."""

import random

from models.tasks.causal_language_model import CausalLanguageModel
from training.tasks.word_sets import Followed, Following

__all__ = ["FOLLOWING"]


def _followed_word(model: CausalLanguageModel, text: str, generator: random.Random) -> Followed | None:
    """Return an example of a word, whatever tokens spell it."""
    words, first = model.score([text], unit="word")[0].words or (), _first(model)
    if len(words) <= first:
        return None
    word = words[generator.randrange(first, len(words))]
    return Followed(text[: word.start], lambda each: each.word == word.word and not each.sentence_end)


def _followed_token(model: CausalLanguageModel, text: str, generator: random.Random) -> Followed | None:
    """Return an example of a token."""
    (tokens, spans), first = model.tokenizer.split(text), _first(model)
    if not first < len(tokens) <= model.longest_input:
        return None
    place = generator.randrange(first, len(tokens))
    return Followed(text[: spans[place][0]], lambda each: each.token == tokens[place])


def _first(model: CausalLanguageModel) -> int:
    """Return the first place that has a probability."""
    return 0 if model.config.special_tokens.start is not None else 1


FOLLOWING = (
    Following("word", _followed_word, most_texts=500, most_listed=300, options={"unit": "word"}),
    Following("token", _followed_token, options={"unit": "token"}),
)
"""Units of next words of a causal language model; words are searched for, a fifth of a second each text."""
