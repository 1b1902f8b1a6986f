"""Compare a word-level language model with others by bits per byte of exact texts: cased, and with every word spelled.

    python -m benchmarks.exact_text models/bundled/next-word/4 --data-dir DIR

A word-level model gives probabilities to texts in lower case, in which rare words are one unknown word and spaces are
no events. Its log-probability is completed here with the rest of the text, by models fitted to its own training texts:

* the letters of each unknown word, by a modified Kneser-Ney 5-gram model of the characters of unknown words;
* the case of each word (lower, capitalized, upper, or mixed, whose letters then have one bit each) given the word and
  whether it is the first, smoothed towards the cases of all words in such places;
* whether a space precedes a word, given the word.

The result compares with the bits per byte of the task `causal-language-model`: bits of all words and ends, divided by
the bytes of the texts in UTF-8, without ends.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from models.store import load_bundle
from models.tasks.language_model import LanguageModel
from models.text.tokenization import WordTokenizer
from training.recipe.loading import parse_recipe
from training.tasks.language_model.kneser_ney import KneserNey
from training.tasks.language_model.reading import split_texts
from training.tasks.language_model.settings import LanguageModelRecipe

Case = Literal["lower", "capitalized", "upper", "mixed"]
_SMOOTHING = 0.5
_ORDER = 5


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text, as the texts have it."""

    spelling: str
    unknown: bool
    first: bool
    space: bool
    """Whether a space precedes it."""


def main(bundle: Annotated[Path, tyro.conf.Positional], data_dir: Path = Path("data"), split: str = "test") -> None:
    """Print the bits per byte, part by part.

    Args:
        bundle: An exported word-level model.
        data_dir: Directory that holds the corpora.
        split: The texts that it is measured on.
    """
    model = load_bundle(bundle)
    assert isinstance(model, LanguageModel)
    recipe = parse_recipe(model.manifest.provenance.recipe)
    assert isinstance(recipe, LanguageModelRecipe)
    tokenizer = WordTokenizer.from_file(bundle / model.config.tokenizer)
    training = [word for text in split_texts(recipe.data, "train", data_dir) for word in words(tokenizer, text)]
    texts = split_texts(recipe.data, split, data_dir)
    measured = [word for text in texts for word in words(tokenizer, text)]
    parts = {
        "words and ends": -math.fsum(score.log_probability for score in model.score(texts)) / math.log(2),
        "letters of unknown words": math.fsum(map(_spelling_bits(training), measured)),
        "case": math.fsum(map(_case_bits(training), measured)),
        "spaces": math.fsum(map(_space_bits(training), measured)),
    }
    size = sum(len(text.encode()) for text in texts)
    print(f"{model.manifest.name}:{model.manifest.version}, {split}, {len(texts)} texts, {size} bytes")
    for name, bits in parts.items():
        print(f"{name}: {bits / size:.4f} bits per byte")
    print(f"exact texts: {sum(parts.values()) / size:.4f} bits per byte")


def words(tokenizer: WordTokenizer, text: str) -> Iterator[Word]:
    """Yield the words of a text."""
    ids, pieces = tokenizer.split(text)
    place = 0
    for position, (token, piece) in enumerate(zip(ids, pieces, strict=True)):
        begin = text.find(piece, place)
        yield Word(piece, token == tokenizer.unknown_id, position == 0, begin > place)
        place = max(place, begin) + len(piece)


def case_of(word: str) -> Case:
    """Return how a word is written."""
    if word == word.lower():
        return "lower"
    if word == word.capitalize():
        return "capitalized"
    return "upper" if word == word.upper() else "mixed"


def _spelling_bits(training: Sequence[Word]) -> Callable[[Word], float]:
    unknown = [word.spelling.lower() for word in training if word.unknown]
    characters = {character: place for place, character in enumerate(sorted(set("".join(unknown))))}
    # One more stands for characters of no training word, each of which then has as many bits as all that Unicode has.
    other, end = len(characters), len(characters) + 1
    model = KneserNey(
        ([characters[each] for each in word] for word in unknown), vocab_size=end + 1, end_id=end, order=_ORDER
    )

    def bits(word: Word) -> float:
        if not word.unknown:
            return 0.0
        ids = [characters.get(each, other) for each in word.spelling.lower()]
        return -float(model.log_probs(ids).sum()) / math.log(2) + ids.count(other) * math.log2(0x110000)

    return bits


def _case_bits(training: Sequence[Word]) -> Callable[[Word], float]:
    chosen = _choice_bits(
        ((word.spelling.lower(), word.first), word.first, case_of(word.spelling)) for word in training
    )

    def bits(word: Word) -> float:
        case = case_of(word.spelling)
        return chosen((word.spelling.lower(), word.first), word.first, case) + (case == "mixed") * len(word.spelling)

    return bits


def _space_bits(training: Sequence[Word]) -> Callable[[Word], float]:
    chosen = _choice_bits((word.spelling.lower(), True, word.space) for word in training if not word.first)
    return lambda word: 0.0 if word.first else chosen(word.spelling.lower(), True, word.space)


def _choice_bits(
    events: Iterable[tuple[Hashable, Hashable, Hashable]],
) -> Callable[[Hashable, Hashable, Hashable], float]:
    """Return the bits of a choice given its owner, smoothed by that given a wider class."""
    near: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    wide: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    kinds: set[Hashable] = set()
    for owner, group, choice in events:
        near[owner][choice] += 1
        wide[group][choice] += 1
        kinds.add(choice)

    def bits(owner: Hashable, group: Hashable, choice: Hashable) -> float:
        general = (wide[group][choice] + _SMOOTHING) / (wide[group].total() + _SMOOTHING * max(2, len(kinds)))
        found = near.get(owner, Counter())
        return -math.log2((found[choice] + _SMOOTHING * general) / (found.total() + _SMOOTHING))

    return bits


if __name__ == "__main__":
    tyro.cli(main)
