"""German sentences with English translations and the links between their words, known by construction.

A word of a template is followed by the numbers of its links: words of both sides with one number in common are linked.
A number with a question mark is a possible link, which is neither demanded nor wrong.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["AlignedSentence", "aligned_sentences"]

_SLOTS: Mapping[str, Sequence[tuple[str, str]]] = {
    "name": [(name, name) for name in ("Tom", "Maria", "Anna", "Peter", "Lukas", "Sarah", "Paul", "Julia", "Max")],
    "city": [
        ("Berlin", "Berlin"),
        ("Hamburg", "Hamburg"),
        ("Wien", "Vienna"),
        ("München", "Munich"),
        ("Köln", "Cologne"),
    ],
    "number": [(f"{value}", f"{value}") for value in (3, 5, 7, 12, 24, 48, 150, 320)],
    "things": [
        ("Bücher", "books"),
        ("Äpfel", "apples"),
        ("Hunde", "dogs"),
        ("Katzen", "cats"),
        ("Briefe", "letters"),
        ("Häuser", "houses"),
    ],
    "colours": [("rote", "red"), ("blaue", "blue"), ("grüne", "green"), ("schwarze", "black"), ("weiße", "white")],
    "colour": [("rot", "red"), ("blau", "blue"), ("grün", "green"), ("schwarz", "black"), ("weiß", "white")],
    "thing": [("Buch", "book"), ("Haus", "house"), ("Auto", "car"), ("Fahrrad", "bicycle"), ("Zimmer", "room")],
    "day": [
        ("Montag", "Monday"),
        ("Dienstag", "Tuesday"),
        ("Mittwoch", "Wednesday"),
        ("Donnerstag", "Thursday"),
        ("Freitag", "Friday"),
    ],
    "drink": [("Wasser", "water"), ("Milch", "milk"), ("Kaffee", "coffee"), ("Tee", "tea"), ("Bier", "beer")],
    "person": [("Bruder", "brother"), ("Vater", "father"), ("Lehrer", "teacher"), ("Freund", "friend")],
    "language": [("Deutsch", "German"), ("Englisch", "English"), ("Französisch", "French"), ("Spanisch", "Spanish")],
}
_TEMPLATES = (
    ("{name}/1 hat/2 {number}/3 {things}/4 ./5", "{name}/1 has/2 {number}/3 {things}/4 ./5"),
    ("{name}/1 hat/2? {number}/3 {things}/4 gekauft/2 ./5", "{name}/1 bought/2 {number}/3 {things}/4 ./5"),
    ("Ich/1 habe/2? {name}/3 am/4 {day}/5 gesehen/2 ./6", "I/1 saw/2 {name}/3 on/4 {day}/5 ./6"),
    ("Das/1 {thing}/2 ist/3 {colour}/4 ./5", "The/1 {thing}/2 is/3 {colour}/4 ./5"),
    ("{name}/1 wohnt/2 in/3 {city}/4 ./5", "{name}/1 lives/2 in/3 {city}/4 ./5"),
    ("Am/1 {day}/2 fährt/3 {name}/4 nach/5 {city}/6 ./7", "On/1 {day}/2 {name}/4 goes/3 to/5 {city}/6 ./7"),
    ("Mein/1 {person}/2 trinkt/3 {drink}/4 ./5", "My/1 {person}/2 drinks/3 {drink}/4 ./5"),
    (
        "Ich/1 glaube/2 ,/3? dass/4 {name}/5 {drink}/6 trinkt/7 ./8",
        "I/1 think/2 that/4 {name}/5 drinks/7 {drink}/6 ./8",
    ),
    ("{name}/1 und/2 {name}/3 sprechen/4 {language}/5 ./6", "{name}/1 and/2 {name}/3 speak/4 {language}/5 ./6"),
    ("Mein/1 {person}/2 lernt/3 {language}/4 ./5", "My/1 {person}/2 is/3? learning/3 {language}/4 ./5"),
    ("Wir/1 brauchen/2 {number}/3 {colours}/4 {things}/5 ./6", "We/1 need/2 {number}/3 {colours}/4 {things}/5 ./6"),
    ("Wo/1 ist/2 das/3 {thing}/4 von/5 {name}/6 ?/7", "Where/1 is/2 {name}/6 's/5 {thing}/4 ?/7"),
    ("Hat/1? {name}/2 das/3 {thing}/4 verkauft/5 ?/6", "Did/1? {name}/2 sell/5 the/3 {thing}/4 ?/6"),
    (
        "Gestern/1 hat/2? {name}/3 {number}/4 {things}/5 gefunden/2 ./6",
        "{name}/3 found/2 {number}/4 {things}/5 yesterday/1 ./6",
    ),
    ("Nächsten/1 {day}/2 kommt/3 mein/4 {person}/5 ./6", "My/4 {person}/5 is/3? coming/3 next/1 {day}/2 ./6"),
    ("Er/1 kann/2 kein/3 {language}/4 sprechen/5 ./6", "He/1 can/2 not/3 speak/5 {language}/4 ./6"),
    ("{name}/1 muss/2 {drink}/3 kaufen/4 ./5", "{name}/1 has/2 to/2? buy/4 {drink}/3 ./5"),
    (
        "Wenn/1 es/2 regnet/3 ,/4 bleibt/5 {name}/6 in/7 {city}/8 ./9",
        "If/1 it/2 rains/3 ,/4 {name}/6 stays/5 in/7 {city}/8 ./9",
    ),
    ("In/1 {city}/2 gibt/3 es/4 {number}/5 {things}/6 ./7", "There/4 are/3 {number}/5 {things}/6 in/1 {city}/2 ./7"),
    (
        "{name}/1 schenkt/2 meinem/3 {person}/4 {number}/5 {things}/6 ./7",
        "{name}/1 gives/2 my/3 {person}/4 {number}/5 {things}/6 ./7",
    ),
)
_SLOT = re.compile(r"{(\w+)}")
_NO_SPACE_BEFORE = re.compile(r"[.,?!]|'s")


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignedSentence:
    """A sentence, its translation, and the links between their words."""

    source: str
    target: str
    source_words: tuple[tuple[int, int], ...]
    """Characters of each word."""
    target_words: tuple[tuple[int, int], ...]
    sure: frozenset[tuple[int, int]]
    """Links that an alignment should have: a word of the source and one of the target, from 0 on."""
    possible: frozenset[tuple[int, int]]
    """Links that an alignment may have, the sure ones included."""


def aligned_sentences(count: int = 200, seed: int = 1) -> list[AlignedSentence]:
    """Return sentences of each template in turn."""
    generator = random.Random(seed)
    return [_sentence(generator, *_TEMPLATES[number % len(_TEMPLATES)]) for number in range(count)]


def _sentence(generator: random.Random, source: str, target: str) -> AlignedSentence:
    drawn: dict[str, list[tuple[str, str]]] = {}
    for slot in _SLOT.findall(source):
        left = [each for each in _SLOTS[slot] if each not in drawn.get(slot, [])]
        drawn.setdefault(slot, []).append(generator.choice(left))
    ours, theirs = (_words(template, drawn, side) for side, template in enumerate((source, target)))
    sure, possible = set(), set()
    for index, (_, numbers) in enumerate(ours):
        for other, (_, others) in enumerate(theirs):
            if {each.rstrip("?") for each in numbers} & {each.rstrip("?") for each in others}:
                possible.add((index, other))
                if set(numbers) & set(others) and not any(each.endswith("?") for each in (*numbers, *others)):
                    sure.add((index, other))
    (source, source_words), (target, target_words) = (_joined([word for word, _ in side]) for side in (ours, theirs))
    return AlignedSentence(
        source=source,
        target=target,
        source_words=source_words,
        target_words=target_words,
        sure=frozenset(sure),
        possible=frozenset(possible),
    )


def _words(
    template: str, drawn: Mapping[str, Sequence[tuple[str, str]]], side: int
) -> list[tuple[str, tuple[str, ...]]]:
    """Return the words of a side, each with the numbers of its links."""
    left = {slot: list(values) for slot, values in drawn.items()}
    found = []
    for item in template.split():
        word, _, numbers = item.rpartition("/")
        slot = _SLOT.fullmatch(word)
        found.append((word if slot is None else left[slot[1]].pop(0)[side], tuple(numbers.split(","))))
    return found


def _joined(words: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the text of words, and the characters of each."""
    text, spans = "", []
    for word in words:
        text += "" if not text or _NO_SPACE_BEFORE.fullmatch(word) else " "
        spans.append((len(text), len(text) + len(word)))
        text += word
    return text, tuple(spans)
