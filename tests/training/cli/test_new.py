"""Tests of `softserve-train new` and `check`: the recipes are trained as they are, and data are reported."""

import io
import json
import random
from pathlib import Path

import pytest
import yaml
from PIL import Image

from tests.training.cli.test_cli import Result, run_cli
from training.data.inspection import likely_suffix

WORDS = str.split("der die das Haus Garten Tisch für heute morgen schön groß klein kommt geht sieht")


@pytest.fixture
def mails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a semicolon-separated file of German texts."""
    monkeypatch.chdir(tmp_path)
    generator = random.Random(0)
    rows = [f"{('Lob', 'Kritik')[n % 2]};{n} {' '.join(generator.sample(WORDS, 6))}" for n in range(60)]
    rows += ["Einmal;nur dieser eine Text", "Lob;derselbe Text hier", "Kritik;Derselbe Text hier!"]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mails.csv").write_bytes("\n".join(["Grund;Anliegen", *rows]).encode("cp1252"))
    return tmp_path


def _new(*arguments: object) -> Result:
    return run_cli("new", "classifier", "data/mails.csv", "--device", "cpu", *arguments)


def test_a_new_recipe_is_trained_as_it_is(mails: Path) -> None:
    made = _new("--no-trial", "--output", "own.yaml", "--name", "own")
    assert made.code == 0, made.output
    assert "classes of a single training text: 1, such as Einmal" in made.output
    assert "texts that occur with different labels: 1" in made.output
    small = ["network.hidden_size=16", "network.inner_size=16", "network.layers=1", "loop.max_steps=3"]
    trained = run_cli("run", "own.yaml", *(part for each in small for part in ("--set", each)))
    assert trained.code == 0, trained.output
    assert "warning: classes of a single training text: 1" in trained.output
    strict = run_cli("run", "own.yaml", "--restart", "--set", "data.strict=true")
    assert "data.strict: the data have" in str(strict.code)


def test_a_trial_predicts_the_time_and_plans_for_minutes(mails: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _new("--minutes", "0.2")
    assert made.code == 0, made.output
    assert "time: some" in made.output
    recipe = yaml.safe_load((mails / "mails.yaml").read_text(encoding="utf-8"))
    assert recipe["data"]["files"]["train"] == "mails.csv"
    assert 1 <= recipe["loop"]["epochs"] <= 180
    assert 0.02 <= recipe["loop"]["minutes"] < 0.2


def test_wrong_use_is_one_line(mails: Path) -> None:
    assert "--no-trial cannot be given with it" in str(_new("--minutes", "1", "--no-trial").code)
    assert "--columns takes ROLE=NAME" in str(_new("--columns", "Grund").code)
    assert "there is no such file" in str(run_cli("new", "classifier", "data/none.csv").code)
    (mails / "mails.yaml").write_text("")
    assert "mails.yaml is there; --force replaces it" in str(_new("--no-trial").code)


def test_standard_input_is_saved(mails: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO((mails / "data" / "mails.csv").read_bytes())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content))
    made = run_cli("new", "classifier", "-", "--no-trial", "--name", "piped")
    assert made.code == 0, made.output
    assert yaml.safe_load((mails / "piped.yaml").read_text(encoding="utf-8"))["data"]["files"]["train"] == "piped.csv"


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (b"a;b\n1;2\n3;4\n", ".csv"),
        (b"a\tb c\nd\te, f\n", ".tsv"),
        (b'{"a": 1}\n', ".jsonl"),
        (b"A line.\nAnother, longer line.\nAnd more.\n", ".txt"),
        (b"<?xml version='1.0'?><tmx>", ".tmx"),
    ],
)
def test_formats_of_standard_input(content: bytes, suffix: str) -> None:
    assert likely_suffix(content) == suffix


def test_a_check_as_text_json_and_page(mails: Path) -> None:
    assert _new("--no-trial").code == 0
    checked = run_cli("check", "mails.yaml", "--json", "report.json", "--html", "report.html")
    assert checked.code == 0
    assert "such as Einmal" in checked.output
    assert json.loads((mails / "report.json").read_text(encoding="utf-8"))["classes"]["Einmal"] == 1
    assert (mails / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert run_cli("check", "mails.yaml", "--strict").code == 1


def test_a_recipe_for_images_is_trained_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(60):
        path = tmp_path / "photos" / ("dark" if number % 2 else "light") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        shade = (40 if number % 2 else 200) + number // 2
        Image.new("RGB", (20, 16), (shade, shade, number)).save(path)
    made = run_cli("new", "image-classifier", "photos", "--data-dir", ".", "--from-scratch", "--device", "cpu")
    assert made.code == 0, made.output
    assert "photos: a folder of images for each class, 60 images" in made.output
    assert "simple methods have a dev accuracy of: most frequent class" in made.output
    small = ["network.layers=[1]", "network.growth=4", "loop.max_steps=5"]
    trained = run_cli("run", "photos.yaml", "--data-dir", ".", *(part for each in small for part in ("--set", each)))
    assert trained.code == 0, trained.output
    assert "warning" not in trained.output
    checked = run_cli("check", "photos.yaml", "--data-dir", ".", "--strict", "--html", "report.html")
    assert (checked.code, "images of train" in checked.output) == (0, True)


def test_a_recipe_for_a_text_generator_is_trained_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    generator = random.Random(0)
    texts = [generator.sample(WORDS, 8) for _ in range(80)]
    rows = [{"body": " ".join(words), "subject": " ".join(words[:2])} for words in texts]
    (tmp_path / "mails.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    columns = ("--columns", "source=body", "--columns", "target=subject")
    made = run_cli("new", "text-generator", "mails.jsonl", "--data-dir", ".", "--no-trial", *columns)
    assert made.code == 0, made.output
    small = ["network.hidden_size=16", "network.inner_size=16", "network.layers=1", "loop.max_steps=3"]
    trained = run_cli("run", "mails.yaml", "--data-dir", ".", *(part for each in small for part in ("--set", each)))
    assert trained.code == 0, trained.output
    assert "baseline first words of the source: dev ROUGE-L 100.000" in trained.output
    assert "baseline target of the most similar source: dev ROUGE-L" in trained.output


def test_a_recipe_for_a_transformer_is_trained_and_exported_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    generator = random.Random(0)
    lines = [" ".join(generator.sample(WORDS, 6)) + "." for _ in range(200)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    places = ("--data-dir", ".")
    made = run_cli("new", "language-model", "text.txt", *places, "--network", "transformer", "--no-trial")
    assert made.code == 0, made.output
    written = (tmp_path / "text.yaml").read_text(encoding="utf-8")
    assert "--network transformer" in written
    assert yaml.safe_load(written)["task"] == "causal-language-model"
    small = ("--set", "network.layers=1", "--set", "loop.max_steps=4")
    trained = run_cli("run", "text.yaml", *places, *small)
    assert trained.code == 0, trained.output
    assert "dev bits_per_byte" in trained.output
    exported = run_cli("export", "runs/text", *places, "--output", "models")
    assert exported.code == 0, exported.output
    manifest = json.loads((tmp_path / "models" / "text" / "1" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["task"] == "causal-language-model"


def test_networks_are_chosen_for_kinds_that_have_several(mails: Path) -> None:
    made = run_cli("new", "language-model", "data/mails.csv", "--no-trial", "--columns", "text=Anliegen")
    assert made.code == 0, made.output
    assert yaml.safe_load((mails / "mails.yaml").read_text(encoding="utf-8"))["task"] == "language-model"
    wrong = run_cli("new", "language-model", "data/mails.csv", "--network", "gru", "--force")
    assert "lstm, transformer are possible" in str(wrong.code)
    assert "classifier has one network only" in str(_new("--network", "lstm", "--force").code)
