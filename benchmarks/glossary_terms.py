"""German nouns with their usual English translation and another one, for `benchmarks.glossary`.

The nouns are frequent ones of the training split of Tatoeba's German-English pairs with the translation that occurs
with them most often there; the other one is a synonym, or a word of a narrower meaning, as a glossary of one's own
may ask for. A sentence is of use where its reference has the usual word; the reference with the other word is right
then.
"""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["TERMS", "GlossarySentence", "glossary_sentences"]

_LIST = """
Vertrag contract agreement|Auto car automobile|Haus house residence|Geld money cash|Buch book volume|Arbeit work labor
Schule school academy|Vater father dad|Mutter mother mom|Mann man gentleman|Frau woman lady|Zimmer room chamber
Hund dog hound|Katze cat feline|Kinder children kids|Hilfe help assistance|Problem problem difficulty
Mädchen girl lass|Freund friend companion|Freunde friends companions|Tür door gate|Frage question query
Fehler mistake error|Stadt city town|Zug train railcar|Bruder brother sibling|Menschen people humans
Leute people folks|Brief letter epistle|Eltern parents guardians|Familie family household|Bett bed bunk
Lehrer teacher instructor|Kind child youngster|Geschichte story tale|Junge boy lad|Wagen car vehicle|Bus bus coach
Straße street road|Fenster window pane|Meinung opinion view|Arzt doctor physician|Sohn son boy|Tisch table desk
Bahnhof station depot|Polizei police constabulary|Essen food meal|Antwort answer reply|Fahrrad bicycle bike
Land country nation|Unfall accident crash|Grund reason cause|Film movie film|Freundin girlfriend sweetheart
Plan plan scheme|Büro office bureau|Bild picture image|Nachricht message notice|Mensch person human
Schüler student pupil|Studenten students scholars|Tochter daughter child|Abendessen dinner supper|Fluss river stream
Kuchen cake pastry|Hausaufgaben homework assignments|Rat advice guidance|Telefon phone telephone|Platz seat spot
Bier beer lager|Hotel hotel inn|Hut hat cap|Krankenhaus hospital clinic|Party party celebration|Schiff ship vessel
Entscheidung decision choice|Tasse cup mug|Lied song tune|Garten garden yard|Licht light lamp|Spiel game match
Wörterbuch dictionary lexicon|Schwierigkeiten trouble difficulties|Feuer fire blaze|Tasche bag purse
Blumen flowers blossoms|Kleid dress gown|Baum tree sapling|Firma company enterprise|Unternehmen company corporation
Preis price cost|Chef boss manager|Flugzeug plane aircraft|Flughafen airport airfield|Bericht report account
Treffen meeting gathering|Sitzung meeting session|Gericht court tribunal|Anwalt lawyer attorney
Polizist policeman constable|Dieb thief robber|Wald forest woods|Insel island isle|Berg mountain peak|Laden store shop
Geschäft store outlet|Kleidung clothes garments|Schuhe shoes footwear|Computer computer machine|Foto photo photograph
Karte map chart|Fahrer driver chauffeur|Krieg war conflict|Krankheit disease illness|Reise trip journey
Urlaub vacation holiday|Ferien vacation holidays|Geschenk gift present|Wohnung apartment flat|Küche kitchen galley
Medizin medicine medication|Schmerzen pain aches|Gefahr danger peril|Regel rule regulation|Regeln rules regulations
Gesetz law statute|Regierung government administration|Erfolg success triumph|Traum dream vision|Lärm noise racket
Müll garbage trash|Abend evening nightfall|Wahrheit truth reality|Stimme voice vote|Fuß foot paw|Kopf head skull
Bücher books volumes|Welt world globe|Angst fear dread|Ende end conclusion|Zeitung newspaper gazette
Mittagessen lunch luncheon|Frühstück breakfast brunch|Nachbar neighbor resident|Nachbarn neighbors residents
Feind enemy foe|Gast guest visitor|Gäste guests visitors|Ort place location|Weg way route|Koffer suitcase luggage
Brille glasses spectacles|Augen eyes eyeballs|Tier animal creature|Tiere animals creatures|Schwester sister sibling
Minuten minutes moments
"""


@dataclass(frozen=True, slots=True)
class _Noun:
    source: str
    usual: str
    other: str


TERMS = tuple(_Noun(*each.split()) for line in _LIST.split("\n") for each in line.split("|") if each)


@dataclass(frozen=True, slots=True)
class GlossarySentence:
    """A sentence, the terms it must be translated by, and its reference with them."""

    source: str
    reference: str
    glossary: dict[str, str]


def glossary_sentences(pairs: Iterable[tuple[str, str]], count: int = 500, seed: int = 1) -> list[GlossarySentence]:
    """Return up to `count` pairs with one or two of the terms, each source once, in random order."""
    found: dict[str, GlossarySentence] = {}
    for source, reference in pairs:
        words = set(re.findall(r"\w+", source))
        glossary: dict[str, str] = {}
        for noun in TERMS:
            # Exact words of the source here: what inflected forms cost in false matches is measured apart.
            places = re.findall(rf"\b{noun.usual}\b", reference, re.IGNORECASE)
            if noun.source in words and len(places) == 1 and len(glossary) < 2:
                glossary[noun.source] = noun.other
                reference = _replaced(reference, noun)
        if glossary and source not in found:
            found[source] = GlossarySentence(source, reference, glossary)
    sentences = list(found.values())
    random.Random(seed).shuffle(sentences)
    return sentences[:count]


def _replaced(reference: str, noun: _Noun) -> str:
    """Return a reference with the other word, the indefinite article before it adapted."""

    def other(match: re.Match[str]) -> str:
        article, word = match.group(1) or "", match.group(2)
        written = noun.other[:1].upper() + noun.other[1:] if word[0].isupper() else noun.other
        if article:
            right = "an " if noun.other[0] in "aeiou" else "a "
            article = right.capitalize() if article[0] == "A" else right
        return article + written

    return re.sub(rf"(?:\b)((?:a|an) )?\b({noun.usual})\b", other, reference, flags=re.IGNORECASE)
