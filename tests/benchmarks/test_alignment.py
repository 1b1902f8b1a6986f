"""Sentences with known links, and the alignment error of the bundled model on them."""

from benchmarks.aligned_sentences import aligned_sentences
from benchmarks.alignment import error_rate
from models import ModelStore
from service.settings import BUNDLED


def test_links_are_those_of_the_templates() -> None:
    found = aligned_sentences(20)[13]
    assert (found.source, found.target) == (
        "Gestern hat Peter 320 Katzen gefunden.",
        "Peter found 320 cats yesterday.",
    )
    assert found.sure == {(0, 4), (2, 0), (3, 2), (4, 3), (5, 1), (6, 5)}
    assert found.possible - found.sure == {(1, 1)}


def test_the_bundled_model_aligns_words() -> None:
    found = error_rate(ModelStore(BUNDLED).load("de-en", threads=1), aligned_sentences(200))
    assert found.error_rate <= 0.2
    assert found.recall >= 0.85
