"""Which parts of texts are protected, and that expressions of requests are bounded."""

import contextlib
import time

import pytest

from models import QueryError
from models.text.protection import DEFAULT_KINDS, KINDS, Protection, translated_part

PLAIN = [
    "Das ist ein Satz ohne alles.",
    "Um 14:30 Uhr, am 3.5.2024, kostet es 1000 €; 50 % sind weg.",
    "z.B. und/oder, d.h. 90er-Jahre, 3-mal & 2. Platz",
    "Er sagte: „Ja!“ (Nein?) – Gut … U-Bahn, E-Mail, A4, B2B-Kunde",
    "2024-03-12T14:40:00Z {\\an8}Hallo<br/>Welt",
    "5% davon, 100 % sicher; AG & Co. KG; das Dr.-Examen; 1/2 Liter",
]


ICU = "{n, plural, =0 {ist {x}} other {sind # {d, date, {y}}}}"


def found(text, protection=None):
    protected = (protection or Protection()).of(text)
    return [] if protected is None else [(protected.kinds[mark], part) for mark, part in protected.parts.items()]


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("Siehe https://a.de/b?c=1&d=2#e.", "url", "https://a.de/b?c=1&d=2#e"),
        ("Auf www.a-b.de/c, heute", "url", "www.a-b.de/c"),
        ("An a.b+c@d-e.co.uk!", "email", "a.b+c@d-e.co.uk"),
        ("Frag @anna_b.", "handle", "@anna_b"),
        ("Zum #Welttag2024!", "hashtag", "#Welttag2024"),
        ("Auf DE89 3704 0044 0532 0130 00.", "iban", "DE89 3704 0044 0532 0130 00"),
        ("Es sind %d Dateien", "placeholder", "%d"),
        ("Von %1$s an", "placeholder", "%1$s"),
        ("Für %(name)s.", "placeholder", "%(name)s"),
        ("Hallo {name}!", "placeholder", "{name}"),
        ("Hallo {{ name }}!", "placeholder", "{{ name }}"),
        ("Es {n, plural, =0 {ist {x}} other {sind # {d, date, {y}}}} da", "placeholder", ICU),
        ("Hallo ${user.name}!", "placeholder", "${user.name}"),
        ("Hier <x/> klicken", "placeholder", "<x/>"),
        ("Hier <ph id/> klicken", None, None),
        ("In %APPDATA% steht", "placeholder", "%APPDATA%"),
        ("Die Datei a-b_c.tar.gz ist", "filename", "a-b_c.tar.gz"),
        ("Unter /etc/ssh/sshd_config.", "filename", "/etc/ssh/sshd_config"),
        ("Unter C:\\Users\\a liegt", "filename", "C:\\Users\\a"),
        ("Seit v2.3.1-rc1 geht", "version", "v2.3.1-rc1"),
        ("Seit 2.3.1-beta2 geht", "version", "2.3.1-beta2"),
        ("Artikel AB-1234-X ist", "code", "AB-1234-X"),
        ("Das Feld user_id ist", "code", "user_id"),
        ("Es kostet 1.000,50 € mehr", "number", "1.000,50 €"),
        ("Es sind 2,5 kg Mehl", "number", "2,5 kg"),
        ("Es sind 2,5 % mehr", "number", "2,5"),
    ],
)
def test_kinds(text, kind, part) -> None:
    assert found(text) == ([] if kind is None else [(kind, part)])


@pytest.mark.parametrize("text", PLAIN)
def test_prose_has_none(text) -> None:
    assert found(text) == []


@pytest.mark.parametrize("part", ["https://a.de/" + "b" * 1990, "v1.2.3", "/a" * 20])
@pytest.mark.parametrize("place", [4096 - 2003, 4096 - 3, 4096 - 1, 4096, 4097, 3 * 4096 - 2])
def test_parts_of_long_texts_are_found_wherever_they_start(part, place) -> None:
    text = f"{'x ' * place}"[: place - 1] + f" {part} " + "x " * 9000
    assert [each for _, each in found(text)] == [part]


def test_numbers_with_units_are_protected_on_demand() -> None:
    text = "Es wiegt 3,5 kg und kostet 1.000 €."
    assert found(text, Protection(KINDS)) == [("measure", "3,5 kg"), ("measure", "1.000 €")]
    assert "measure" not in DEFAULT_KINDS


def test_expressions_go_before_kinds_that_overlap() -> None:
    text = "Acme Cloud auf acme.de/x.pdf, Acme Cloud in a.pdf"
    found_parts = found(text, Protection(patterns=("Acme Cloud", "acme\\.")))
    assert found_parts == [(None, "Acme Cloud"), (None, "acme."), (None, "Acme Cloud"), ("filename", "a.pdf")]


def test_marks_do_not_occur_in_the_text() -> None:
    text = "\U000f0000 und {a} und \U00100000 und \ue000"
    assert Protection().of(text) is None
    protected = Protection().of("\U000f0000 und {a}")
    assert protected is not None
    assert protected.restored(protected.text) == "\U000f0000 und {a}"


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (("a",) * 17, "protect must have at most 16"),
        (("a", "(b"), r"protect\.1: '\(b' is no regular expression"),
        (("",), r"protect\.0: an expression must have 1 to 200"),
        (("a" * 201,), r"protect\.0: an expression must have 1 to 200"),
    ],
)
def test_invalid_expressions_are_refused(patterns, message) -> None:
    with pytest.raises(QueryError, match=message):
        Protection(patterns=patterns)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", r"(\w*\w*)*$"])
def test_an_expression_that_takes_long_is_ended(pattern) -> None:
    began = time.monotonic()
    with pytest.raises(QueryError, match=r"protect\.0 takes longer than 50 ms"):
        Protection(patterns=(pattern,)).of("a" * 5000 + "!")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("pattern", ["(.*)*x", "(?=(a+))*b", "((a{0,99}){0,99}){0,99}!", "(?:a?){200}a{200}"])
def test_no_expression_takes_long(pattern) -> None:
    began = time.monotonic()
    with contextlib.suppress(QueryError):
        Protection(patterns=(pattern,)).of("a" * 5000 + "!b")
    assert time.monotonic() - began < 2


def test_an_expression_that_finds_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.text.protection._SECONDS", 60.0)
    with pytest.raises(QueryError, match=r"protect\.0 finds more than 500 parts"):
        Protection(patterns=("a",)).of("a" * 501)


def test_empty_matches_and_line_breaks_are_left_out() -> None:
    assert found("ab\ncd", Protection(patterns=("x*", "b\nc", "d"))) == [(None, "d")]


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("Schöner Tag! #sonne #berlin", "Schöner Tag!"),
        ("@anna Kommst du?", "Kommst du?"),
        ("Mehr: https://a.de.", "Mehr:"),
        ("{name} ist da", "{name} ist da"),
        ("Ich wohne in {city}.", "Ich wohne in {city}."),
        ("{a}: {b}", ""),
    ],
)
def test_parts_apart_from_a_sentence_are_not_translated(text, translated) -> None:
    protected = Protection().of(text)
    start, end = translated_part(protected.text, protected)
    assert protected.restored(protected.text[start:end]) == translated


def test_a_long_text_is_searched_without_the_interpreter_lock(monkeypatch):
    monkeypatch.setattr("models.text.protection._pattern", None)  # `re`, which holds the lock
    assert list(Protection().of("a " * 5000 + "see https://example.org/a").parts.values()) == ["https://example.org/a"]
