"""Tests of the translated and the copied pieces of a text."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.text.segments import Segmenter, printable

GERMAN = Segmenter("de")
BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n\n", "\t", "  "]


@pytest.mark.parametrize("line_break", BREAKS, ids=ascii)
def test_line_breaks_are_boundaries(line_break: str) -> None:
    found = GERMAN.segments(f"Guten Morgen{line_break}Gute Nacht")
    assert found.cores == ("Guten Morgen", "Gute Nacht")
    assert found.copied == ("", line_break, "")


@pytest.mark.parametrize(
    ("text", "copied", "cores"),
    [
        ("", [""], []),
        (" \n\t", [" \n\t"], []),
        ("Hallo. Wie geht's?", ["", " ", ""], ["Hallo.", "Wie geht's?"]),
        ("Ich  habe  Hunger", ["", "  ", ""], ["Ich  habe", "Hunger"]),
        ("er  hat", ["", ""], ["er  hat"]),
        ("  - Ja\r\n* Nein\n• Doch", ["  - ", "\r\n* ", "\n• ", ""], ["Ja", "Nein", "Doch"]),
        ("-Hallo\n-5 Grad", ["-", "\n", ""], ["Hallo", "-5 Grad"]),
        ("1. Milch\n2. Brot", ["1. ", "\n2. ", ""], ["Milch", "Brot"]),
        ("1. Mai ist frei.", ["", ""], ["1. Mai ist frei."]),
        ("a) Milch", ["a) ", ""], ["Milch"]),
        ("[x] Milch", ["[x] ", ""], ["Milch"]),
        ("> > Guten Tag,\n> Anna", ["> > ", "\n> ", ""], ["Guten Tag,", "Anna"]),
        ("# Titel", ["# ", ""], ["Titel"]),
        ("<b>Hier</b>, um zu sehen.", ["<b>", "</b>, ", ""], ["Hier", "um zu sehen."]),
        ("... und dann", ["... ", ""], ["und dann"]),
        ("1\n00:00:01,000 --> 00:00:04,000\nHallo", ["1\n00:00:01,000 --> 00:00:04,000\n", ""], ["Hallo"]),
        (
            "WEBVTT\n\n00:01.000 --> 00:04.000 align:start\nJa",
            ["WEBVTT\n\n00:01.000 --> 00:04.000 align:start\n", ""],
            ["Ja"],
        ),
        ("[14:32] Anna: Ja", ["[14:32] ", ""], ["Anna: Ja"]),
        ("12.03.24, 14:32 - Anna: Ja", ["12.03.24, 14:32 - ", ""], ["Anna: Ja"]),
        ("2024-03-12T14:32:05Z Fehler", ["2024-03-12T14:32:05Z ", ""], ["Fehler"]),
        ("14:35 Uhr", ["", ""], ["14:35 Uhr"]),
        ("Name\tPreis\nBrot\t3,50 €", ["", "\t", "\n", "\t3,50 €"], ["Name", "Preis", "Brot"]),
        ("<p>Guten <b>Tag</b></p>", ["<p>", " <b>", "</b></p>"], ["Guten", "Tag"]),
        (r"{\an8}Hallo", [r"{\an8}", ""], ["Hallo"]),
        ("Hallo {name}!", ["", " {name}!"], ["Hallo"]),
        ("%s sagt Hallo (siehe www.bahn.de).", ["%s ", " www.bahn.de)."], ["sagt Hallo (siehe"]),
        ("Von: Max <max@example.de>", ["", " <max@example.de>"], ["Von: Max"]),
        ("IBAN: DE89 3704 0044 0532 0130 00", ["", " DE89 3704 0044 0532 0130 00"], ["IBAN:"]),
        ("Sie haben %d neue Nachrichten in Raum B12.", ["", ""], ["Sie haben %d neue Nachrichten in Raum B12."]),
        ("Hallo 😀", ["", " 😀"], ["Hallo"]),
        ("\ufeffHallo\u200b", ["\ufeff", "\u200b"], ["Hallo"]),
        ("👨\u200d👩\u200d👧 Familie", ["👨\u200d👩\u200d👧 ", ""], ["Familie"]),
    ],
)
def test_segments_by_hand(text: str, copied: list[str], cores: list[str]) -> None:
    found = GERMAN.segments(text)
    assert (list(found.copied), list(found.cores)) == (copied, cores)
    assert found.joined(found.cores) == text


@pytest.mark.parametrize(
    "text",
    [
        *("***", "∞", ">", "123", "14:35", "😀", "x", "%d", "{name}", "www.bahn.de", "a@b.de", "@anna", "#Montag"),
        *("4711A", "<br>", "\u00ad", "\u200d", "Привет", "漢字", "3 €", "DE89 3704 0044"),
    ],
)
def test_what_has_nothing_to_translate_is_copied(text: str) -> None:
    found = GERMAN.segments(text)
    assert (found.copied, found.cores) == ((text,), ())


def test_letters_of_another_script_are_said() -> None:
    assert GERMAN.segments("Guten Tag\nПривет").foreign
    assert not GERMAN.segments("Guten Tag\n***\nx\na@b.de").foreign
    assert GERMAN.foreign_letters("der Winkel α") == {"α"}
    assert GERMAN.foreign_letters("der Winkel a, ﬁ") == set()


@pytest.mark.parametrize(
    ("text", "copied", "cores"),
    [
        ("Die Kin-\nder", ["", "\n"], ["Die Kinder"]),
        ("Die Kin-\n  der spielen.", ["", "\n  ", ""], ["Die Kinder", "spielen."]),
        ("Die Kin\u00ad\r\nder.", ["", "\r\n"], ["Die Kinder."]),
        ("Die Kin\u2010 \nder.", ["", "\n"], ["Die Kinder."]),
        ("Haupt-\nund Nebensaison", ["", "\n", ""], ["Haupt-", "und Nebensaison"]),
        ("Ich wollte-\nNein!", ["", "\n", ""], ["Ich wollte-", "Nein!"]),
    ],
)
def test_words_hyphenated_at_the_end_of_a_line_are_whole(text: str, copied: list[str], cores: list[str]) -> None:
    found = GERMAN.segments(text)
    assert (list(found.copied), list(found.cores)) == (copied, cores)


def test_lines_are_joined_on_demand() -> None:
    text = "Die Kin-\nder spielen\nauf der Straße. Ja.\n"
    found = GERMAN.segments(text, join_lines=True)
    assert found.copied == ("", " ", "\n")
    assert list(map(GERMAN.normalized, found.cores)) == ["Die Kinder spielen auf der Straße.", "Ja."]
    assert GERMAN.normalized("Haupt-\nund Nebensaison") == "Haupt- und Nebensaison"


@pytest.mark.parametrize(
    ("core", "read"),
    [
        ("Hal\u00adlo  Welt", "Hallo Welt"),
        ("Hal\u200blo\u2060\ufeff", "Hallo"),
        ("W\u200celt \u200eso\u200f", "Welt so"),
        ("👨\u200d👩 ja", "👨\u200d👩 ja"),
        ("ﬁnden Ｈａｌｌｏ 𝐉𝐚", "finden Hallo Ja"),
        ("um 6\u00a0Uhr\u202fso\u3000da", "um 6\u00a0Uhr so da"),
        ("½ Liter²", "½ Liter²"),
    ],
)
def test_cores_are_normalized(core: str, read: str) -> None:
    assert GERMAN.normalized(core) == read


def test_zero_width_characters_stay_where_they_are_part_of_words() -> None:
    assert Segmenter("fa").normalized("می\u200cخواهم") == "می\u200cخواهم"
    assert Segmenter("km").normalized("ក\u200bខ") == "ក\u200bខ"


def test_cores_that_have_no_tokens_are_copied() -> None:
    found = GERMAN.segments("Ja. Nein. Doch.").without({1})
    assert (found.copied, found.cores) == (("", " Nein. ", ""), ("Ja.", "Doch."))


@pytest.mark.parametrize(
    ("text", "source", "shown"),
    [("ab", "", "ab"), ("a\nb\u00a0c", "", "a b c"), ("a\u200bb\x00", "", "ab"), ("a\u200bb", "\u200b", "a\u200bb")],
)
def test_invisible_characters_do_not_appear(text: str, source: str, shown: str) -> None:
    assert printable(text, source) == shown


@given(
    text=st.text("aB1 .-–>*\t\n\r\u2028<b>/{}😀\u200d\u00adα€", max_size=60),
    language=st.sampled_from(["de", "zh", "xx"]),
)
@example(text="A.\u00a0\nb", language="de")
@example(text="a-\nb-\nc", language="de")
def test_no_line_is_lost(text: str, language: str) -> None:
    found = Segmenter(language).segments(text)
    assert len(found.copied) == len(found.cores) + 1
    assert all(core.strip() for core in found.cores)
    lost = found.joined(found.cores)
    assert lost.splitlines(keepends=True) == lost.splitlines(keepends=True)
    assert [letter for letter in lost if letter in "\n\r\u2028"] == [
        letter for letter in text if letter in "\n\r\u2028"
    ]
    if "-" not in text and "\u00ad" not in text:
        assert lost == text


@pytest.mark.parametrize(
    "text", ["\n", "a\n", "- ", "a  B", "<a>", "a <a", "1. ", "[1 ", "> ", " ", "😀", "a-\nb", "a\t"]
)
def test_long_texts_take_linear_time(text: str) -> None:
    started = time.process_time()
    GERMAN.segments(text * (200_000 // len(text)))
    assert time.process_time() - started < 6.0
