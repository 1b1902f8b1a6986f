"""Measure how a German-English bundle deals with careless, short, numerical and unsuitable texts.

    python -m benchmarks.translation_robustness models/bundled/de-en/5 --data-dir DIR

Several bundles can be given. Texts of the corpus Tatoeba are translated as they are, without final punctuation, in
lower case, and joined two by two; 200 generated sentences must copy every digit; translations of 100 everyday phrases
must match the patterns in `everyday_phrases.tsv`; names in 200 sentences must be copied. Texts that the model is not
made for should have `low_confidence`.
"""

import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import sacrebleu
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.name_sentences import NAMES_NOT_LISTED, listed_names, name_sentences, names_copied
from models import Translator
from models.store import load_bundle
from models.tasks.translation import Translation
from training.data.corpora import get_corpus

__all__ = ["careless_pairs", "digits_copied", "matches", "numerical_sentences", "read_phrases", "unsuitable_texts"]

Pairs = Sequence[tuple[str, str]]

_PHRASES = Path(__file__).with_name("everyday_phrases.tsv")
_TEMPLATES = (
    "Die Sitzung am {date} beginnt erst um {time} Uhr.",
    "Kannst du mich um {time} Uhr am Bahnsteig {small} abholen?",
    "Für {small} Karten haben wir {price} Euro bezahlt.",
    "Der Gutschein {code} ist {price} € wert.",
    "Im Lager {code} fehlen noch {number} Kisten.",
    "Die Tür von Zimmer {number} lässt sich mit dem Code {digits} öffnen.",
    "Um {time} Uhr hatten wir schon {small} Kilometer hinter uns.",
    "Mein Bus, die Linie {small}, fährt alle {small} Minuten.",
    "Laut Vertrag {code} sind es {price} Euro im Monat.",
    "Sie hat {number} Stimmen bekommen.",
    "Ihre Anfrage mit der Nummer {digits} wird bearbeitet.",
    "Das Fahrrad kostet jetzt nur noch {price} Euro statt {price} Euro.",
    "Um {time} Uhr ist der Strom in Haus {small} ausgefallen.",
    "Modell {code} hat {small} Tasten.",
    "Von {time} Uhr bis {time} Uhr ist das Büro geschlossen.",
    "Die Bestellnummer lautet {digits}, der Betrag ist {price} €.",
    "Am {date} läuft der Ausweis {code} ab.",
    "{small} von {small} Fragen waren richtig.",
    "Der Flug {code} landet um {time} Uhr.",
    "Bitte bringen Sie das Formular {code} bis {time} Uhr mit.",
)
"""None of them is among the training phrases."""
_OTHER_LANGUAGES = 200
"""Sentences of the English side, and of the Universal Declaration of Human Rights."""


def main(
    bundles: Annotated[tuple[Path, ...], tyro.conf.Positional],
    data_dir: Path = Path("data"),
    split: Literal["dev", "test"] = "dev",
    show: bool = False,
) -> None:
    """Print a table with a column per bundle.

    Args:
        bundles: Bundle directories of German-English models.
        data_dir: Directory that holds the corpora.
        split: Split of the corpus; develop with dev.
        show: Print every phrase with its translations, too.
    """
    console, models = Console(), [load_bundle(bundle.resolve()) for bundle in bundles]
    translators = [model for model in models if isinstance(model, Translator)]
    pairs = [(source, target) for source, target in get_corpus("tatoeba-de-en").records(split, data_dir)]
    rows = _Rows(translators)
    for name, some in careless_pairs(pairs).items():
        rows.add(f"BLEU, {split}, {name}", [source for source, _ in some], _bleu(some), "{:.2f}")
    rows.add("numbers: sentences that copy every digit, %", numerical_sentences(), _copied)
    greedy = "numbers, greedy search: sentences that copy every digit, %"
    rows.add(greedy, numerical_sentences(), _copied, beam_size=1)
    for name, names in {"listed for training": listed_names(), "others": NAMES_NOT_LISTED[split]}.items():
        sentences = name_sentences(names, split)
        rows.add(f"names, {name}: sentences that copy all, %", [text for text, _ in sentences], _named(sentences))
    phrases = read_phrases()
    patterns = list(phrases.values())
    rows.add("phrases: acceptable translations of 100", list(phrases), lambda found: _matched(found, patterns))
    rows.add(f"low confidence, %: {split}", [source for source, _ in pairs], _doubtful)
    for name, texts in unsuitable_texts(pairs, data_dir).items():
        rows.add(f"low confidence, %: {name}", texts, _doubtful)
    table = Table("", *(str(bundle) for bundle in bundles))
    for row in rows.rows:
        table.add_row(*row)
    console.print(table)
    if show:
        found = [model.translate(list(phrases)) for model in translators]
        for phrase, *results in zip(phrases, *found, strict=True):
            texts = [result.translations[0].text for result in results]
            marks = ["" if matches(text, phrases[phrase]) else " (!)" for text in texts]
            print(phrase, *(text + mark for text, mark in zip(texts, marks, strict=True)), sep=" | ")


class _Rows:
    """Measures all models on the same texts."""

    def __init__(self, models: Sequence[Translator]) -> None:
        self._models = models
        self.rows: list[list[str]] = []

    def add(
        self,
        name: str,
        texts: Sequence[str],
        value: Callable[[list[Translation]], float],
        form: str = "{:.1f}",
        *,
        beam_size: int = 5,
    ) -> None:
        self.rows.append([name, *(form.format(value(model.translate(texts, beam_size))) for model in self._models)])


def careless_pairs(pairs: Pairs) -> Mapping[str, Pairs]:
    """Return pairs as they are, and changed ones by the name of the change."""
    some = list(zip(pairs[::2], pairs[1::2], strict=False))
    return {
        "as it is": pairs,
        "no final punctuation": [(source.rstrip(".!?"), target.rstrip(".!?")) for source, target in pairs],
        "lower case": [(source.lower(), target) for source, target in pairs],
        "joined two by two": [(f"{one[0]} {two[0]}", f"{one[1]} {two[1]}") for one, two in some],
    }


def numerical_sentences(count: int = 200, seed: int = 1) -> list[str]:
    """Return sentences with times, prices, numbers and codes."""
    generator = random.Random(seed)
    return [
        re.sub(r"{(\w+)}", lambda slot: _value(slot[1], generator), _TEMPLATES[number % len(_TEMPLATES)])
        for number in range(count)
    ]


def _value(kind: str, generator: random.Random) -> str:
    draw, letters = generator.randrange, string.ascii_uppercase
    return {
        "time": lambda: f"{draw(24)}:{draw(60):02d}",
        "date": lambda: f"{1 + draw(28)}.{1 + draw(12)}.{1950 + draw(90)}",
        "price": lambda: f"{draw(10 ** generator.randint(1, 4))},{draw(100):02d}",
        "small": lambda: str(2 + draw(98)),
        "number": lambda: str(100 + draw(10 ** generator.randint(3, 5))),
        "digits": lambda: "".join(generator.choices(string.digits, k=generator.randint(4, 8))),
        "code": lambda: generator.choice(
            (
                f"{generator.choice(letters)}{draw(100)}",
                f"{''.join(generator.choices(letters, k=2))}-{1000 + draw(9000)}",
                f"{draw(1000)}/{draw(100):02d}",
                f"{''.join(generator.choices(letters, k=3))}{draw(1000)}",
            )
        ),
    }[kind]()


def digits_copied(source: str, translation: str) -> bool:
    """Return whether the translation has exactly the digit strings of the source, in any order."""
    return sorted(re.findall(r"\d+", source)) == sorted(re.findall(r"\d+", translation))


def read_phrases(path: Path = _PHRASES) -> dict[str, str]:
    """Return the pattern of acceptable translations of each phrase."""
    return dict(line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())


def matches(translation: str, pattern: str) -> bool:
    """Return whether a translation is acceptable, whatever its case and final punctuation."""
    return re.fullmatch(pattern, translation.strip().rstrip(".!?").lower().replace("’", "'")) is not None


def unsuitable_texts(pairs: Pairs, data_dir: Path) -> Mapping[str, Sequence[str]]:
    """Return texts that a German-English model is not made for, by name, at least 200 pairs given."""
    generator = random.Random(2)
    others = [text for language, text in get_corpus("udhr").records("train", data_dir) if "German" not in language]
    letters = ["".join(generator.choices(string.ascii_lowercase, k=generator.randint(4, 12))) for _ in range(200)]
    return {
        "English sentences": [target for _, target in generator.sample(pairs, _OTHER_LANGUAGES)],
        "sentences of 282 languages": generator.sample(others, _OTHER_LANGUAGES),
        "random letters": letters,
        "emojis": [generator.choice("😀😂😉😍😢😭😡🤔👍🙏🎉☕🍕🚗🏠") * generator.randint(1, 3) for _ in range(200)],
    }


def _bleu(pairs: Pairs) -> Callable[[list[Translation]], float]:
    references = [target for _, target in pairs]
    return lambda found: sacrebleu.corpus_bleu([each.translations[0].text for each in found], [references]).score


def _copied(found: list[Translation]) -> float:
    return 100 * sum(digits_copied(each.text, each.translations[0].text) for each in found) / len(found)


def _named(sentences: Sequence[tuple[str, tuple[str, ...]]]) -> Callable[[list[Translation]], float]:
    return lambda found: (
        100
        * sum(names_copied(names, each.translations[0].text) for (_, names), each in zip(sentences, found, strict=True))
        / len(found)
    )


def _matched(found: list[Translation], patterns: Sequence[str]) -> float:
    return sum(matches(each.translations[0].text, pattern) for each, pattern in zip(found, patterns, strict=True))


def _doubtful(found: list[Translation]) -> float:
    return 100 * sum(each.low_confidence for each in found) / len(found)


if __name__ == "__main__":
    tyro.cli(main)
