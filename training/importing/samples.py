"""Sample texts: inputs to compare models on, and to observe ranges of activations with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.importing.errors import ImportRefused

__all__ = ["BUILT_IN", "BUILT_IN_SAMPLES", "Samples", "read_samples", "sample_pairs"]

_COMPARED = 24
"""Texts of a file that are compared with the reference, evenly spread over it, in addition to those built in."""

BUILT_IN = (
    "Hello",
    "I want to cancel my order.",
    "The film was much better than I had expected, and the music is wonderful!",
    "Delivery took three weeks and nobody answered my e-mails.",
    "Wie komme ich am schnellsten zum Bahnhof?",
    "Où se trouve la bibliothèque la plus proche ?",
    "¿Cuánto cuesta un billete de ida y vuelta?",
    "今日はとても良い天気ですね。",
    "Это предложение написано по-русски.",
    "On 12 March 2021 the index rose by 2.75 % to 14,532.10 points; bonds fell.",
    'def read(path):\n\treturn open(path).read()  # <b>not</b> HTML & not JSON {"a": [1, 2]}',
    "Emoji 🙂👍🏽, full-width ＡＢＣ, ligature ﬁ, combining e\u0301 and a no-break\u00a0space.",
    "Is this text about sports, politics, science or business?",
    "Please call me back on Monday morning, or write to support@example.com.",
    "too    many     spaces   and a very longwordwithoutanyspacesinitwhichmustbesplitintopieces",
    "A long text. " + "It goes on for a while and repeats itself, as long texts sometimes do. " * 120,
)
"""Texts of several lengths, languages and kinds."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Sample texts and where they are from."""

    texts: tuple[str, ...]
    name: str
    labels: tuple[str, ...] = ()
    """The label of each text, of a file that has them."""

    def compared(self) -> tuple[str, ...]:
        """Return the texts to compare with the reference."""
        return (*BUILT_IN, *self.texts[:: max(1, -(-len(self.texts) // _COMPARED))]) if self.name else BUILT_IN

    def calibration(self) -> tuple[str, ...]:
        """Return the half of the texts that ranges of activations are observed on."""
        return self.texts[::2]

    def held_out(self) -> tuple[str, ...]:
        """Return the other half of the texts."""
        return self.texts[1::2]


BUILT_IN_SAMPLES = Samples(BUILT_IN, "")


def read_samples(path: Path | None) -> Samples:
    """Return the texts of a file, one a line, or those built in; raises `ImportRefused` for fewer than two.

    Lines of a file `.tsv` have a label, a tab and a text each.
    """
    if path is None:
        return BUILT_IN_SAMPLES
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise ImportRefused(f"{path} is not a text file: {error}") from error
    texts = tuple(line for line in lines if line.strip())
    if len(texts) < 2:
        raise ImportRefused(f"{path} must have two texts or more, one a line")
    if path.suffix != ".tsv":
        return Samples(texts, path.name)
    labels, tabs, after = zip(*(line.partition("\t") for line in texts), strict=True)
    if not all(tabs) or not all(text.strip() for text in after):
        raise ImportRefused(f"{path} must have a label, a tab and a text on each line")
    return Samples(after, path.name, labels)


def sample_pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return each text with the next one, the last one with the first."""
    return list(zip(texts, [*texts[1:], *texts[:1]], strict=True))
