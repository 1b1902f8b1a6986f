"""Files in, lines out: order, errors, windows."""

import json

import pytest

from models import UnknownModelError
from service.offline import operations, running
from service.offline.options import FileOptions, ModelOptions, UsageError
from service.offline.running import run_file, run_texts

ONE = ModelOptions(threads=1)


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(running, "WINDOW", 16)


def test_lines_are_in_order(tmp_path):
    texts = [f"{'the ' * (number % 7)}book {number}" for number in range(50)]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    files = FileOptions(output=tmp_path / "out.jsonl")
    assert run_file(operations.score(truncate=False), tmp_path / "in.txt", ONE, files) == 0
    found = [json.loads(line) for line in files.output.read_text().splitlines()]
    assert [each["text"] for each in found] == texts


def test_a_line_that_fails_is_empty_and_named(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("a\n" * 20 + "b " * 5000 + "\nc\n")
    files = FileOptions(output=tmp_path / "out.tsv")
    assert run_file(operations.score(truncate=False), tmp_path / "in.txt", ONE, files) == 1
    lines = files.output.read_text().splitlines()
    assert [bool(line) for line in lines] == [*[True] * 20, False, True]
    errors = capsys.readouterr().err
    assert "softserve: line 21: " in errors
    assert "1 lines failed" in errors


def test_a_run_goes_on_where_it_was(tmp_path):
    texts = [f"book {number}" for number in range(40)]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    output = tmp_path / "out.tsv"
    score = operations.score(truncate=False)
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
    assert run_texts(operations.classify(1, truncate=False), ["play some music"], ONE, "tsv") == 0
    assert capsys.readouterr().out.startswith("play_music\t")
    with pytest.raises(
        UnknownModelError, match="'intents' is for classify, not for score; models for score: next-word"
    ):
        run_texts(operations.score(truncate=False), ["a"], ModelOptions(model="intents"), "tsv")
    with pytest.raises(UnknownModelError, match="there is no model for score"):
        run_texts(operations.score(truncate=False), ["a"], ModelOptions(model_dirs=(tmp_path,)), "tsv")
    with pytest.raises(UsageError, match="is no file"):
        run_file(operations.score(truncate=False), tmp_path / "none.txt", ONE, FileOptions())
