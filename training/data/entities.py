"""Names, numbers, times, prices, codes and addresses: values that a translation copies.

A slot such as `{time}` in both texts of a pair stands for one value, written as each language writes it.
"""

import functools
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from training.data.names import NAME_KINDS, Names
from training.data.names import Spelling as Value

__all__ = ["Entities", "TextPair"]

TextPair = tuple[str, str]
"""Source and target text."""

_SLOT = re.compile(r"\{(\w+)\}")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_NAME = re.compile(r"\b[A-ZÄÖÜ][a-zäöüß]{2,}\b")
_FEWEST = 3
"""Pairs in which a word must be the same on both sides to count as a name."""
_LISTED, _FROM_CORPUS, _CODES = 0.6, 0.15, 0.1
"""Fractions of the names that are listed, taken from the corpus, and codes; the others are random syllables."""
_FOR_PRONOUN = 0.5
"""Fraction of the exchanges in which a name stands for the pronoun that a pair begins with."""

_DECIMAL_COMMA = frozenset({"cs", "da", "de", "es", "fi", "fr", "it", "nb", "nl", "pl", "pt", "ru", "sv", "tr", "uk"})
"""Languages that write 1.234,5 where others write 1,234.5."""
_NUMBER_WORDS = {
    "de": ("zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"),
    "en": ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
}
"""The number words of a language, from two on."""
_CODE_SHAPES = (
    "####",
    "#####",
    "######",
    "#######",
    "########",
    "###/##",
    "A##",
    "AA-####",
    "AAA###",
    "##-###",
    "A-#####/##",
    "####-####",
    "A#A#",
    "AA###A",
)
"""Codes: `#` is a digit, `A` a letter."""
_REPEATED, _ZEROS = 0.25, 0.1
"""Fractions of the digits that are the one before again, the most difficult ones to copy, and of the codes that begin
with 0."""
_ADDED = ("code", "date", "number", "price", "thousands", "time")
"""Kinds of values that are put after a text."""
_PHONES = ("0## #######", "0###/######", "+49 ### ######", "0### ######", "+## ## #######")
_EMOJIS = (*"😀😃😄😁😂😉😊😍😘😎😢😭😡😴🤔👍👎👏🙏👋💪🎉🎂🎁💔⭐☕🍺🍕🚗🏠📞", "❤️", "☀️", "✈️")


class Entities:
    """Draws values. The same generator draws the same values."""

    def __init__(self, languages: tuple[str, str], pairs: Iterable[TextPair], made_up_names: float = 0.0) -> None:
        """`pairs` are those of which names are collected: capitalized words that are the same on both sides.

        `made_up_names` is the fraction of names of people and cities that are not listed; see `Names`.
        """
        self._languages, self._listed = languages, Names(languages, made_up_names)
        counts = Counter(name for source, target in pairs for name in set(_NAME.findall(source)) & set(_words(target)))
        self._names = [name for name, count in sorted(counts.items()) if count >= _FEWEST]
        self._known = frozenset(self._names)
        self._values: Mapping[str, Callable[[random.Random], Value]] = {
            "time": self._time,
            "small": lambda generator: _same(str(generator.randint(2, 99))),
            "number": lambda generator: _same(_shaped("#" * generator.randint(1, 5), generator)),
            "thousands": lambda generator: self._grouped(generator.randrange(1000, 10 ** generator.randint(4, 7))),
            "price": lambda generator: self._decimal(generator.randrange(10 ** generator.randint(1, 4)), generator, 2),
            "decimal": lambda generator: self._decimal(generator.randrange(100), generator, 1),
            "score": lambda generator: _same(f"{generator.randrange(10)}:{generator.randrange(10)}"),
            "date": _date,
            "year": lambda generator: _same(str(generator.randint(1500, 2035))),
            "digits": lambda generator: _same(_shaped("#" * generator.randint(3, 9), generator, _ZEROS)),
            "code": lambda generator: _same(_shaped(generator.choice(_CODE_SHAPES), generator, _ZEROS)),
            "version": lambda generator: _same(
                ".".join(str(generator.randrange(20)) for _ in range(generator.choice((2, 3))))
            ),
            "phone": lambda generator: _same(_shaped(generator.choice(_PHONES), generator)),
            "email": lambda generator: _same(f"{_word(generator)}@{_word(generator)}.{_domain(generator)}"),
            "url": _url,
            "emoji": lambda generator: _same(generator.choice(_EMOJIS)),
            "postcode": lambda generator: _same(_shaped("#####", generator)),
            "name": self._name,
            **{kind: functools.partial(self._listed.draw, kind) for kind in NAME_KINDS},
        }

    def filled(self, pair: TextPair, generator: random.Random) -> TextPair:
        """Return a pair with values in its slots; the i-th slot of a kind has the same value on both sides.

        Raises `ValueError` for an unknown slot.
        """
        source, target = pair
        for kind in sorted(set(_SLOT.findall(source))):
            if kind not in self._values:
                raise ValueError(f"unknown slot {{{kind}}} in {source!r}; there are {', '.join(self._values)}")
            for _ in range(source.count(f"{{{kind}}}")):
                ours, theirs = self._values[kind](generator)
                source, target = source.replace(f"{{{kind}}}", ours, 1), target.replace(f"{{{kind}}}", theirs, 1)
        return source, target

    def exchanged(self, pair: TextPair, generator: random.Random) -> TextPair:
        """Return a pair with other numbers and names where both sides have the same ones."""
        source, target = pair
        for number in _NUMBER.findall(source):
            same = [each for each in _NUMBER.findall(target) if _groups(each) == _groups(number)]
            if len(same) == 1 and source.count(number) == target.count(same[0]) == 1:
                groups = [_other_number(group, generator) for group in _groups(number)]
                source = source.replace(number, _regrouped(number, groups))
                target = target.replace(same[0], _regrouped(same[0], groups))
        source, target = self._without_number_word((source, target), generator)
        if generator.random() < _FOR_PRONOUN:
            source, target = self._listed.for_pronoun((source, target), generator)
        for name in sorted(set(_NAME.findall(source)) & self._known):
            if source.count(name) == 1 == len(re.findall(rf"\b{name}\b", target)):
                ours, theirs = self._name(generator)
                source, target = source.replace(name, ours), re.sub(rf"\b{name}\b", theirs, target)
        return source, target

    def extended(self, pair: TextPair, generator: random.Random) -> TextPair:
        """Return a pair with the same value before or after both sides."""
        kind = generator.randrange(4)
        if kind == 0:
            values, form = _same(str(generator.randint(1, 20))), "{value}. {text}"
        elif kind == 1:
            values, form = self._values["code"](generator), "{value}: {text}"
        elif kind == 2:
            values, form = self._values[generator.choice(_ADDED)](generator), "{text} ({value})"
        else:
            values, form = self._values["emoji"](generator), "{text} {value}"
        source, target = (form.format(text=text, value=value) for text, value in zip(pair, values, strict=True))
        return source, target

    def _without_number_word(self, pair: TextPair, generator: random.Random) -> TextPair:
        """Return a pair with digits instead of a number word, where each side has one, the same."""
        known = [_NUMBER_WORDS.get(language, ()) for language in self._languages]
        found = [[word for word in _words(text) if word in words] for text, words in zip(pair, known, strict=True)]
        if [len(words) for words in found] != [1, 1]:
            return pair
        (ours,), (theirs,) = found
        if known[0].index(ours) != known[1].index(theirs):
            return pair
        digits, _ = self._values[generator.choice(("small", "number"))](generator)
        return re.sub(rf"\b{ours}\b", digits, pair[0]), re.sub(rf"\b{theirs}\b", digits, pair[1])

    def _name(self, generator: random.Random) -> Value:
        share = generator.random()
        if share < _LISTED:
            return self._listed.any(generator)
        if share < _LISTED + _FROM_CORPUS and self._names:
            return _same(generator.choice(self._names))
        if share > 1 - _CODES:
            return _same(_shaped(generator.choice(_CODE_SHAPES), generator, _ZEROS))
        return _same(_word(generator).capitalize())

    def _time(self, generator: random.Random) -> Value:
        hour, minute = generator.randrange(24), f"{generator.randrange(60):02d}"
        dotted = self._languages[0] in _DECIMAL_COMMA and generator.random() < 0.3
        return f"{hour}{'.' if dotted else ':'}{minute}", f"{hour}:{minute}"

    def _grouped(self, number: int) -> Value:
        ours, theirs = (f"{number:,}".replace(",", "." if each in _DECIMAL_COMMA else ",") for each in self._languages)
        return ours, theirs

    def _decimal(self, whole: int, generator: random.Random, places: int) -> Value:
        fraction = f"{generator.randrange(10**places):0{places}d}"
        ours, theirs = (f"{whole}{',' if each in _DECIMAL_COMMA else '.'}{fraction}" for each in self._languages)
        return ours, theirs


def _same(value: str) -> Value:
    return value, value


def _words(text: str) -> Sequence[str]:
    words: list[str] = re.findall(r"\b\w+\b", text)
    return words


def _groups(number: str) -> list[str]:
    return re.findall(r"\d+", number)


def _regrouped(number: str, groups: Sequence[str]) -> str:
    """Return a number with other digits between its separators."""
    left = iter(groups)
    return re.sub(r"\d+", lambda _: next(left), number)


def _other_number(digits: str, generator: random.Random) -> str:
    """Return random digits, as many or nearly as many; two stay below 60, as minutes do."""
    if len(digits) <= 2:
        return str(generator.randrange(10, 60)) if len(digits) == 2 else str(generator.randint(2, 9))
    return _shaped("#" * max(3, len(digits) + generator.choice((-1, 0, 0, 0, 1))), generator)


def _shaped(shape: str, generator: random.Random, zeros: float = 0.0) -> str:
    """Return a text with random digits for `#` and letters for `A`; the fraction `zeros` has 0 as its first digit."""
    digits = _digits(generator, zeros)
    return "".join(
        next(digits) if each == "#" else generator.choice(string.ascii_uppercase) if each == "A" else each
        for each in shape
    )


def _digits(generator: random.Random, zeros: float) -> Iterator[str]:
    """Yield random digits without end, of which the first is 0 with the probability `zeros`."""
    digit = "0" if generator.random() < zeros else generator.choice(string.digits[1:])
    while True:
        yield digit
        if generator.random() >= _REPEATED:
            digit = generator.choice(string.digits)


def _word(generator: random.Random) -> str:
    """Return a random word of two or three syllables."""
    return "".join(
        generator.choice("bdfghjklmnprstvwz")
        + generator.choice("aeiou")
        + generator.choice(("", "", "l", "n", "r", "s"))
        for _ in range(generator.choice((2, 2, 3)))
    )


def _domain(generator: random.Random) -> str:
    return generator.choice(("de", "com", "org", "net", "at", "info"))


def _url(generator: random.Random) -> Value:
    start = generator.choice(("www.", "https://", "https://www.", "http://", ""))
    end = generator.choice(("", "", f"/{_word(generator)}", f"/{_word(generator)}/{generator.randrange(1000)}"))
    return _same(f"{start}{_word(generator)}.{_domain(generator)}{end}")


def _date(generator: random.Random) -> Value:
    day, month, year = generator.randint(1, 28), generator.randint(1, 12), generator.randint(1990, 2035)
    return _same(
        generator.choice((f"{day}.{month}.{year}", f"{day:02d}.{month:02d}.{year}", f"{year}-{month:02d}-{day:02d}"))
    )
