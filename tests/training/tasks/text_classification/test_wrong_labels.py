"""Labels that are likely wrong: planted ones are found."""

import random
from pathlib import Path

import pytest

from tests.training.cli.test_cli import run_cli
from training.tasks.wrong_labels import likely_wrong

WORDS = {"bank": ["loan", "account", "card", "transfer"], "food": ["soup", "bread", "menu", "table"]}


def _texts(count: int) -> tuple[list[str], list[str]]:
    draw = random.Random(0)
    labels = [list(WORDS)[n % 2] for n in range(count)]
    return [" ".join([*draw.sample(WORDS[label], 3), f"word{n}"]) for n, label in enumerate(labels)], labels


def test_planted_labels_are_found() -> None:
    texts, labels = _texts(200)
    planted = {7: "food" if labels[7] == "bank" else "bank", 60: "food" if labels[60] == "bank" else "bank"}
    given = [planted.get(place, label) for place, label in enumerate(labels)]
    found = likely_wrong(texts, given)
    assert {each.place for each in found} == set(planted)
    assert [each.suggested for each in found] == [labels[each.place] for each in found]
    assert all(0.5 < each.probability <= 1 for each in found)
    assert likely_wrong(texts, labels) == []


def test_rare_classes_are_left_out() -> None:
    texts, labels = _texts(60)
    labels[0], labels[2] = "rare", "rare"
    assert all(each.place not in (0, 2) for each in likely_wrong(texts, labels))
    with pytest.raises(ValueError, match="fewer than two"):
        likely_wrong(texts, ["one"] * 60)


def test_a_check_writes_them_to_correct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts, labels = _texts(200)
    labels[10] = "food" if labels[10] == "bank" else "bank"
    (tmp_path / "texts.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(labels, texts, strict=True)))
    (tmp_path / "recipe.yaml").write_text("name: own\ntask: text-classification\ndata: {files: {train: texts.tsv}}\n")
    done = run_cli("check", "recipe.yaml", "--data-dir", ".", "--wrong-labels", "wrong.tsv")
    assert done.code == 0, done.output
    head, *rows = (tmp_path / "wrong.tsv").read_text().splitlines()
    assert head.split("\t") == ["label", "likely", "probability", "text"]
    assert [row.split("\t")[3] for row in rows] == [texts[10]]
