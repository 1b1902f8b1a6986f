"""Stand-ins of protected parts, and where parts are put into translations."""

import pytest

from models.text.stand_ins import Edit, StandIns, edited, moved_by
from models.text.words import words_of

MARKED = "Wir haben A und B im Haus."
PARTS = {"A": "{a}", "B": "b.txt"}


def restored(translation, links=None, stand_ins=None):
    stand_ins = stand_ins or StandIns.of(MARKED, PARTS)

    def linked(span):
        word = stand_ins.text[slice(*span)]
        wanted = (links or {}).get(word)
        return [(each, 0.9 if translation[slice(*each)] == wanted else 0.0) for each in words_of(translation)]

    return edited(translation, stand_ins.target_edits(translation, linked))


def test_parts_are_read_as_numbers() -> None:
    found = StandIns.of(MARKED, PARTS)
    assert found.text == "Wir haben 1284 und 5397 im Haus."
    assert edited(found.text, found.edits) == "Wir haben {a} und b.txt im Haus."


def test_a_number_of_the_sentence_is_no_stand_in() -> None:
    assert StandIns.of("1284 und A", PARTS).text == "1284 und 5397"


@pytest.mark.parametrize(
    ("translation", "links", "expected"),
    [
        ("We have 1284 and 5397 in the house.", {}, "We have {a} and b.txt in the house."),
        ("We have 5397 and 1,284 in the house.", {}, "We have b.txt and {a} in the house."),
        ("We have 1284 and 539 in the house.", {"5397": "539"}, "We have {a} and b.txt in the house."),
        ("We have 1284 in the house.", {"und": "1284"}, "We have {a} b.txt in the house."),
        ("We have 1284 and 5397 and 1284.", {"1284": "1284"}, "We have {a} and b.txt and."),
        ("We have.", {}, "We have {a} b.txt."),
        ("", {}, "{a} b.txt"),
    ],
)
def test_each_part_is_there_once(translation, links, expected) -> None:
    found = restored(translation, links)
    assert [found.count(part) for part in PARTS.values()] == [1, 1]
    assert found.split() == expected.split()


def test_a_part_that_was_lost_at_the_start_goes_there() -> None:
    assert restored("invited you.", stand_ins=StandIns.of("A hat dich eingeladen.", PARTS)) == "{a} invited you."


def test_spans_move_with_edits() -> None:
    edits = (Edit((3, 7), "{a}"), Edit((9, 9), " x"))
    assert edited("we 1284 b.", edits) == "we {a} b x."
    assert [moved_by(edits, span) for span in ((0, 2), (3, 7), (8, 9), (9, 10))] == [(0, 2), (3, 6), (7, 8), (10, 11)]
