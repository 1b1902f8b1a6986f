"""How many protected parts of generated sentences a translation has byte for byte and exactly once.

    .venv/bin/python -m benchmarks.protected [models/bundled/de-en/5] [--pairs valid.de-en.tsv]

An imported MarianMT with random weights is made by `python -m tests.support.marian_directory`.

With `--pairs`, lines of a source and its reference, it also prints the BLEU of their translations with and without
protection, and the seconds that both take. `--stand-ins` are words: each is put in place of the name Tom in those pairs
that have it once on both sides; printed are the fraction of the translations that copy it, and their BLEU.
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sacrebleu

from benchmarks.protected_sentences import ProtectedSentence, protected_sentences
from models.store import ModelStore, load_bundle
from models.tasks.translation import TranslationQuery, Translator
from models.text.protection import KINDS, Protection
from service.settings import BUNDLED

__all__ = ["Kept", "kept_parts"]

_NAME = re.compile(r"\bTom\b")
_NAMED = 300

ALL, NONE = Protection(KINDS), Protection(())


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """How many parts translations have."""

    parts: Mapping[str, int]
    """Parts of each kind."""
    kept: Mapping[str, int]
    """Those that are there exactly once."""
    copied: int
    """Stand-ins that the model itself wrote exactly once in the best translation."""
    several: int
    """Sentences with several parts."""
    ordered: int
    """Those whose translation has all parts, in the order of the sentence."""

    @property
    def fraction(self) -> float:
        """Return the fraction of all parts that are there exactly once."""
        return sum(self.kept.values()) / sum(self.parts.values())


def kept_parts(
    model: Translator, sentences: Sequence[ProtectedSentence], beam_size: int = 5, protection: Protection = ALL
) -> Kept:
    """Translate sentences, and count the parts."""
    found = model.translate([each.text for each in sentences], beam_size, protection=protection)
    parts: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    several = ordered = 0
    for sentence, result in zip(sentences, found, strict=True):
        text = result.translations[0].text
        if len(sentence.parts) > 1:
            several += 1
            places = [text.find(part) for part in sentence.parts]
            ordered += min(places) >= 0 and places == sorted(places)
        for kind, part in zip(sentence.kinds, sentence.parts, strict=True):
            parts[kind] += 1
            kept[kind] += text.count(part) == 1
    copied = _copied(model, sentences, beam_size, protection)
    return Kept(parts=parts, kept=kept, copied=copied, several=several, ordered=ordered)


def _copied(model: Translator, sentences: Sequence[ProtectedSentence], beam_size: int, protection: Protection) -> int:
    queries = [model.query(each.text, beam_size, protection=protection) for each in sentences]
    outputs = iter(model.decoder.search([part for query in queries for part in query.parts()]))
    count = 0
    for query in queries:
        assert isinstance(query, TranslationQuery)
        for sentence in query.sentences:
            hypotheses = next(outputs)
            if sentence.stand_ins is not None:
                texts = [model.target_spans(each)[0] for each in hypotheses]
                count += len(sentence.stand_ins.edits) - min(map(sentence.stand_ins.misses, texts))
    return count


def _stand_in(model: Translator, pairs: Sequence[Sequence[str]], word: str) -> tuple[float, float]:
    """Return the fraction of sentences in which a word is copied in the place of a name, and their BLEU."""
    named = [pair for pair in pairs if all(len(_NAME.findall(text)) == 1 for text in pair[:2])][:_NAMED]
    sources = [_NAME.sub(word, source) for source, *_ in named]
    found = model.translate(sources, protection=NONE)
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    texts = [each.translations[0].text for each in found]
    copied = sum(len(pattern.findall(text)) == 1 for text in texts) / len(named)
    references = [_NAME.sub("ITEM", pair[1]) for pair in named]
    return copied, sacrebleu.corpus_bleu([pattern.sub("ITEM", text) for text in texts], [references]).score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, nargs="?", default=ModelStore(BUNDLED).path("de-en"))
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--stand-ins", nargs="+", default=[])
    parser.add_argument("--show", type=int, default=0, help="translations to print")
    arguments = parser.parse_args()
    model = load_bundle(arguments.bundle)
    assert isinstance(model, Translator)
    sentences = protected_sentences(arguments.sentences)
    for sentence in sentences[: arguments.show]:
        (found,) = model.translate([sentence.text], protection=ALL)
        print(f"{sentence.text} -> {found.translations[0].text}")
    for name, protection in (("protected", ALL), ("as it is", NONE)):
        for beam_size in (5, 1):
            found_parts = kept_parts(model, sentences, beam_size, protection)
            kinds = ", ".join(f"{kind} {found_parts.kept[kind]}/{count}" for kind, count in found_parts.parts.items())
            print(
                f"{name}, beam size {beam_size}: {100 * found_parts.fraction:.2f} % of"
                f" {sum(found_parts.parts.values())} parts ({kinds}); {found_parts.copied} stand-ins copied;"
                f" {found_parts.ordered} of {found_parts.several} sentences with several parts have them in order"
            )
    if arguments.pairs is not None:
        pairs = [line.split("\t") for line in arguments.pairs.read_text(encoding="utf-8").splitlines()]
        for name, protection in (("default kinds", Protection()), ("all kinds", ALL), ("no protection", NONE)):
            started = time.perf_counter()
            texts = [
                each.translations[0].text
                for each in model.translate([pair[0] for pair in pairs], protection=protection)
            ]
            seconds = time.perf_counter() - started
            bleu = sacrebleu.corpus_bleu(texts, [[pair[1] for pair in pairs]]).score
            print(f"{name}: BLEU {bleu:.2f} of {len(pairs)} pairs, {seconds:.1f} s")
        for word in arguments.stand_ins:
            copied, bleu = _stand_in(model, pairs, word)
            print(f"{word}: copied in {100 * copied:.1f} %, BLEU {bleu:.2f}")


if __name__ == "__main__":
    main()
