"""German sentences with names of people and places that a translation must copy."""

import random
import re
from collections.abc import Mapping, Sequence

from training.data.names import NAME_KINDS, Names

__all__ = ["NAMES_NOT_LISTED", "listed_names", "name_sentences", "names_copied"]

NAMES_NOT_LISTED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "dev": {
        "female": ("Gundula", "Ottilie", "Liselotte", "Swantje", "Hedwig", "Irmgard"),
        "male": ("Hinnerk", "Lothar", "Gernot", "Sönke", "Volker", "Wendelin", "Eckhard"),
        "surname": ("Schwarzkopf", "Grünwald", "Petrowski", "Haferkamp", "Jansen", "Kretschmer", "Uhlig", "Hasselbach"),
        "city": ("Zwickau", "Göppingen", "Husum", "Iserlohn", "Buxtehude", "Travemünde", "Landshut"),
    },
    "test": {
        "female": ("Ingrid", "Leonie", "Heike", "Svenja", "Rosalie", "Mareike", "Ayşe", "Annegret", "Friederike"),
        "male": ("Moritz", "Jürgen", "Detlef", "Korbinian", "Bastian", "Ansgar", "Torben", "Kilian", "Hartmut"),
        "surname": ("Zimmermann", "Vogt", "Brandt", "Kowalski", "Lindner", "Ritter", "Hellwig", "Ostermann", "Wiegand"),
        "city": ("Heidelberg", "Osnabrück", "Graz", "Bielefeld", "Wismar", "Detmold", "Fulda", "Görlitz", "Bochum"),
    },
}
"""Names that are not in the list of names for training: to develop with, and to test with."""
_TEMPLATES = {
    "dev": (
        "Nächste Woche fährt {female} mit dem Zug nach {city}.",
        "{male} wollte nicht mitkommen.",
        "Ich habe {female} {surname} lange nicht gesehen.",
        "Wo wohnt {male} jetzt?",
        "{city} liegt an einem Fluss.",
        "Frau {surname} ruft morgen zurück.",
        "Gib {male} bitte das Buch.",
        "{female} kocht sehr gern.",
        "Der Brief ist von {surname}.",
        "Die Firma von {male} {surname} sitzt in {city}.",
        "{surname} gewann das Spiel.",
        "Mit {female} kann man gut reden.",
    ),
    "test": (
        "Am Wochenende besucht {female} ihre Tante in {city}.",
        "{male} hat gestern sein Auto verkauft.",
        "Meine Kollegin {female} {surname} spricht fünf Sprachen.",
        "Hast du {male} zum Essen eingeladen?",
        "In {city} gibt es ein neues Museum.",
        "Herr {surname} ist heute nicht im Büro.",
        "{female} möchte Tierärztin werden.",
        "Ohne {male} macht es keinen Spaß.",
        "Der Arzt heißt {surname}.",
        "Gestern hat {female} aus {city} geschrieben.",
        "{male} und {female} spielen im Garten.",
        "Von {city} nach {city} sind es zwei Stunden.",
        "Das Buch gehört {female}.",
        "Frau {surname} hat die Stelle bekommen.",
        "Wie lange bleibst du in {city}?",
        "Onkel {male} ist krank.",
        "Hat {female} dir die Wahrheit gesagt?",
        "Unser Nachbar, Herr {surname}, ist sehr freundlich.",
        "{male} {surname} war der beste Spieler.",
        "Ich vermisse {female}.",
    ),
}
"""None of them is among the training phrases."""


def listed_names() -> dict[str, list[str]]:
    """Return the names for training that are the same in German and English, by kind."""
    names = Names(("de", "en"))
    return {kind: [ours for ours, theirs in names.all(kind) if ours == theirs] for kind in NAME_KINDS}


def name_sentences(
    names: Mapping[str, Sequence[str]], split: str = "test", *, count: int = 100, seed: int = 1
) -> list[tuple[str, tuple[str, ...]]]:
    """Return sentences, each with the names in it; splits have templates of their own."""
    generator, found, templates = random.Random(seed), [], _TEMPLATES[split]
    for number in range(count):
        template = templates[number % len(templates)]
        drawn = tuple(generator.choice(names[kind]) for kind in re.findall(r"{(\w+)}", template))
        found.append((re.sub(r"{\w+}", "{}", template).format(*drawn), drawn))
    return found


def names_copied(names: Sequence[str], translation: str) -> bool:
    """Return whether a translation has all names, each as a word."""
    return all(re.search(rf"\b{re.escape(name)}\b", translation) for name in names)
