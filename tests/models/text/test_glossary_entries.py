"""Entries of glossaries as rows of text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import QueryError
from models.text.glossary_entries import check_term, read_entries, written_entries

ENTRIES = {"Vertrag": "agreement", "Haus, neu": 'residence "new"'}


def test_rows_are_read():
    assert read_entries('Vertrag\tagreement\r\n\n "Haus"\ta, b\n', "tsv") == {"Vertrag": "agreement", '"Haus"': "a, b"}
    assert read_entries('\ufeffVertrag,agreement\n"Haus, neu","residence ""new"""\n', "csv") == ENTRIES
    assert read_entries("Vertrag,agreement,de,en\n", "csv") == {"Vertrag": "agreement"}
    assert read_entries("", "tsv") == {}


@pytest.mark.parametrize(
    ("text", "form", "words"),
    [
        ("a\tb\nc\n", "tsv", "line 2: .* not 1 columns"),
        ("a\tb\tc\td\n", "tsv", "not 4 columns"),
        ("a,b,c\n", "csv", "not 3 columns"),
        ("a\t\n", "tsv", "expected"),
        ("a\tb\na\tc\n", "tsv", "line 2: the term 'a' is there twice"),
        ('"a', "csv", "cannot be read"),
    ],
)
def test_other_rows_are_refused(text, form, words):
    with pytest.raises(QueryError, match=words):
        read_entries(text, form)


def usable(term):
    try:
        check_term(term)
    except QueryError:
        return False
    return term == term.strip()


@given(
    st.dictionaries(st.text(min_size=1).filter(usable), st.text(min_size=1).filter(usable)),
    st.sampled_from(["tsv", "csv"]),
)
def test_written_entries_are_read_again(entries, form):
    written = written_entries(entries, form)
    if not written.startswith("\ufeff"):
        assert read_entries(written, form) == entries
