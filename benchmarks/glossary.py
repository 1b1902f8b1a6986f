"""How well and how fast translations use the terms of a glossary.

    .venv/bin/python -m benchmarks.glossary --pairs valid.de-en.tsv [--bundle models/bundled/de-en/5] [--rounds 5]

The pairs are lines of a source and its reference. Of those with one or two terms of `benchmarks.glossary_terms`, the
usual word of the reference is replaced by the one that the glossary asks for. Printed are the fraction of terms that
translations have, BLEU to these references of the translations with the glossary and without it, and the median seconds
and seconds of processor time of both, which take turns. With `--threads 1` processor time has no waiting of threads.
`--matches` prints the inflected words that the terms find and what the glossary would have them be, for the count of
false matches.
"""

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import sacrebleu

from benchmarks.glossary_terms import TERMS, GlossarySentence, glossary_sentences
from models.decoding.sequence_to_sequence import SourceSequence
from models.store import ModelStore, load_bundle
from models.tasks.translation import Translator
from models.text.glossary import Entry, Glossary, place_of
from service.settings import BUNDLED

__all__ = ["inflected_matches", "translated"]


def translated(
    model: Translator, sentences: Sequence[GlossarySentence], beam_size: int, *, constrained: bool, parallel: int = 1
) -> tuple[list[str], tuple[float, float]]:
    """Return the translations, decoded together, or in `parallel` decodings; each has a glossary of its own.

    With them come the seconds that they took, and those of processor time.
    """
    started, processor = time.perf_counter(), time.process_time()
    queries = [
        model.query(each.source, beam_size, glossary=Glossary.of(each.glossary) if constrained else None)
        for each in sentences
    ]
    parts: list[SourceSequence] = [part for query in queries for part in query.parts()]
    found = iter(model.decoder.search(parts, parallel=parallel))
    results = [model.result(query, [next(found) for _ in query.parts()]) for query in queries]
    taken = time.perf_counter() - started, time.process_time() - processor
    return [each.translations[0].text for each in results], taken


def used(sentences: Sequence[GlossarySentence], texts: Sequence[str]) -> tuple[int, int]:
    """Return how many terms translations have, and how many they should have."""
    wanted = [(target, text) for each, text in zip(sentences, texts, strict=True) for target in each.glossary.values()]
    return sum(place_of(target, text, inflected=False) is not None for target, text in wanted), len(wanted)


def inflected_matches(pairs: Sequence[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Return how often each term finds a word of the sources that is not the term itself."""
    glossary = Glossary(Entry(each.source, each.other) for each in {each.source: each for each in TERMS}.values())
    found: Counter[tuple[str, str]] = Counter()
    for source, _ in pairs:
        for term in glossary.terms(source, "de"):
            word = source[slice(*term.span)]
            if word.casefold() != term.entry.source.casefold():
                found[term.entry.source, word] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=ModelStore(BUNDLED).path("de-en"))
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--threads", type=int, help="threads of all decodings together")
    parser.add_argument("--parallel", type=int, default=1, help="decodings at once, as `softserve translate` has them")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which both take turns; the first warms up")
    parser.add_argument("--show", type=int, default=0, help="translations to print")
    parser.add_argument("--matches", action="store_true", help="print inflected words that terms find, and stop")
    arguments = parser.parse_args()
    lines = (line.split("\t") for line in arguments.pairs.read_text(encoding="utf-8").splitlines())
    pairs = [(line[0], line[1]) for line in lines]
    if arguments.matches:
        for (term, word), count in inflected_matches(pairs).most_common():
            print(f"{term}\t{word}\t{count}")
        return
    model = load_bundle(arguments.bundle, threads=arguments.threads, parallel=arguments.parallel)
    assert isinstance(model, Translator)
    sentences = glossary_sentences(pairs, arguments.sentences)
    work = partial(translated, model, sentences, arguments.beam_size, parallel=arguments.parallel)
    sides: dict[str, Callable[[], tuple[list[str], tuple[float, float]]]] = {
        "free": partial(work, constrained=False),
        "glossary": partial(work, constrained=True),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    texts: dict[str, list[str]] = {}
    for number in range(max(1, arguments.rounds)):
        for name, side in sides.items():
            texts[name], taken = side()
            if number or arguments.rounds == 1:
                seconds[name].append(taken)
    for each, free, text in list(zip(sentences, texts["free"], texts["glossary"], strict=True))[: arguments.show]:
        print(f"{each.source} | {each.reference} | {free} | {text}")
    references = [[each.reference for each in sentences]]
    for name, found in texts.items():
        count, wanted = used(sentences, found)
        bleu = sacrebleu.corpus_bleu(found, references).score
        wall, processor = map(statistics.median, zip(*seconds[name], strict=True))
        print(
            f"{name}: {100 * count / wanted:.1f} % of {wanted} terms in {len(sentences)} sentences, BLEU {bleu:.2f},"
            f" {wall:.2f} s, {processor:.2f} s of processor time"
        )
    wall, processor = (
        statistics.median(one[kind] / other[kind] for other, one in zip(*seconds.values(), strict=True))
        for kind in range(2)
    )
    print(
        f"time: {wall:.2f} of the free translation's, processor time {processor:.2f}, beam size {arguments.beam_size}"
    )


if __name__ == "__main__":
    main()
