"""Tests of the comparison with CTranslate2."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ctranslate2_model import convert
from benchmarks.translation import Sentences, _best, _ctranslate2, _groups, _sentences, _softserve, main
from tests.fixtures.bundled import DE_EN
from training.tasks.translation.bundle_weights import bundle_model

TEXTS = ["Guten Morgen!", "Wo ist der Bahnhof?", "Ich habe keine Zeit.", "Das Haus ist alt."]
SETTINGS = [(1, 1), (1, 2), (2, 1)]


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Sentences:
    texts = tmp_path_factory.mktemp("texts") / "texts.txt"
    texts.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return _sentences(DE_EN, Path("data"), texts, None, 4)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ctranslate2") / "de-en"
    convert(bundle_model(DE_EN), path, end_id=1, quantization="int8")
    return path


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_both_libraries_translate_alike(setting: tuple[int, int], sentences: Sentences, converted: Path) -> None:
    sources = sentences.sources
    ours = _softserve(DE_EN, "int8", *setting, sentences)
    theirs = _ctranslate2(converted, "int8", *setting, sentences)
    for beam in (1, 5):
        found = ours(sources, beam)
        assert all(2 <= len(tokens) < 20 for tokens in found)
        assert sum(a == b for a, b in zip(found, theirs(sources, beam), strict=True)) >= len(TEXTS) - 1


def test_both_libraries_write_as_many_tokens_as_are_asked_for(random_bundle: Path, tmp_path: Path) -> None:
    convert(bundle_model(random_bundle), tmp_path / "model", end_id=1, quantization=None)
    random = _sentences(random_bundle, Path("data"), None, 6, 40)
    assert random.sources == _sentences(random_bundle, Path("data"), None, 6, 40).sources
    for translate in (
        _softserve(random_bundle, "float32", 1, 1, random),
        _ctranslate2(tmp_path / "model", "float32", 1, 1, random),
    ):
        for beam in (1, 5):
            assert {len(tokens) for tokens in translate(random.sources, beam)} == {6}


def test_groups_of_the_cells() -> None:
    sentences = Sentences([[number] for number in range(100)], None, None)
    sizes = {
        (batch, order, setting): [len(group) for group in _groups(sentences, batch, order, setting)]
        for batch, order in ((1, "arrival"), (32, "sorted"), (32, "arrival"))
        for setting in ("2 threads", "2 at once")
    }
    assert sizes == {
        (1, "arrival", "2 threads"): [1] * 100,
        (1, "arrival", "2 at once"): [2] * 50,
        (32, "sorted", "2 threads"): [100],
        (32, "sorted", "2 at once"): [100],
        (32, "arrival", "2 threads"): [32, 32, 32, 4],
        (32, "arrival", "2 at once"): [64, 36],
    }


def test_each_side_is_compared_at_its_best_setting() -> None:
    rates = {("Softserve", "1 thread"): 10.0, ("Softserve", "2 threads"): 30.0, ("CTranslate2", "1 thread"): 20.0}
    assert _best("Softserve", rates) == ("Softserve", "2 threads")
    assert _best("CTranslate2", rates) == ("CTranslate2", "1 thread")


class _InThisProcess:
    """A side that computes in this process."""

    def __init__(self, make: Callable[..., Callable[..., list[Any]]], *arguments: object) -> None:
        self._work = make(*arguments)

    def time(self, groups: Sequence[Sequence[Any]], *arguments: object) -> tuple[float, list[Any]]:
        started = time.perf_counter()
        results = [result for group in groups for result in self._work(group, *arguments)]
        return time.perf_counter() - started, results


def test_the_table_has_a_row_for_each_cell(
    random_bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.translation.side", lambda *given: nullcontext(_InThisProcess(*given)))
    main((random_bundle,), output_tokens=2, sentences=3, rounds=1)
    printed = capsys.readouterr().out
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith(("| float32 |", "| int8 |"))]
    assert [row[:4] for row in rows] == [
        [f"| {precision}", beam, batch, order]
        for precision in ("float32", "int8")
        for beam in ("1", "5")
        for batch, order in (("1", "arrival"), ("32", "sorted"), ("32", "arrival"))
    ]
    assert all(float(row[6]) > 0 for row in rows)
    assert "of all: least ratio" in printed
