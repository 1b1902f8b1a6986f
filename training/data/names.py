"""Names of people and places, listed and made up, so that a translation model learns to copy them.

Most of the listed ones are from the lists of Faker, which has names of many countries; none is among those with which
`benchmarks.name_sentences` tests names that are not listed.
"""

import csv
import functools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["NAME_KINDS", "Names", "Spelling", "made_up_name"]

Spelling = tuple[str, str]
"""How the source and the target spell a value."""

NAME_KINDS = ("female", "male", "surname", "city")
_FILE = Path(__file__).parent / "packaged" / "names.tsv"
"""A column for the kind, and one for the spelling in each language; most names are the same in all."""
_FIRST, _FULL = 0.45, 0.2
"""Fractions of the names of people that are a first name, and a first name with a surname; the others are surnames."""
_PEOPLE = 0.7
"""Fraction of people among people and cities."""
_PRONOUNS: Mapping[str, Mapping[str, str]] = {
    "de": {"male": "Er", "female": "Sie"},
    "en": {"male": "He", "female": "She"},
}
"""Words that begin a sentence, for which a name may stand."""
_CONTEXT = 2
"""Letters that the next letter of a made-up name depends on."""
_LENGTHS = 3, 12
"""Characters of a made-up name."""
_JOINED = 0.4
"""Fraction of made-up names that are two listed ones in one word, such as Steinwinter, whose parts have meanings."""


class Names:
    """Draws names by their kind. The same generator draws the same names."""

    def __init__(self, languages: tuple[str, str], made_up: float = 0.0) -> None:
        """`made_up` is the fraction of names that are no listed ones, but made up of their letters."""
        self._languages, self._made_up = languages, made_up
        self._names = _read(languages)

    def all(self, kind: str) -> Sequence[Spelling]:
        """Return the names of one of `NAME_KINDS`."""
        return self._names[kind]

    def draw(self, kind: str, generator: random.Random) -> Spelling:
        """Return a name of one of `NAME_KINDS`."""
        if self._made_up and generator.random() < self._made_up:
            name = made_up_name(self._names[kind], generator)
            return name, name
        return generator.choice(self._names[kind])

    def person(self, generator: random.Random) -> Spelling:
        """Return a first name, a surname, or both."""
        share = generator.random()
        first = self.draw(generator.choice(("female", "male")), generator)
        if share < _FIRST:
            return first
        last = self.draw("surname", generator)
        return last if share > _FIRST + _FULL else (f"{first[0]} {last[0]}", f"{first[1]} {last[1]}")

    def any(self, generator: random.Random) -> Spelling:
        """Return a name of a person or a city."""
        return self.person(generator) if generator.random() < _PEOPLE else self.draw("city", generator)

    def for_pronoun(self, pair: Spelling, generator: random.Random) -> Spelling:
        """Return a pair with a first name for the pronouns that both sides begin with, if they do."""
        source, target = pair
        ours, theirs = (_PRONOUNS.get(language, {}) for language in self._languages)
        for kind in ours.keys() & theirs.keys():
            before, after = ours[kind], theirs[kind]
            if source.startswith(f"{before} ") and target.startswith((f"{after} ", f"{after}'s ")):
                name = self.draw(kind, generator)
                return f"{name[0]}{source[len(before) :]}", f"{name[1]}{target[len(after) :]}"
        return pair


def made_up_name(listed: Sequence[Spelling], generator: random.Random) -> str:
    """Return a name that is not listed: two listed ones in one word, or one spelt like them.

    In the latter each letter follows two others as often as in the sources of listed names. The name is the same on
    both sides of a pair, so that a model cannot know it, but copy it.
    """
    names = tuple(source for source, _ in listed)
    known = frozenset(names)
    while True:
        joined = generator.random() < _JOINED
        name = _joined(names, generator) if joined else _spelt(names, generator)
        if _LENGTHS[0] <= len(name) <= _LENGTHS[1] and name not in known:
            return name


def _joined(names: tuple[str, ...], generator: random.Random) -> str:
    first, second = (generator.choice(names) for _ in range(2))
    return first + second.lower()


def _spelt(names: tuple[str, ...], generator: random.Random) -> str:
    following, name = _letters(names), ""
    while letter := generator.choice(following[name[-_CONTEXT:] if len(name) >= _CONTEXT else f"^{name}"]):
        name += letter
    return name


@functools.cache
def _letters(names: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    """Return the letters that follow each pair of letters, or "^" and the first ones, and "" for the end."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        for place, letter in enumerate([*name, ""]):
            found[name[place - _CONTEXT : place] if place >= _CONTEXT else f"^{name[:place]}"].append(letter)
    return found


@functools.cache
def _read(languages: tuple[str, str]) -> Mapping[str, Sequence[Spelling]]:
    """Return the names of each kind; of languages that the file does not have, those that are the same in all."""
    found: dict[str, list[Spelling]] = {kind: [] for kind in NAME_KINDS}
    with _FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            kind = row.pop("kind")
            if len(set(row.values())) == 1:
                (name,) = set(row.values())
                found[kind].append((name, name))
            elif row.keys() >= set(languages):
                found[kind].append((row[languages[0]], row[languages[1]]))
    return found
