"""Files in, lines out: order, errors, windows."""

import csv
import json
import math

import pytest

from models import UnknownModelError
from models.tasks.language_model import SCORE
from models.tasks.text_classification import CLASSIFY
from service.offline import running
from service.offline.asked import Asked
from service.offline.options import FileOptions, ModelOptions, UsageError
from service.offline.running import run_file, run_texts

ONE = ModelOptions(threads=1)
WORDS = ModelOptions(model="next-word:4", threads=1)


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(running, "WINDOW", 16)


def test_lines_are_in_order(tmp_path):
    texts = [f"{'the ' * (number % 7)}book {number}" for number in range(50)]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    files = FileOptions(output=tmp_path / "out.jsonl")
    assert run_file(Asked.of(SCORE, {}), tmp_path / "in.txt", ONE, files) == 0
    found = [json.loads(line) for line in files.output.read_text().splitlines()]
    assert [each["text"] for each in found] == texts


def test_a_line_that_fails_is_empty_and_named(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("a\n" * 20 + "b " * 5000 + "\nc\n")
    files = FileOptions(output=tmp_path / "out.tsv")
    assert run_file(Asked.of(SCORE, {}), tmp_path / "in.txt", ONE, files) == 1
    lines = files.output.read_text().splitlines()
    assert [bool(line) for line in lines] == [*[True] * 20, False, True]
    errors = capsys.readouterr().err
    assert "softserve: line 21: " in errors
    assert "1 of 22 lines failed; they are empty in the output" in errors


def test_csv_has_a_row_for_each_token(tmp_path, capsys):
    (tmp_path / "in.txt").write_text('we had\n"\n' + "b " * 5000 + "\nxyzzyx\n")
    files = FileOptions(output=tmp_path / "out.csv", format="csv")
    asked = Asked.of(SCORE, {"explain": True})
    assert run_file(asked, tmp_path / "in.txt", WORDS, files) == 1
    run_file(asked, tmp_path / "in.txt", WORDS, FileOptions(output=tmp_path / "out.jsonl"))
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    with files.output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [(number, token) for number, each in enumerate(records, 1) for token in each.get("tokens", [None])]
    assert [(int(row["line"]), row["word"]) for row in rows] == [
        (number, "" if token is None else token["word"]) for number, token in expected
    ]
    for row, (_, token) in zip(rows, expected, strict=True):
        if token is None:
            assert row.pop("line") == "3"
            assert row.pop("error") == records[2]["error"]
            assert set(row.values()) == {""}
            continue
        assert float(row["log_probability"]) == pytest.approx(token["log_probability"], abs=1e-4)
        assert float(row["surprisal"]) == pytest.approx(-token["log_probability"] / math.log(2), abs=1e-3)
        assert float(row["entropy"]) == pytest.approx(token["entropy"], abs=1e-4)
        assert (row["rank"], row["token_count"], row["start"], row["error"]) == (str(token["rank"]), "1", "", "")
    assert "1 of 4 lines failed; they have an error in the output" in capsys.readouterr().err


def test_csv_that_is_refused(tmp_path):
    with pytest.raises(UsageError, match="classify has no --format csv"):
        run_texts(Asked.of(CLASSIFY, {}), ["a"], ONE, FileOptions(format="csv"))
    resumed = FileOptions(output=tmp_path / "out.csv", format="csv", resume=True)
    with pytest.raises(UsageError, match="--resume needs an output with a line for each text"):
        run_texts(Asked.of(SCORE, {}), ["a"], ONE, resumed)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(("ending", "more"), [("tsv", "; --format jsonl has"), ("jsonl", "\n")])
def test_texts_that_are_cut_are_counted(tmp_path, capsys, ending, more):
    (tmp_path / "in.txt").write_text("a\n" + "b " * 5000 + "\nc\n")
    files = FileOptions(output=tmp_path / f"out.{ending}")
    assert run_file(Asked.of(CLASSIFY, {"truncate": True}), tmp_path / "in.txt", ONE, files) == 0
    assert f"softserve: 1 of 3 texts were cut{more}" in capsys.readouterr().err
    if ending == "jsonl":
        found = [json.loads(line).get("truncated") for line in files.output.read_text().splitlines()]
        assert found[::2] == [None, None]
        assert 4000 < found[1] < 5000


LINES = [
    b'{"text": "one"}',
    b'{"text": "\\ud800"}',
    b"{",
    b'{"body": "x"}',
    b'"gr\xfc"',
    b'{"text": "a\\nb\\tc"}',
    b'"last"',
]


def test_any_line_that_cannot_be_read_is_an_error_and_the_others_have_results(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(LINES))
    score = Asked.of(SCORE, {})
    output = tmp_path / "out.jsonl"
    assert run_file(score, tmp_path / "in.jsonl", ONE, FileOptions(output=output)) == 1
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [each.get("text") for each in found] == ["one", "\ud800", None, None, None, "a\nb\tc", "last"]
    wrong = [each for each in found if "error" in each]
    assert [each["line"] for each in wrong] == [2, 3, 4, 5]
    printed = capsys.readouterr().err.splitlines()
    assert printed[:-1] == [f"softserve: line {each['line']}: {each['error']}" for each in wrong]
    assert printed[-1] == "softserve: 4 of 7 lines failed; they have an error in the output"
    assert run_file(score, tmp_path / "in.jsonl", ONE, FileOptions(output=tmp_path / "out.tsv")) == 1
    cells = [line.split("\t")[-1] for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert cells == ["one", "", "", "", "", "a\\nb\\tc", "last"]


def test_a_line_of_output_is_a_record_of_csv(tmp_path, capsys):
    (tmp_path / "in.csv").write_bytes(b'label,text\na,"he said ""hi""\nto me"\n\nb,one,two\n"c",last\n')
    output = tmp_path / "out.jsonl"
    score = Asked.of(SCORE, {})
    assert run_file(score, tmp_path / "in.csv", ONE, FileOptions(output=output)) == 1
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [each.get("text") for each in found] == ['he said "hi"\nto me', None, "last"]
    assert found[1] == {"line": 5, "error": "3 fields, but the header has 2"}
    whole = output.read_bytes()
    output.write_bytes(whole[: whole.index(b"\n") + 5])
    assert run_file(score, tmp_path / "in.csv", ONE, FileOptions(output=output, resume=True)) == 1
    assert output.read_bytes() == whole
    output.write_bytes(whole * 2)
    with pytest.raises(UsageError, match="has 6 lines, more than the 3 of"):
        run_file(score, tmp_path / "in.csv", ONE, FileOptions(output=output, resume=True))


def test_only_the_first_errors_are_shown(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text("{\n" * 50)
    assert run_file(Asked.of(SCORE, {}), tmp_path / "in.jsonl", ONE, FileOptions()) == 1
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in printed[:20]] == [f"line {number}" for number in range(1, 21)]
    assert printed[20:] == [
        "softserve: there are more errors, which are not shown",
        "softserve: 50 of 50 lines failed; they are empty in the output",
    ]


def test_an_input_that_cannot_be_read_at_all_leaves_no_output(tmp_path):
    (tmp_path / "in.csv").write_text("a,b\n1,2\n")
    output = tmp_path / "out.tsv"
    with pytest.raises(UsageError, match="no column 'text'"):
        run_file(Asked.of(SCORE, {}), tmp_path / "in.csv", ONE, FileOptions(output=output))
    assert not output.exists()


def test_a_run_goes_on_where_it_was(tmp_path):
    texts = [f"book {number}" for number in range(40)]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    output = tmp_path / "out.tsv"
    score = Asked.of(SCORE, {})
    run_file(score, tmp_path / "in.txt", ONE, FileOptions(output=output))
    whole = output.read_text()
    for length in (0, 10, len(whole) // 2, len(whole)):
        output.write_text(whole[:length])
        assert run_file(score, tmp_path / "in.txt", ONE, FileOptions(output=output, resume=True)) == 0
        assert output.read_text() == whole
    output.write_text(whole * 2)
    with pytest.raises(UsageError, match="more than the 40"):
        run_file(score, tmp_path / "in.txt", ONE, FileOptions(output=output, resume=True))


def test_a_model_is_found_by_what_it_offers(tmp_path, capsys):
    assert run_texts(Asked.of(CLASSIFY, {"top_k": 1}), ["play some music"], ONE, FileOptions(format="tsv")) == 0
    assert capsys.readouterr().out.startswith("play_music\t")
    with pytest.raises(
        UnknownModelError, match="'intents' is for classify, not for score; models for score: next-word"
    ):
        run_texts(Asked.of(SCORE, {}), ["a"], ModelOptions(model="intents"), FileOptions())
    with pytest.raises(UnknownModelError, match="there is no model for score"):
        run_texts(Asked.of(SCORE, {}), ["a"], ModelOptions(model_dirs=(tmp_path,)), FileOptions())
    with pytest.raises(UsageError, match="is no file"):
        run_file(Asked.of(SCORE, {}), tmp_path / "none.txt", ONE, FileOptions())


def test_defaults_are_the_bundled_models_and_standard_streams():
    assert (ModelOptions().model, ModelOptions().model_dirs) == (None, ())
    assert (FileOptions().output, FileOptions().format, FileOptions().resume) == (None, "auto", False)
