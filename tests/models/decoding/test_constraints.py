"""Lexically constrained search over made-up distributions."""

import math

import numpy as np
import pytest

from models.decoding.beam_search import SearchOptions
from models.decoding.constraints import MAX_PHRASES, Constraints, Phrase, Progress, Step, Variant, WordTokens
from tests.models.decoding.test_beam_search import Bench
from tests.models.reference_search import made_up

SIZE = 24
PLAIN = WordTokens(continues=bytes(SIZE), opens=bytes(SIZE), blank=bytes(SIZE))


def phrase(*tokens, **options):
    return Phrase((Variant(tokens),), **options)


def contains(tokens, part):
    return any(tuple(tokens[place : place + len(part)]) == part for place in range(len(tokens)))


@pytest.mark.parametrize("beam_size", [4, 5])
@pytest.mark.parametrize("seed", range(10))
def test_outputs_have_all_phrases(beam_size, seed) -> None:
    bench, constraints = Bench(beam_size, SIZE), Constraints((phrase(5, 6), phrase(7)), PLAIN)
    bench.add("one", made_up(seed, SIZE), 30, constraints=constraints)
    bench.run()
    tokens = bench.results["one"][0][0]
    assert contains(tokens, (5, 6))
    assert contains(tokens, (7,))


def test_other_sentences_do_not_change() -> None:
    alone, together = Bench(4, SIZE), Bench(4, SIZE)
    for bench in (alone, together):
        bench.add("free", made_up(3, SIZE), 12)
    together.add("constrained", made_up(4, SIZE), 12, constraints=Constraints((phrase(9),), PLAIN))
    alone.run()
    together.run()
    assert together.results["free"] == alone.results["free"]
    assert together.tokens["free"] == alone.tokens["free"]


def test_an_output_without_the_phrase_is_better_than_none() -> None:
    bench = Bench(4, SIZE)
    bench.add("one", made_up(1, SIZE), 2, constraints=Constraints((phrase(5, 6, 7, 8),), PLAIN))
    bench.run()
    assert bench.results["one"]


def test_a_word_that_goes_on_is_another_word() -> None:
    words = WordTokens(continues=bytes(token == 6 for token in range(SIZE)), opens=bytes(SIZE), blank=bytes(SIZE))
    for inflected, met in ((False, 0), (True, 1)):
        constraints = Constraints((phrase(5, inflected=inflected),), words)
        done = constraints.after(Progress(), 5)
        assert done.met == 1
        assert constraints.after(done, 6).met == met
        assert constraints.after(done, 7).met == 1


def test_a_phrase_that_breaks_off_can_begin_again() -> None:
    constraints = Constraints((phrase(5, 6),), PLAIN)
    progress = Progress()
    for token, bank, met in ((5, 1, 0), (7, 0, 0), (5, 1, 0), (5, 1, 0), (6, 1, 1)):
        progress = constraints.after(progress, token)
        assert (progress.bank, progress.met) == (bank, met)


def test_variants_for_the_beginning_and_after_brackets() -> None:
    opens = bytes(token == 3 for token in range(SIZE))
    words = WordTokens(continues=bytes(SIZE), opens=opens, blank=opens)
    variants = (Variant((5,), first=False), Variant((6,), first=True), Variant((7,), attached=True, first=True))
    constraints = Constraints((Phrase(variants),), words)
    start = Progress()
    assert set(constraints.required(start)) == {6}
    assert set(constraints.required(constraints.after(start, 3))) == {6, 7}
    assert set(constraints.required(constraints.after(start, 4))) == {5}


def test_a_step_by_hand() -> None:
    """Two hypotheses, of which the second has the phrase, with two candidates each; 0 is the end."""
    step = Step(
        hypotheses=[(-1.0, Progress(), True), (-2.0, Progress(met=1), True)],
        log_probabilities=[[-0.5, -1.2], [-0.25, -1.0]],
        candidates=[[7, 0], [8, 0]],
        listed=[math.exp(-0.5) + math.exp(-1.2), math.exp(-0.25) + math.exp(-1.0)],
        values=[-1.5, -2.2, -2.25, -3.0],
        best=[0, 1, 2, 3],
        attention=np.array([[0.25, 0.5, 0.25], [1.0, 0.0, 0.0]], np.float32),
    )
    constraints = Constraints((phrase(5, source=(0, 2)),), PLAIN)
    choice = constraints.choose(step, 2, 0)
    assert [each[:3] for each in choice.kept] == [(-1.5, 0, 7), (-2.25, 1, 8)]
    assert [each.progress.met for each in choice.kept] == [0, 1]
    assert all(each.progress.begun for each in choice.kept)
    assert [each[:3] for each in choice.complete] == [(-3.0, 1, 0)]
    assert [each[:3] for each in choice.incomplete] == [(-2.2, 0, 0)]
    # The phrase is not among the candidates. At an attention of 0.5 it gets half of what the best one has more.
    own = math.log((1 - math.exp(-0.5) - math.exp(-1.2)) / (SIZE - 2))
    third = constraints.choose(step, 3, 0).kept[2]
    assert third[1:] == (0, 5, Progress(met=1, pending=1, begun=True))
    assert third.score == pytest.approx(-1.0 + own + 0.5 * (-0.5 - own))


def test_wrong_constraints_are_refused() -> None:
    for count in (0, MAX_PHRASES + 1):
        with pytest.raises(ValueError, match="phrases"):
            Constraints((phrase(5),) * count, PLAIN)
    with pytest.raises(ValueError, match="at least one token"):
        phrase()
    with pytest.raises(ValueError, match="constraints cannot be combined"):
        SearchOptions(constraints=Constraints((phrase(5),), PLAIN), temperature=math.e)
