"""What requests to models that write have in common."""

import pytest
from pydantic import ValidationError

from models.decoding.beam_search import SearchOptions
from models.operations.search import SearchParams


def test_what_a_body_says_is_what_is_searched():
    body = SearchParams(beam_size=4, n_best=2, length_penalty=0.5, temperature=2.0, seed=7, sparse=True)
    expected = SearchOptions(n_best=2, length_penalty=0.5, temperature=2.0, seed=7, sparse=True)
    assert body.options() == expected
    assert SearchParams().options() == SearchOptions()


@pytest.mark.parametrize("wrong", [{"beam_size": 0}, {"n_best": 0}, {"length_penalty": 11.0}, {"seed": -1}], ids=str)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(ValidationError):
        SearchParams(**wrong)
