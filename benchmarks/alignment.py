"""Alignment error rate of a German-English translation model on sentences whose links are known by construction.

    .venv/bin/python -m benchmarks.alignment models/bundled/de-en/5

The model reads each translation as it is given (forced decoding). AER is that of Och and Ney (2003, section 5.1), 0
being best: `1 - (|A and S| + |A and P|) / (|A| + |S|)` with the links A of the model, the sure ones S and the possible
ones P.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.aligned_sentences import AlignedSentence, aligned_sentences
from models.decoding.beam_search import Hypothesis, SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.store import load_bundle
from models.tasks.translation import Translator

__all__ = ["ErrorRate", "error_rate"]

Links = set[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorRate:
    """How well links agree with known ones."""

    error_rate: float
    """AER in [0, 1]."""
    precision: float
    """Fraction of the model's links that are possible."""
    recall: float
    """Fraction of the sure links that the model has."""


def error_rate(model: Translator, sentences: Sequence[AlignedSentence]) -> ErrorRate:
    """Return the alignment error rate of a model that has `alignment`."""
    found = [_links(model, sentence) for sentence in sentences]
    right = _total(links & sentence.sure for links, sentence in zip(found, sentences, strict=True))
    possible = _total(links & sentence.possible for links, sentence in zip(found, sentences, strict=True))
    links, sure = _total(found), _total(sentence.sure for sentence in sentences)
    return ErrorRate(
        error_rate=1 - (right + possible) / (links + sure), precision=possible / links, recall=right / sure
    )


def _total(sets: Iterable[Iterable[tuple[int, int]]]) -> int:
    return sum(len(list(each)) for each in sets)


def _links(model: Translator, sentence: AlignedSentence) -> Links:
    """Return the links of words of a sentence and its given translation."""
    (part,) = model.query(sentence.source, 1).parts()
    target = tuple(model.target_ids(sentence.target))
    options = SearchOptions(prefix=target, attention=True)
    ((found,),) = model.decoder.search([SourceSequence(part.tokens, 1, options, len(target) + 1)])
    hypothesis = Hypothesis(target, found.log_probability, found.score, found.attention)
    text, _ = model.target_spans(hypothesis)
    assert text == sentence.target, f"{text!r} is not {sentence.target!r}"
    links: Links = set()
    for ours, theirs in model.sentence_links(sentence.source, len(part.tokens), text, hypothesis):
        links |= {
            (one, other)
            for one, span in enumerate(sentence.source_words)
            for other, aim in enumerate(sentence.target_words)
            if _overlap(span, ours) and _overlap(aim, theirs)
        }
    return links


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--sentences", type=int, default=200)
    arguments = parser.parse_args()
    model = load_bundle(arguments.bundle)
    assert isinstance(model, Translator)
    found = error_rate(model, aligned_sentences(arguments.sentences))
    print(f"AER {found.error_rate:.3f}, precision {found.precision:.3f}, recall {found.recall:.3f}")


if __name__ == "__main__":
    main()
