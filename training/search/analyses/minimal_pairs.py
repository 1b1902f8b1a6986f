"""Minimal pairs from held-out text: a sentence, and the same with one word replaced by a similar one.

The kernel paper (section 4.5) looks for words that `lin` confuses among those that are close in its projection matrix.
Here a word is replaced by its mutual nearest neighbour: each of the two is the other's nearest, by cosine similarity.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional

from models.text.tokenization import WordTokenizer
from training.search.analyses.disambiguation import Pair, locate
from training.tasks.language_model import LanguageModelTask
from training.tasks.language_model.reading import split_texts

__all__ = ["held_out_pairs", "mine_pairs", "mutual_neighbours"]

_BLOCK = 1024
"""Words whose similarities to all others are computed at once."""


@torch.no_grad()
def mutual_neighbours(task: LanguageModelTask) -> dict[int, int]:
    """Return the words, of letters only, that are each other's nearest in the projection matrix, both ways.

    An untied layer has several matrices; that of its first component is used.
    """
    words = [token for token in range(task.tokenizer.vocab_size) if _is_word(task.tokenizer, token)]
    vectors = functional.normalize(task.model.output_layer.class_weights()[0][words], dim=-1)
    nearest: list[int] = []
    for block in vectors.split(_BLOCK):  # of all words at once the similarities could take gigabytes
        similarities = block @ vectors.T
        similarities.diagonal(len(nearest)).fill_(-1)
        nearest += similarities.argmax(-1).tolist()
    return {words[place]: words[other] for place, other in enumerate(nearest) if nearest[other] == place}


def _is_word(tokenizer: WordTokenizer, token: int) -> bool:
    return token not in (tokenizer.unknown_id, tokenizer.end_id) and tokenizer.word(token).isalpha()


def held_out_pairs(task: LanguageModelTask, split: str, data_dir: Path, count: int) -> list[Pair]:
    """Return pairs from a split of the corpus of a run; see `mine_pairs`."""
    return mine_pairs(task, split_texts(task.recipe.data, split, data_dir), count)


def mine_pairs(task: LanguageModelTask, texts: Sequence[str], count: int, seed: int = 0) -> list[Pair]:
    """Return at most `count` pairs, one of a text, in which a random one of the words that can be is replaced.

    Texts with the same words before it and the same pair of words count once. The order is random. Raises `ValueError`
    where there is no pair.
    """
    chance, neighbours = random.Random(seed), mutual_neighbours(task)
    pairs: dict[tuple[str, tuple[str, str]], Pair] = {}
    for text in chance.sample(texts, len(texts)):
        ids, words = task.tokenizer.split(text)
        places = [place for place, token in enumerate(ids) if token in neighbours]
        if not places:
            continue
        place = chance.choice(places)
        other = task.tokenizer.word(neighbours[ids[place]])
        wrong = " ".join([*words[:place], other, *words[place + 1 :]])
        pair = Pair(line=len(pairs) + 1, right=" ".join(words), wrong=wrong)
        try:
            located = locate(pair, task.tokenizer)
        except ValueError:  # words that the tokenizer splits otherwise where spaces stand between them
            continue
        pairs.setdefault((located.context, located.words), pair)
        if len(pairs) == count:
            break
    if not pairs:
        raise ValueError(f"none of {len(texts)} texts has a word with a mutual nearest neighbour")
    return list(pairs.values())
