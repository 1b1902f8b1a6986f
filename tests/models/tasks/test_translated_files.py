"""Files of users as plain text: what must not change does not, or the answer says so."""

import re
from pathlib import Path

import pytest

from models import Translator
from models.text.literals import Literals

FILES = sorted((Path(__file__).parents[2] / "fixtures" / "texts").iterdir())
BREAKS = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
COPIED = {
    "subtitles.srt": ["00:00:01,000 --> 00:00:03,500", "3\r\n00:00:07,000", "- ", "<i>", "</i>\r\n\r\n", "8:30"],
    "chat.txt": ["[12.03.24, 14:32:05] Anna: ", "12.03.24, 14:36 - Anna: 👍\n", "2024-03-12T14:40:00Z ", "😀", "18:00"],
    "table.csv": ["\n4711-A\t", "\t3,50 €\t", "\t1,19 €\t\n", "\t12,99 €\t", "4713-C"],
    "messages.xliff": [
        '<?xml version="1.0" encoding="UTF-8"?>\n',
        '  <trans-unit id="m2">\n    ',
        "    </body>\n  </file>\n",
    ],
    "e-mail.txt": ["\n\n  * ", "\n> > ", "\n\n-- \n", "\nwww.example.de\n"],
    "scan.txt": ["\ufeff", "\u2028", "\n\n§ 1\n\n1. ", "\n2. ", "\n\f\n", "\n***\n"],
}
WORDS = {
    "subtitles.srt": ["Good morning!", "Where were you yesterday?", "I was at home"],
    "chat.txt": ["How are you", "I'm tired."],
    "table.csv": ["Name\t", "\tbread\t", "\tmilk\t", "\tcoffee\t"],
    "messages.xliff": ["<source>Good morning</source>"],
    "e-mail.txt": ["for your message.", "I don't know."],
    "scan.txt": ["The children\n", "The dog is sleeping.", "water is cold", "6:30"],
}


@pytest.fixture(scope="module")
def translator(store):
    model = store.load("de-en", threads=1)
    assert isinstance(model, Translator)
    return model


def test_there_are_six_files():
    assert [file.name for file in FILES] == sorted(COPIED) == sorted(WORDS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_keeps_what_is_not_text(translator, file):
    text = file.read_bytes().decode()
    (found,) = translator.translate([text])
    translation = found.translations[0].text
    assert BREAKS.findall(translation) == BREAKS.findall(text)
    assert "\ufffd" not in translation
    for piece in COPIED[file.name]:
        assert piece in text
        assert piece in translation
    lower = translation.lower()
    for words in WORDS[file.name]:
        assert words.lower() in lower


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_line_keeps_its_literals_or_has_low_confidence(translator, file):
    lines = [line for line in file.read_bytes().decode().splitlines(keepends=True) if line.strip()]
    found = translator.translate(lines)
    changed = [each for each in found if Literals.of(each.text).differences(each.translations[0].text)]
    assert all(each.low_confidence for each in changed)
    sure = [each for each in found if not each.low_confidence]
    assert len(sure) >= len(lines) / 2
