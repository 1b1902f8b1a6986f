"""Messages of ICU MessageFormat: texts of branches are translated, and the syntax stays."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.errors import QueryError
from models.text.markup import Aligned, Markup, filled, has_branches
from models.text.markup.document import ATOMS, Document
from models.text.markup.icu import MAX_CHARACTERS

pyicumessageformat = pytest.importorskip("pyicumessageformat")

A, B = chr(ATOMS[0]), chr(ATOMS[1])


def texts(message: str) -> list[str]:
    return [block.text for block in Markup("icu").document(message).blocks]


def translated(message: str, translations: list[str]) -> str:
    document, done = Markup("icu").document(message), []
    for block, text in zip(document.blocks, translations, strict=True):
        whole = ((0, len(block.text)), (0, len(text)))
        done.append(block.translated(Aligned(block.text, text, [whole], []), done))
    return document.joined(done)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Hallo {name}!", [f"Hallo {A}!"]),
        ("{n, plural, one {# Datei} other {# Dateien}}", [f"{A} Datei", f"{A} Dateien"]),
        ("Es sind {n, plural, one{# Datei} other{# Dateien}}.", [f"{A} Datei", f"{A} Dateien", f"Es sind {A}."]),
        ("{n, selectordinal, other {der #.}} {d, date, ::yMMM}", [f"der {A}."]),
        ("{g, select, a {{x} hat # '{'Eins'}'} other {''Zwei''}}", [f"{A} hat # {{Eins}}", "'Zwei'"]),
        ("{n, plural, other {'#' ist '{}#' # }}", [f"# ist {{}}# {A}"]),
        ("{n, plural, =1 {eins {g, select, other {zwei}}} other {}}", ["zwei", f"eins {A}"]),
        ("Zeile eins\n  Zeile zwei's", ["Zeile eins", "Zeile zwei's"]),
        ("{name} {n, number}", []),
        ("{n, plural, other {<b>#</b> Dateien<br/>in <a href='x'>{y}</a> <x-0/>}}", [f"{A} Dateien", f"in {A}"]),
        ("a < b <c", ["a < b <c"]),
    ],
)
def test_texts_of_messages(message: str, expected: list[str]) -> None:
    assert texts(message) == expected


def test_the_syntax_stays() -> None:
    message = "Du hast {n,plural, offset:1\n  one {# Datei}\n  other{ # Dateien }\n} von {name}."
    found = translated(message, [f"{A} file", f"{A} files", f"You have {A} from {B}."])
    assert found == "You have {n,plural, offset:1\n  one {# file}\n  other{ # files }\n} from {name}."
    assert translated(message, [f"{A} file", f"{A} files", f"{B} has sent {A}."]).startswith(
        "{name} has sent {n,plural"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it's", "it's"),
        ("a # b", "a '#' b"),
        ("#", "'#'"),
        ("{a}", "'{'a'}'"),
        ("{{'s}", "'{{'''s'}'"),
        (f"l'{A}", "l''#"),
        ("a'", "a''"),
        ("''", "''''"),
    ],
)
def test_characters_of_the_syntax_are_quoted(text: str, expected: str) -> None:
    source = "# Wort" if A in text else "Wort"
    message = translated(f"{{n, plural, other {{{source}}}}}", [text])
    assert message == "{n, plural, other {" + expected + "}}"
    assert texts(message) == [text]


def test_tags_follow_their_words() -> None:
    document = Markup("icu").document("{n, plural, other {<b>Rote</b> Hunde #}}")
    (block,) = document.blocks
    text = f"Dogs red {A}"
    found = Aligned(block.text, text, [((0, len(block.text)), (0, len(text)))], [((0, 4), (5, 8)), ((5, 10), (0, 4))])
    assert document.joined([block.translated(found, [])]) == "{n, plural, other {Dogs <b>red</b> #}}"


def test_outside_of_plurals_a_number_sign_is_a_character() -> None:
    assert translated("{g, select, other {Wort}}", ["a # b"]) == "{g, select, other {a # b}}"
    assert translated("Ein ''Wort''", ["it's"]) == "it''s"


@pytest.mark.parametrize(
    "message", ["{n, plural, one {a}", "a } b", "{n, plural}", "{" * 100, "a" * (MAX_CHARACTERS + 1)]
)
def test_other_texts_are_refused(message: str) -> None:
    with pytest.raises(QueryError, match="format icu: "):
        texts(message)
    assert not has_branches(message)


def test_messages_with_branches_are_found() -> None:
    assert has_branches("a {n, plural, other {b}}")
    assert has_branches("{ g ,select,a{b}}")
    assert not has_branches("{n, number} {name} {{n}}")
    assert not has_branches("{{n, plural, other {b}}}")


PIECES = st.sampled_from(
    ["Wort", " ", "zwei Worte", "''", "'", "'{a}'", "\n", "#", "{name}", "{n, number, ::k}", "<b>", "</b>", "<x/>", "<"]
)
MESSAGES = st.recursive(
    st.lists(PIECES, max_size=4).map("".join),
    lambda inner: st.builds(
        lambda before, kind, one, other, after: f"{before}{{x, {kind}, one {{{one}}}\n other{{{other}}}}}{after}",
        inner,
        st.sampled_from(["plural", "select", "selectordinal"]),
        inner,
        inner,
        inner,
    ),
    max_leaves=8,
)
WRITTEN = st.lists(st.sampled_from(["it's", "{", "}", "#", "'", "''", "word", "l'"]), min_size=1, max_size=4)


def _syntax(message: str) -> list[tuple[str, str]]:
    tokens: list[dict[str, str]] = []
    pyicumessageformat.Parser().parse(message, tokens)
    return sorted((each["type"], each["text"]) for each in tokens if each["type"] != "text")


def _is_message(text: str) -> bool:
    try:
        _syntax(text)
    except SyntaxError:
        return False
    return True


def _with_atoms(document: Document, words: list[str], seed: int) -> list[str]:
    """Return a translation of each block, its atoms at random places."""
    drawn = random.Random(seed)
    found = []
    for block in document.blocks:
        pieces = [*words, *sorted(block.atoms)]
        drawn.shuffle(pieces)
        found.append(" ".join(pieces) if drawn.random() < 0.5 else "".join(pieces))
    return found


def _joined(document: Document) -> str:
    done: list[str] = []
    for block in document.blocks:
        done.append(filled(block.markup, done))
    return document.joined(done)


def _words(text: str) -> str:
    return "".join(letter for letter in text if letter < A and not letter.isspace())


@settings(max_examples=300, deadline=None, derandomize=True)
@given(MESSAGES.filter(_is_message), WRITTEN, st.integers(0, 1000))
@example("{x, plural, one {a} other{b}}", ["{", "'", "'"], 0)
def test_a_translation_has_the_syntax_of_its_message(message: str, words: list[str], seed: int) -> None:
    document = Markup("icu").document(message)
    assert _joined(document) == _joined(Markup("icu").document(message, places_tags=False)) == message
    translations = _with_atoms(document, words, seed)
    found = translated(message, translations)
    assert _syntax(found) == _syntax(message)
    assert sorted(map(_words, texts(found))) == sorted(map(_words, translations))
