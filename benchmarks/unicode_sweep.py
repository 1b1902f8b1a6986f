"""Send every assigned character of Unicode, alone and within a sentence, through translation, scoring, classification.

    python -m benchmarks.unicode_sweep [--every 100]

Counts texts that raise an exception, translations with a U+FFFD that was not in the text, and those with other line
breaks than the text. The exit status is 1 where there is one.
"""

import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from models import Classifier, LanguageModel, ModelStore, Translator
from models.errors import QueryError
from service.settings import BUNDLED

_PLACES = {"alone": "{}", "in a sentence": "Das ist {} Milch.\n***"}
_TOGETHER = 256
_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_NOT_CHARACTERS = ("Cn", "Cs", "Co")
"""Categories of code points that are no assigned characters."""


@dataclass
class Faults:
    """The characters for which something went wrong."""

    exceptions: dict[str, str] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)
    """Characters whose output has a U+FFFD that the text does not have."""
    lines: list[str] = field(default_factory=list)
    """Characters whose output has other line breaks than the text."""

    def __len__(self) -> int:
        return len(self.exceptions) + len(self.replaced) + len(self.lines)


def assigned_characters() -> Iterator[str]:
    """Yield every assigned character."""
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) not in _NOT_CHARACTERS:
            yield chr(code)


def _breaks(text: str) -> str:
    return "".join(letter for letter in text if letter in _BREAKS)


def _check(character: str, text: str, output: str, faults: Faults) -> None:
    if "\ufffd" in output and "\ufffd" not in text:
        faults.replaced.append(character)
    if _breaks(text) != _breaks(output):
        faults.lines.append(character)


def sweep(
    characters: Sequence[str], place: str, run: Callable[[list[str]], list[str] | None], progress: Console
) -> Faults:
    """Return the faults of an operation, which returns the texts that it wrote, if any."""
    faults = Faults()
    groups = [characters[first : first + _TOGETHER] for first in range(0, len(characters), _TOGETHER)]
    for group in track(groups, description=place, console=progress, transient=True):
        texts = [place.format(character) for character in group]
        try:
            outputs = run(texts)
        except Exception:
            outputs = None
            _find(group, texts, run, faults)
        for character, text, output in zip(group, texts, outputs or (), strict=False):
            _check(character, text, output, faults)
    return faults


def _find(
    characters: Sequence[str], texts: Sequence[str], run: Callable[[list[str]], list[str] | None], faults: Faults
) -> None:
    """Add the characters of a group that cannot be run, and check the others."""
    for character, text in zip(characters, texts, strict=True):
        try:
            outputs = run([text])
        except QueryError:
            continue  # such as an empty text for a model that needs words: said to the client
        except Exception as error:
            faults.exceptions[character] = repr(error)
        else:
            for output in outputs or ():
                _check(character, text, output, faults)


def _operations(store: ModelStore) -> dict[str, Callable[[list[str]], list[str] | None]]:
    translator, language_model, classifier = (store.load(name) for name in ("de-en", "next-word:4", "intents"))
    assert isinstance(translator, Translator)
    assert isinstance(language_model, LanguageModel)
    assert isinstance(classifier, Classifier)

    def score(texts: list[str]) -> None:
        language_model.score(texts)

    def classify(texts: list[str]) -> None:
        classifier.classify(texts, top_k=1)

    return {
        "translate": lambda texts: [each.translations[0].text for each in translator.translate(texts)],
        "score": score,
        "classify": classify,
    }


def main(every: Annotated[int, tyro.conf.arg(help="Look at one of so many characters.")] = 1) -> None:
    """Sweep over all assigned characters."""
    console, progress = Console(), Console(stderr=True)
    characters = list(assigned_characters())[::every]
    table = Table("operation", "text", "characters", "exceptions", "U+FFFD", "line breaks")
    failed = False
    for name, run in _operations(ModelStore(BUNDLED)).items():
        for place, template in _PLACES.items():
            found = sweep(characters, template, run, progress)
            table.add_row(
                name,
                place,
                f"{len(characters):,}",
                *(str(len(each)) for each in (found.exceptions, found.replaced, found.lines)),
            )
            failed = failed or len(found) > 0
            for character, error in found.exceptions.items():
                console.print(f"{name}, {place}: U+{ord(character):04X}: {error}", markup=False)
            for kind, some in (("U+FFFD", found.replaced), ("line breaks", found.lines)):
                if some:
                    shown = " ".join(f"U+{ord(each):04X}" for each in some[:20])
                    console.print(f"{name}, {place}: {kind}: {shown}", markup=False)
    console.print(table)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    tyro.cli(main)
