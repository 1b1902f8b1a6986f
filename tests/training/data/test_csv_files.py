"""Tests of CSV files: quotes, delimiters, headers, encodings, and errors with line numbers."""

import re
from pathlib import Path

import pytest

from training.data.inspection import inspect_file
from training.data.own_files import LABELLED, read_pairs, read_split
from training.data.own_texts import read_lines
from training.data.settings import SplitFiles

ROWS = [("greet", "hello, you"), ("part", 'say "bye" now')]


def _read(path: Path, content: str | bytes, **fields: object) -> list[tuple[str, str]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_pairs(path, LABELLED, SplitFiles.model_validate({"train": path.name, **fields}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "texts.csv"


# ---- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        'label,text\ngreet,"hello, you"\npart,"say ""bye"" now"\n',
        'text;label\r\nhello, you;greet\r\n"say ""bye"" now";part\r\n\r\n',
        '"label"\t"text"\n"greet"\t"hello, you"\n"part"\t"say ""bye"" now"',
        '"label";"text"\n"greet";"hello, you"\n"part";"say ""bye"" now"',
        '\ufeff Label , id, TEXT \ngreet,1,"hello, you"\n\npart,2,"say ""bye"" now"\n',
        'label|text\n greet |"hello,\r\n  you"\npart|"say ""bye"" now"\n',
    ],
    ids=["commas", "semicolons", "tabs", "quoted header", "other columns", "line breaks"],
)
def test_records_are_read(content: str, path: Path) -> None:
    assert _read(path, content) == ROWS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_encodings(encoding: str, path: Path) -> None:
    content = "label,text\ngreet,Grüße\n".encode(encoding)
    stated = {"encoding": encoding} if encoding == "cp1252" else {}  # UTF-16 has a byte order mark
    assert _read(path, content, **stated) == [("greet", "Grüße")]


def test_an_encoding_is_for_files_without_columns_too(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_bytes("Grüße\tgreetings\n".encode("latin-1"))
    files = SplitFiles(train="pairs.tsv", encoding="latin-1", dev="pairs.tsv", test="pairs.tsv")
    assert read_split(files, "train", tmp_path) == [("Grüße", "greetings")]


def test_columns_of_other_names(path: Path) -> None:
    columns = {"label": "intent", "text": "what was said"}
    assert _read(path, "What was said,intent,text\nhello,greet,x\n", columns=columns) == [("greet", "hello")]


def test_rows_without_content_are_left_out(path: Path) -> None:
    """Spreadsheets write rows of separators; a row with a number alone has neither label nor text."""
    path.write_text("id;label;text\n;;\n1;spam;win\n2;;\n ; ;\n3;ham;hello\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="rows without label and text are left out: 1, the first is 4"):
        assert read_pairs(path, LABELLED) == [("spam", "win"), ("ham", "hello")]
    with pytest.raises(ValueError, match="line 2: the label is empty"):
        _read(path, "label,text\n,hello\n")


def test_texts_of_language_models(path: Path) -> None:
    path.write_text('id,text\n1,"one, two"\n2,\n3,three\n', encoding="utf-8")
    files = SplitFiles(train=path.name, dev=path.name, test=path.name)
    assert read_lines(files, "train", path.parent) == ["one, two", "three"]


# ---- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "label,utterance\na,b\n",
            ", line 1: the header has no column 'text', but label, utterance; data.files.columns",
        ),
        (
            "book_table,a table for two\n",
            ", line 1: the header has no column 'label', but book_table, a table for two;",
        ),
        ("label,text\na,b\nc,d,e\n", ", line 3: 3 fields, but the header has 2"),
        ('label,text\na,"b\nb"\n\n,d\n', ", line 5: the label is empty"),
        ('label,text\na,b\nc,"d\ne,f\n', ", line 3: the record that begins here is not CSV: unexpected end of data"),
        ('label,text\na,b\nc,"d"d\n', ", line 3: the record that begins here is not CSV: ',' expected after '\"'"),
        (b"label,text\na,b\nc,caf\xe9\n", ", line 3: byte 6 is not UTF-8; data.files.encoding is for another encoding"),
        ("label,text\n", " has a header only"),
        ("", " is empty"),
    ],
    ids=["column", "no header", "fields", "empty", "open quote", "quote", "encoding", "only header", "nothing"],
)
def test_what_is_wrong_is_named(content: str | bytes, said: str, path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{path}{said}")):
        _read(path, content)


def test_bytes_of_another_encoding_are_named(path: Path) -> None:
    with pytest.raises(ValueError, match=r"line 2: it is not ascii"):
        _read(path, "label,text\na,é\n", encoding="ascii")


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="unknown encoding: windows"):
        SplitFiles(train="texts.csv", encoding="windows")


def test_an_unknown_column_names_the_known_ones(path: Path) -> None:
    with pytest.raises(ValueError, match=r"data.files.columns: there is no 'source' here, but label, text"):
        _read(path, "label,text\na,b\n", columns={"source": "x"})


def test_blank_lines_within_quotes_are_no_lines_left_out(path: Path) -> None:
    path.write_text('label,text\nspam,"Dear all,\n\nwin."\n\nham,hello\n', encoding="utf-8")
    found = inspect_file(path)
    assert found.count == 2
    assert not any("empty lines" in line for line in found.lines())
