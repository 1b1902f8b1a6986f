"""Tests of literals, which a translation keeps."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.literals import Literals, without_literals


@pytest.mark.parametrize(
    ("text", "verbatim", "codes", "numbers"),
    [
        ("Wo ist der Bahnhof?", (), (), ()),
        ("Sie haben %d neue Nachrichten.", ("%d",), (), ()),
        ("Hallo {name}, {{x}}, ${y}, %(n)s, %1$s!", ("{name}", "{{x}}", "${y}", "%(n)s", "%1$s"), (), ()),
        ("<b>fett</b>&nbsp;<br/>", ("<b>", "</b>", "&nbsp;", "<br/>"), (), ()),
        ("wenn a <b und c> d", (), (), ()),
        ("50 % der Leute, 5 %ige Lösung", (), (), ("50", "5")),
        ("Siehe https://x.de/a?b=c, www.bahn.de.", ("https://x.de/a?b=c", "www.bahn.de"), (), ()),
        ("Mail an max.mustermann@example.de.", ("max.mustermann@example.de",), (), ()),
        ("bahn.de und rechnung.pdf, aber nicht z.B. das.Wie", ("bahn.de", "rechnung.pdf"), (), ()),
        ("@anna #Montag", ("@anna", "#Montag"), (), ()),
        (r"C:\Windows\x.dll, /usr/bin/env und/oder --help", (r"C:\Windows\x.dll", "/usr/bin/env", "--help"), (), ()),
        ("user_id ist leer", ("user_id",), (), ()),
        ("Artikel AB-1234-X und 4711A", (), ("AB-1234-X", "4711A"), ("1234", "4711")),
        ("IBAN DE89 3704 0044 0532 0130 00.", ("DE89 3704 0044 0532 0130 00",), (), ()),
        ("Gleis 7 um 19 Uhr, Raum B12", (), ("B12",), ("7", "19", "12")),
        ("90er-Jahre, 14h30, 2-Zimmer-Wohnung", (), (), ("90", "14", "30", "2")),
        ("A4-Papier, mp3", (), ("A4", "mp3"), ("4", "3")),
        ("1.000,50 um 14:35 am 3.5.2024, 1/2", (), (), ("1.000,50", "14:35", "3.5.2024", "1", "2")),
        ("٣ und ３", (), (), ("3", "3")),
    ],
)
def test_literals_by_hand(
    text: str, verbatim: tuple[str, ...], codes: tuple[str, ...], numbers: tuple[str, ...]
) -> None:
    found = Literals.of(text)
    assert (found.verbatim, found.codes, found.numbers) == (verbatim, codes, numbers)


@pytest.mark.parametrize(
    ("text", "signs"), [("50 £ und 3 €", "£€"), ("20 °C, 5 %, x²", "°%²"), ("geht´s it's — „so“", ""), ("a = b", "=")]
)
def test_signs_by_hand(text: str, signs: str) -> None:
    assert "".join(Literals.of(text).signs) == signs


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("Guten Morgen", "Good morning"),
        ("1.000,50 Euro", "1,000.50 euros"),
        ("1.000,50 Euro", "1.000,50 euros"),
        ("1.000 Leute", "1000 people"),
        ("um 6.30 Uhr", "at 6:30"),
        ("3 €", "€3"),
        ("am 3. Mai", "on May 3rd"),
        ("die 90er", "the 90s"),
        ("A4-Papier", "A4 paper"),
        ("10km", "10 km"),
        ("%s von %d", "%d of %s"),
    ],
)
def test_these_keep_all(source: str, translation: str) -> None:
    assert Literals.of(source).differences(translation) == 0


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("1.000,50 Euro", "1.000.50 euros"),
        ("1.5", "15"),
        ("50 £", "50 degrees"),
        ("%d neue", "3% new"),
        ("www.bahn.de", "www.burg.de"),
        ("max@example.de", "mux@example.de"),
        ("4711A", "4711B"),
        ("zwei", "2"),
        ("2", "two"),
        ("#Montag", "#Monday"),
        ("<b>a</b>", "a"),
        ("{name}", "{Name}"),
        ("DE89 3704", "DE89 3740"),
        ("-5 °", "-5"),
        ("2 und 2", "2"),
        ("user_id", "user id"),
    ],
)
def test_these_do_not(source: str, translation: str) -> None:
    assert Literals.of(source).differences(translation) > 0


@given(st.text("a1.,-%{}<>/@#_ B€\u0663\n", max_size=40))
def test_a_copy_has_no_differences(text: str) -> None:
    assert Literals.of(text).differences(text) == 0
    assert len(without_literals(text)) <= len(text)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("www.bahn.de", " "),
        ("Mail an a@b.de!", "Mail an  !"),
        ("14:35 Uhr", "14:35 Uhr"),
        ("<b>fett</b>", " fett "),
    ],
)
def test_texts_without_literals(text: str, rest: str) -> None:
    assert without_literals(text) == rest


PATTERNS = [
    "a@",
    "<a",
    "<a ",
    "{a",
    "%a",
    "a-",
    "/a",
    "1.",
    "@a",
    "--a",
    "a.b-",
    "\\",
    "C:\\",
    "#",
    "www.",
    "a.com/",
    "&a",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_long_texts_take_linear_time(pattern: str) -> None:
    started = time.process_time()
    text = pattern * (100_000 // len(pattern))
    Literals.of(text)
    without_literals(text)
    assert time.process_time() - started < 3.0
