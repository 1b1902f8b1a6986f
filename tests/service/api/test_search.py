"""What requests to models that write have in common."""

import pytest

from models import QueryError
from models.beam_search import SearchOptions
from service.api.search import SearchBody


def test_what_a_body_says_is_what_is_searched():
    body = SearchBody(text="a", beam_size=4, n_best=2, length_penalty=0.5, temperature=2.0, seed=7, sparse=True)
    expected = SearchOptions(n_best=2, length_penalty=0.5, temperature=2.0, seed=7, sparse=True)
    assert body.options() == expected
    assert SearchBody(text=["a"]).options() == SearchOptions()


def test_more_outputs_than_the_beam_has_are_an_error():
    with pytest.raises(QueryError, match="n_best must be at most beam_size, which is 1, not 2"):
        SearchBody(text="a", beam_size=1, n_best=2).options()
