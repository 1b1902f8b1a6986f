"""Tests of sentences in capitals."""

import pytest

from models.text.capitals import in_capitals, is_in_capitals, sentence_case
from models.text.stand_ins import Edit, StandIns


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("DIE TÜR IST GESCHLOSSEN.", True),
        ("ACHTUNG: HEIẞE OBERFLÄCHE!", True),
        ("ВХОД ЗАПРЕЩЁН", True),
        ("Die Tür ist geschlossen.", False),
        ("DIE TÜR IST zu.", False),
        ("GESCHLOSSEN", False),  # one word may be a name
        ("NATO EU UNO WTO", False),  # abbreviations
        ("AB 12", False),
        ("門は閉まっている", False),
        ("", False),
    ],
)
def test_capitals_by_hand(text: str, found: bool) -> None:
    assert is_in_capitals(text) == found


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("DIE TÜR IST GESCHLOSSEN.", "Die tür ist geschlossen."),
        ("„ACHTUNG“, STUFE!", "„Achtung“, stufe!"),
        ("İSTANBUL GÜZEL", "İstanbul güzel"),
    ],
)
def test_the_length_stays(text: str, read: str) -> None:
    assert sentence_case(text) == read
    assert len(read) == len(text)
    assert in_capitals("straße") == "STRAßE"  # a letter whose capital is two letters stays


def test_protected_parts_keep_their_case() -> None:
    """The number in place of the part is found in the translation, which is written in capitals around the part."""
    found = StandIns.of("ÖFFNEN SIE \ue000 VORSICHTIG!", {"\ue000": "config.yaml"}, capitals=True)
    assert found.text == "Öffnen sie 1284 vorsichtig!"
    edits = found.target_edits("Open 1284 carefully!", lambda span: [])
    assert edits == (Edit((5, 9), "config.yaml"),)
    assert found.restored("Open 1284 carefully!", edits) == "OPEN config.yaml CAREFULLY!"
    assert StandIns.of("Öffnen Sie \ue000!", {"\ue000": "a.txt"}).restored("Open 1284!", ()) == "Open 1284!"
