"""Tests of sequence-to-sequence queries and search."""

import pytest

from models import QueryError
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import MAX_BEAM_SIZE, SourceSequence, checked_options
from models.store import load_bundle


def test_a_source_is_as_long_as_what_the_encoder_reads():
    assert SourceSequence((5, 6), 1, SearchOptions(), 7).length == 3


def test_the_usual_options_stand_where_none_are_given():
    assert checked_options(5, None) == SearchOptions()
    options = SearchOptions(n_best=3)
    assert checked_options(3, options) is options


@pytest.mark.parametrize("beam_size", [0, -1, MAX_BEAM_SIZE + 1])
def test_a_beam_out_of_range_is_an_error(beam_size):
    with pytest.raises(QueryError, match=f"beam_size must be between 1 and {MAX_BEAM_SIZE}, not {beam_size}"):
        checked_options(beam_size, None)


def test_more_outputs_than_the_beam_has_are_an_error():
    with pytest.raises(QueryError, match="n_best must be at most beam_size, which is 2, not 3"):
        checked_options(2, SearchOptions(n_best=3))


def test_sources_are_decoded_in_any_batches(notes_export):
    model = load_bundle(notes_export.path, threads=1, parallel=3)
    queries = [model.query(text, 2) for text in ["red fox", "so we saw old gnu then", "big bat there"] * 5]
    ours, theirs, side_by_side = (
        model.decoder.search(queries, *size, **parallel)
        for size, parallel in [((2,), {}), ((40,), {}), ((2,), {"parallel": 3})]
    )
    assert [found[0].tokens for found in ours] == [found[0].tokens for found in theirs]
    assert [found[0].tokens for found in ours] == [found[0].tokens for found in side_by_side]
    assert model.decoder.search([]) == []


@pytest.mark.parametrize("size", [0, -1])
def test_sources_must_be_decoded_some_at_once(notes_export, size):
    with pytest.raises(ValueError, match=f"at least 1 source must be decoded at once, not {size}"):
        load_bundle(notes_export.path, threads=1).generate(["a"], batch_size=size)
