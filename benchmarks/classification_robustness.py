"""Measure how a classifier of CLINC150 deals with typing errors and with texts that are none of its classes.

    python -m benchmarks.classification_robustness models/bundled/intents/2 --data-dir DIR

Several bundles can be given. Typing errors are one edit (a letter inserted, left out, replaced, or exchanged for its
neighbour) in every fifth word. Other languages are the sentences of the Universal Declaration of Human Rights in
languages that are not trained on, and everyday phrases in eleven languages.
"""

import random
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from models import Classifier, QueryError
from models.store import load_bundle
from models.tasks.text_classification import Classification
from training.data.corpora import get_corpus
from training.data.out_of_scope import texts_of_other_languages

__all__ = ["PHRASES", "edited", "unsuitable_texts", "with_edits"]

_RATE = 5
"""Every such word has an edit, on average."""
_TEXTS = 200
"""Texts of each kind that is out of scope."""

PHRASES = (
    "wie wird das Wetter morgen",
    "stell den Wecker auf sieben Uhr",
    "ich möchte einen Tisch für zwei Personen",
    "quel temps fera-t-il demain",
    "réveille-moi à sept heures",
    "je voudrais réserver une table",
    "¿qué tiempo hará mañana?",
    "pon una alarma a las siete",
    "quiero reservar una mesa para dos",
    "che tempo farà domani",
    "metti la sveglia alle sette",
    "qual é a previsão do tempo para amanhã",
    "quero reservar uma mesa",
    "wat voor weer wordt het morgen",
    "zet de wekker op zeven uur",
    "hur blir vädret i morgon",
    "ställ klockan på sju",
    "jaka będzie jutro pogoda",
    "ustaw budzik na siódmą",
    "yarın hava nasıl olacak",
    "saat yediye alarm kur",
    "какая завтра погода",
    "поставь будильник на семь",
    "明天天气怎么样",
    "七点叫我起床",
    "明日の天気は",
    "7時にアラームをセットして",
)
"""Requests to an assistant in other languages."""


def main(
    bundles: Annotated[tuple[Path, ...], tyro.conf.Positional], data_dir: Path = Path("data"), split: str = "dev"
) -> None:
    """Print a table with a column per bundle.

    Args:
        bundles: Bundle directories of classifiers of CLINC150.
        data_dir: Directory that holds the corpora.
        split: Split of the corpus; develop with dev.
    """
    models = [load_bundle(bundle.resolve()) for bundle in bundles]
    classifiers = [model for model in models if isinstance(model, Classifier)]
    corpus = get_corpus("clinc150")
    labels, texts = zip(*corpus.records(split, data_dir), strict=True)
    rows = [
        (f"accuracy, {split}, %", texts, _accuracy(labels)),
        (f"accuracy, {split}, typing errors, %", with_edits(texts), _accuracy(labels)),
        (f"out of scope, {split}, %", texts, _outside),
        (f"out of scope, {split}, typing errors, %", with_edits(texts), _outside),
        (f"out of scope, oos_{split}, %", [text for _, text in corpus.records(f"oos_{split}", data_dir)], _outside),
        *((f"out of scope, {name}, %", some, _outside) for name, some in unsuitable_texts(data_dir).items()),
    ]
    table = Table("", *(str(bundle) for bundle in bundles))
    for name, some, value in rows:
        table.add_row(name, *(_cell(model, some, value) for model in classifiers))
    Console().print(table)


def _cell(model: Classifier, texts: Sequence[str], value: Callable[[list[Classification]], float]) -> str:
    try:
        return f"{value(model.classify(texts, truncate=True)):.2f}"
    except QueryError:  # classifiers without a rule for texts out of scope refuse empty texts
        return "refused"


def with_edits(texts: Sequence[str], seed: int = 1) -> list[str]:
    """Return texts with one edit in every fifth word, drawn at random."""
    generator = random.Random(seed)
    return [
        " ".join(edited(word, generator) if generator.randrange(_RATE) == 0 else word for word in text.split(" "))
        for text in texts
    ]


def edited(word: str, generator: random.Random) -> str:
    """Return a word with one letter inserted, left out, replaced, or exchanged for the next."""
    letter, kind = generator.choice(string.ascii_lowercase), generator.randrange(4)
    place = generator.randrange(len(word) + 1) if word else 0
    if kind == 0 or len(word) < 2:
        return word[:place] + letter + word[place:]
    place = min(place, len(word) - 1)
    if kind == 1:
        return word[:place] + word[place + 1 :]
    if kind == 2:
        return word[:place] + letter + word[place + 1 :]
    place = min(place, len(word) - 2)
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]


def unsuitable_texts(data_dir: Path) -> Mapping[str, Sequence[str]]:
    """Return texts that no intent fits, by name."""
    generator = random.Random(2)
    others = generator.sample(texts_of_other_languages(data_dir, held_out=True), _TEXTS)
    words = [
        ["".join(generator.choices(string.ascii_lowercase, k=generator.randint(3, 12))) for _ in range(3)]
        for _ in range(_TEXTS)
    ]
    return {
        "random letters": [" ".join(some[: generator.choice((1, 1, 2, 3))]) for some in words],
        "emojis": [generator.choice("😀😂😉😍😢🤖🦊🛠🎈🥑🧩🎧") * generator.randint(1, 3) for _ in range(_TEXTS)],
        "empty texts": ["", " ", "\n"],
        "other languages, declaration": others,
        "other languages, phrases": PHRASES,
    }


def _accuracy(labels: Sequence[str]) -> Callable[[list[Classification]], float]:
    return lambda found: _percentage(
        [bool(each.labels) and each.labels[0].label == label for each, label in zip(found, labels, strict=True)]
    )


def _outside(found: list[Classification]) -> float:
    return _percentage([each.out_of_scope is True for each in found])


def _percentage(found: Sequence[bool]) -> float:
    return 100 * sum(found) / len(found)


if __name__ == "__main__":
    tyro.cli(main)
