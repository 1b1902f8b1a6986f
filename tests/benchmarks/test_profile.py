"""Tests of the profile of a model."""

import re
from pathlib import Path

import pytest

from benchmarks.profile import main
from tests.fixtures.bundled import DE_EN, DE_EN_VERSION, NEXT_WORD


def _tables(printed: str) -> list[list[list[str]]]:
    """Return the cells of each row of the printed tables, without their heads."""
    tables = [re.findall(r"^\|.*\|$", part, re.MULTILINE)[2:] for part in printed.split("\n\n")]
    return [[[cell.strip(" `") for cell in row[1:-1].split("|")] for row in rows] for rows in tables if rows]


def test_the_parts_of_a_decoding_add_up(random_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(random_bundle, batch=2, length=8, repetitions=2)
    parts, operators = _tables(capsys.readouterr().out)
    assert [row[0] for row in parts] == [
        *(f"{graph}`, {part}" for graph in ("encode", "step") for part in ("operators", "run overhead")),
        "Python",
        "waiting",
    ]
    assert [row[1] for row in parts[:4]] == ["1", "1", "18", "18"], "8 + 10 tokens"
    shares = [float(row[-1].rstrip("%")) for row in parts]
    assert min(shares) >= 0
    assert sum(shares) == pytest.approx(100, abs=1)
    step = {row[1]: float(row[2]) for row in operators if row[0] == "step"}
    assert step["MultiHeadAttention"] == 2, "of the layer's own tokens, and of the source"
    assert {"MatMulIntegerToFloat", "TopK"} <= set(step)


def test_sentences_of_a_file_are_decoded_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("Guten Morgen!\nWo ist der Bahnhof?\n" * 3, encoding="utf-8")
    main(DE_EN, beam=1, batch=2, texts=tmp_path / "texts.txt", parallel=2, repetitions=1)
    printed = capsys.readouterr().out
    assert printed.startswith(f"de-en:{DE_EN_VERSION}, 2 x 1 threads, ")
    parts, _ = _tables(printed)
    assert 2 <= int(parts[0][1]) <= 6, "runs of `encode`: two to six groups of six sentences"


@pytest.mark.parametrize(("operation", "graph"), [(None, "next_words"), ("score", "score")])
def test_a_batch_is_one_run(operation: str | None, graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(NEXT_WORD, operation=operation, batch=3, repetitions=2)
    parts, operators = _tables(capsys.readouterr().out)
    assert [row[:2] for row in parts[:2]] == [[f"{graph}`, operators", "1"], [f"{graph}`, run overhead", "1"]]
    assert {row[0] for row in operators} == {graph}
    assert "LSTM" in {row[1] for row in operators}
