"""`softserve translate FILE` of documents: a file of the same format."""

import io
from pathlib import Path

import docx
import pytest

from models.tasks.translation import TRANSLATE
from service.offline.asked import Asked
from service.offline.documents import DocumentFlags, document_format, run_document
from service.offline.options import FileOptions, ModelOptions, UsageError
from tests.models.documents.samples import SRT, TEXTS, word_document


def run(file, output, *, flags=None, files=None, **parameters):
    flags = flags or DocumentFlags()
    form = document_format(file, flags)
    options = FileOptions(output=output, **(files or {}))
    return run_document(
        Asked.of(TRANSLATE, parameters), file, form, flags, ModelOptions(model="de-en", threads=1), options
    )


@pytest.fixture
def given(tmp_path):
    def write(name, content):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write


def test_a_word_document_is_translated(given, tmp_path):
    assert run(given("a.docx", word_document()), tmp_path / "b.docx") == 0
    found = docx.Document(tmp_path / "b.docx")
    assert found.paragraphs[0].text == "The report"
    assert found.paragraphs[0].style.name == "Heading 1"
    assert [each.text for each in found.paragraphs[1].runs if each.bold] == ["very"]
    assert [each.text.strip() for each in found.paragraphs[1].runs if each.italic] == ["end"]
    assert found.tables[0].cell(1, 1).text == "Two\tthree"


def test_subtitles_and_messages_are_translated(given, tmp_path):
    assert run(given("a.srt", SRT), tmp_path / "b.srt") == 0
    found = (tmp_path / "b.srt").read_bytes().decode()
    assert found.startswith("1\r\n00:00:01,000 --> 00:00:02,500\r\n{\\an8}Hello <i>")
    assert found.endswith("- Yes.\r\n- No.\r\n")
    assert run(given("a.po", TEXTS["po"]), tmp_path / "b.po") == 0
    assert 'msgstr[2] "Files"' in (tmp_path / "b.po").read_text()


def test_values_of_json_at_paths_are_translated(given, tmp_path):
    flags = DocumentFlags(document="json", json_paths=("**.text",))
    assert run(given("a.json", TEXTS["json"]), tmp_path / "b.json", flags=flags) == 0
    assert (tmp_path / "b.json").read_text() == TEXTS["json"].replace("zwei", "two")


def test_parameters_of_the_operation_count(given, tmp_path):
    file = given("a.txt", "Das Fenster Hauptmenü ist offen.\n")
    assert run(file, tmp_path / "b.txt", flags=DocumentFlags(document="txt"), protect=["Hauptmenü"]) == 0
    assert "Hauptmenü" in (tmp_path / "b.txt").read_text()


def test_attributes_of_html_are_translated(given, tmp_path):
    file = given("a.html", "<p>Der <b title='Der Hund'>Hund</b>.</p><q>Ja</q><img alt=Katze>")
    assert run(file, tmp_path / "b.html", ignore_tags=["q"]) == 0
    assert (tmp_path / "b.html").read_text() == ("<p>The <b title='The dog'>dog</b>.</p><q>Ja</q><img alt=\"cat\">")
    assert run(file, tmp_path / "c.html", translate_attributes=["alt"]) == 0
    assert "title='Der Hund'" in (tmp_path / "c.html").read_text()


def test_a_text_that_is_refused_stays(given, tmp_path, capsys):
    file = given("a.txt", "Guten Morgen!\n" + "wort " * 5000 + "\n")
    assert run(file, tmp_path / "b.txt", flags=DocumentFlags(document="txt")) == 1
    assert (tmp_path / "b.txt").read_text() == "Good morning!\n" + "wort " * 5000 + "\n"
    assert "1 of 2 texts failed" in capsys.readouterr().err


def test_formats_with_lines_are_documents_only_where_they_are_said_to_be():
    for name in ("a.txt", "a.csv", "a.tsv", "a.json", "a.jsonl", "a", "a.unknown"):
        assert document_format(Path(name), DocumentFlags()) is None
    assert document_format(Path("a.csv"), DocumentFlags(document="csv")).name == "csv"
    assert document_format(Path("a.html"), DocumentFlags()).name == "html"
    assert document_format(Path("a.html"), DocumentFlags(document="off")) is None
    assert document_format(None, DocumentFlags()) is None
    with pytest.raises(UsageError, match="give a file"):
        document_format(None, DocumentFlags(document="srt"))


@pytest.mark.parametrize(
    ("files", "words"),
    [({"resume": True}, "--resume"), ({"format": "jsonl"}, "--format"), ({"input_format": "csv"}, "--input-format")],
)
def test_options_for_lines_are_refused(given, tmp_path, files, words):
    with pytest.raises(UsageError, match=words):
        run(given("a.srt", SRT), tmp_path / "b.srt", files=files)


def test_an_output_is_not_overwritten(given, tmp_path):
    output = given("b.srt", "there")
    with pytest.raises(UsageError, match="there already"):
        run(given("a.srt", SRT), output)
    assert output.read_text() == "there"


def test_without_an_output_the_document_goes_to_standard_output(given, monkeypatch):
    written = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", written)
    assert run(given("a.html", "<p>Guten Morgen!</p>"), None) == 0
    assert written.buffer.getvalue() == b"<p>Good morning!</p>"


def test_texts_of_low_confidence_are_named(given, tmp_path, capsys):
    file = given("a.txt", "Guten Morgen!\nQwrtz pffft ghjkl xcvbn.\nGuten Morgen!\nThis line is English already.\n")
    assert run(file, tmp_path / "b.txt", flags=DocumentFlags(document="txt")) == 0
    said = capsys.readouterr().err
    assert "of 4 texts have low confidence; check them:" in said
    assert "  line 4: This line is English already.\n" in said
    assert "Guten Morgen" not in said
