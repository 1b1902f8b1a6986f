"""Tests of the data report: each likely mistake is found, and sound data have none."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from training.data.report import DataReport, Expected, Texts, examined, likely_language
from training.data.report_page import report_page
from training.recipe.loading import parse_recipe
from training.tasks.data_report import examine

WORDS = str.split("the garden is full of green apples and the owner has to pick them before they fall")


def _labelled(*rows: tuple[str, str]) -> Texts:
    return Texts(columns={"text": [text for _, text in rows]}, labels=[(label,) for label, _ in rows])


def _sound(label: str, count: int = 8) -> list[tuple[str, str]]:
    return [(label, f"{label} {WORDS[n]} {WORDS[n + 1]} {n}") for n in range(count)]


def _of_labels(*rows: tuple[str, str], dev: Sequence[tuple[str, str]] = ()) -> DataReport:
    train = _labelled(*_sound("a"), *_sound("b"), *rows)
    return examined("own", {"train": train, "dev": _labelled(*dev)}, Expected(max_tokens=64), quick=True)


def _of_pairs(*pairs: tuple[str, str]) -> DataReport:
    sound = [(f"ein Satz mit {n} Wörtern darin", f"a sentence of {n} words in it") for n in range(9)]
    sources, targets = zip(*sound, *pairs, strict=True)
    splits = {"train": Texts(columns={"source": sources, "target": targets})}
    return examined("own", splits, Expected(aligned=True), quick=True)


def _kinds(report: DataReport) -> dict[str, int]:
    return {finding.kind: finding.count for finding in report.findings}


def test_sound_data_have_no_findings() -> None:
    report = _of_labels()
    assert report.findings == []
    assert list(report.lines())[-1] == "nothing suspicious was found"
    assert report.classes == {"a": 8, "b": 8}
    assert report.splits == {"train": 16, "dev": 0}


@pytest.mark.parametrize(
    ("rows", "dev", "kind"),
    [
        ([("a", "Where is it?"), ("b", "where is IT")], [], "conflicting-labels"),
        ([("Lob", "well done")], [], "single-text-class"),
        ([("c", "one thing"), ("c", "another thing")], [], "rare-class"),
        ([], [("z", "something else")], "untrained-class"),
        (_sound("B"), [], "similar-labels"),
        (_sound("a, b"), [], "joined-labels"),
        ([], [("a", "A the garden: 0")], "leakage"),
        ([("a", "word " * 60)], [], "too-long"),
        ([("a", "it is br\ufffdken")], [], "replacement-characters"),
        ([("a", "Ã¼ber den Wolken")], [], "mojibake"),
        ([("a", "itâ€™s broken")], [], "mojibake"),
        ([("a", "?!")], [], "no-words"),
        ([("a", "write to me@example.org")], [], "secrets"),
        ([("a", "password: hunter2")], [], "secrets"),
        ([("a", "DE44 5001 0517 5407 3249 31 is mine")], [], "secrets"),
        ([("a", "key AKIAABCDEFGHIJKLMNOP")], [], "secrets"),
    ],
)
def test_mistakes_in_labelled_texts(rows: list[tuple[str, str]], dev: list[tuple[str, str]], kind: str) -> None:
    found = _kinds(_of_labels(*rows, dev=dev))
    assert found.pop(kind) == 1
    assert not found.keys() - {"duplicates", "single-text-class", "conflicting-labels"}


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        (("The same on both sides", "the same on both sides."), "identical-sides"),
        (("ja", "yes, and I would like to say a lot more about that"), "uneven-pairs"),
        (("ein Satz mit 1 Wörtern darin", "a sentence of 1 words in it"), "duplicates"),
    ],
)
def test_mistakes_in_pairs(pair: tuple[str, str], kind: str) -> None:
    assert _kinds(_of_pairs(pair)) == {kind: 1}


def test_no_secret_is_shown() -> None:
    report = _of_labels(("a", "password: hunter2"))
    assert "hunter2" not in "\n".join(report.lines()) + report.json() + report_page(report)


def test_languages() -> None:
    german = ["Das Wetter ist heute schön und wir gehen in den Garten", "Morgen muss ich leider wieder arbeiten gehen"]
    english = "The committee did not agree on the proposal that was made yesterday"
    assert likely_language(german * 5) == "de"
    report = examined("own", {"train": Texts(columns={"text": [*german * 10, english]})}, Expected())
    assert report.languages == {"text": "de"}
    assert _kinds(report)["other-language"] == 1


def test_images_are_copies_by_their_content() -> None:
    def images(*rows: tuple[str, str, str]) -> Texts:
        paths, labels, contents = zip(*rows, strict=True)
        return Texts(columns={"image": paths}, labels=[(label,) for label in labels], contents=contents)

    many = [(f"{label}/{n}.png", label, f"{label}{n}") for label in ("cat", "dog") for n in range(6)]
    splits = {
        "train": images(*many, ("cat/copy.png", "cat", "cat0"), ("dog/cat.png", "dog", "cat1")),
        "dev": images(("dog/again.png", "dog", "dog3")),
    }
    report = examined("own", splits, Expected(images=True))
    assert _kinds(report) == {"conflicting-labels": 1, "duplicates": 2, "leakage": 1}
    text = "\n".join(report.lines())
    assert "own: 14 images of train, 1 images of dev" in text
    assert "'cat/1.png' is cat and dog" in text
    assert "images of dev that are training images too: 1, such as 'dog/again.png'" in text
    assert report.lengths == report.languages == report.histograms == {}
    assert "Words of" not in report_page(report)


def test_a_report_as_json_and_as_a_page() -> None:
    report = _of_labels(("<b>", "well done & more"))
    content = json.loads(report.json())
    assert content["classes"] == {"a": 8, "b": 8, "<b>": 1}
    assert content["findings"][0]["kind"] == "single-text-class"
    page = report_page(report)
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert page.count("<svg") == 2
    assert "http" not in page


@pytest.mark.parametrize("task", ["text-classification", "translation", "language-model"])
def test_a_report_on_a_recipe(task: str, tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text(
        "".join(f"{'ab'[n % 2]}{n if task == 'translation' else ''}\tthe text number {n}\n" for n in range(40))
    )
    data = {"files": {"train": "rows.tsv"}, **({"source": "de", "target": "en"} if task == "translation" else {})}
    report = examine(parse_recipe({"name": "own", "task": task, "data": data}), tmp_path, quick=True)
    assert report.splits == {"train": 36, "dev": 2, "test": 2}


def test_empty_lines_are_reported(tmp_path: Path) -> None:
    lines = [f"the line number {n}" for n in range(30)]
    (tmp_path / "a.txt").write_text("\n".join([*lines[:9], "", *lines[9:]]), encoding="utf-8")
    (tmp_path / "a.de").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "a.en").write_text("\n".join([*lines[1:9], "", "", *lines[10:]]), encoding="utf-8")
    texts = parse_recipe({"name": "own", "task": "language-model", "data": {"files": {"train": "a.txt"}}})
    pairs = {"files": {"train": {"source": "a.de", "target": "a.en"}}, "source": "de", "target": "en"}
    translations = parse_recipe({"name": "own", "task": "translation", "data": pairs})
    found = [_kinds(examine(recipe, tmp_path, quick=True))["left-out"] for recipe in (texts, translations)]
    assert found == [1, 2]


def _of_similar(train: list[tuple[str, str]], dev: Sequence[str] = (), **options: bool) -> dict[str, int]:
    splits = {"train": _labelled(*_sound("a"), *train), "dev": _labelled(*(("a", text) for text in dev))}
    return _kinds(examined("own", splits, Expected(), **options))


TEXT = "Could you please tell me when the parcel with the number 4711 is going to arrive in Hamburg?"


def test_near_copies_in_other_splits_are_a_note() -> None:
    dev = [TEXT.replace("4711", "4712"), TEXT.replace(" please", ""), TEXT.upper(), "Is the parcel there?"]
    found = _of_similar([("a", TEXT)], dev)
    assert (found["near-leakage"], found["leakage"]) == (2, 1)
    assert "near-leakage" not in _of_similar([("a", TEXT)], dev, quick=True)


def test_near_copies_with_other_labels_are_a_note() -> None:
    other = TEXT.replace("4711", "4712")
    assert _of_similar([("a", TEXT), ("b", other)])["near-conflicts"] == 2
    assert "near-conflicts" not in _of_similar([("b", TEXT), ("b", other)])
    assert "near-conflicts" not in _of_similar([("a", TEXT), ("b", other)], quick=True)
    splits = {"train": _labelled(("a", TEXT), ("b", other))}
    (finding,) = [each for each in examined("own", splits, Expected()).findings if each.kind == "near-conflicts"]
    assert finding.level == "note"
    assert len(finding.examples) == 1


def test_of_many_texts_some_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.data.report._COMPARED", 10)
    rows = [("a", f"{TEXT} {n}") for n in range(100)]
    compared = []
    monkeypatch.setattr("training.data.report.near_copies", lambda *given: compared.append(given) or [])
    _of_similar(rows, [text for _, text in rows])
    assert max(len(texts) for given in compared for texts in given) == 10
