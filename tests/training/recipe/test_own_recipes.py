"""Tests of recipes that are made for a user's data: files are understood, and choices fit them."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from training.data.inspection import inspect_file
from training.recipe.loading import parse_recipe
from training.recipe.own.document import Planned
from training.run.directory import RunDirectory
from training.run.session import start_run
from training.tasks.causal_language_model.own_recipe import plan_causal_language_model
from training.tasks.image_classification.own_recipe import plan_image_classifier
from training.tasks.language_model.own_recipe import is_running_text, plan_language_model
from training.tasks.text_classification.own_recipe import plan_classifier
from training.tasks.text_classification.reading import read_labelled
from training.tasks.text_generation.own_recipe import plan_text_generator
from training.tasks.translation.initial import bundled_translator
from training.tasks.translation.own_recipe import plan_translator

GERMAN = str.split("Der Garten ist heute schön und wir möchten gern einen Tisch für zwei Personen am Abend")
ENGLISH = str.split("the garden is very nice today and we would like to have a table for two people tonight")


def _texts(words: list[str], count: int, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.sample(words, 8)) for _ in range(count)]


def _classifier(
    path: Path, content: str, encoding: str = "utf-8", pretrained: str | None = "minilm-l6", **given: str
) -> Planned:
    path.write_bytes(content.encode(encoding))
    plan = plan_classifier(inspect_file(path), given, pretrained=pretrained, epochs=None, epoch_steps=None)
    return _valid(plan)


def _valid(plan: Planned) -> Planned:
    plan.choose("name", "own")
    document = yaml.safe_load(plan.document("Made for a test."))
    assert document == plan.content
    parse_recipe(document)
    return plan


def _image_classifier(path: Path, pretrained: str | None = "efficientnet-lite0", **given: str) -> Planned:
    found = inspect_file(path)
    data_dir = path.parent
    return _valid(plan_image_classifier(found, given, data_dir, pretrained=pretrained, epochs=None, epoch_steps=None))


def _photos(folder: Path, side: int, count: int = 12) -> Path:
    for number in range(count):
        path = folder / ("cat" if number % 2 else "dog") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (side, 2 * side), (number, 0, 0)).save(path)
    return folder


@pytest.mark.parametrize(("side", "size", "enlarged"), [(28, 32, True), (100, 96, False), (640, 128, False)])
def test_images_are_brought_to_a_size_that_fits(side: int, size: int, enlarged: bool, tmp_path: Path) -> None:
    plan = _image_classifier(_photos(tmp_path / "photos", side))
    assert plan.content["data"]["image_size"] == size
    assert ("scale" in plan.content["network"]) is enlarged
    assert plan.content["network"]["pretrained"] == "efficientnet-lite0"
    assert f"2 classes of 6 to 6 images, whose smaller side is {side} pixels" in " ".join(plan.found)
    scratch = _image_classifier(tmp_path / "photos", pretrained=None).content["network"]
    assert scratch["encoder"] == "densenet"


def test_images_of_a_list(tmp_path: Path) -> None:
    _photos(tmp_path / "photos", 16)
    rows = [f"{n};photos/{'cat' if n % 2 else 'dog'}/{n}.png;{'cat' if n % 2 else 'dog'}" for n in range(12)]
    (tmp_path / "list.csv").write_text("\n".join(["Number;Picture;Animal", *rows]), encoding="utf-8")
    plan = _image_classifier(tmp_path / "list.csv")
    assert _files(plan) == {"columns": {"label": "Animal", "path": "Picture"}}
    (tmp_path / "list.csv").write_text("Number;Animal\n1;cat\n2;dog\n3;cat\n4;dog\n5;dog\n", encoding="utf-8")
    with pytest.raises(ValueError, match="which the paths of images"):
        _image_classifier(tmp_path / "list.csv")
    (tmp_path / "list.csv").write_text("label;path\ncat;none.png\ndog;other.png\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"none\.png is no image that can be opened"):
        _image_classifier(tmp_path / "list.csv")


def test_a_text_generator_has_lengths_that_fit(tmp_path: Path) -> None:
    lines = [f"{text}\t{' '.join(text.split()[:3])}" for text in _texts(ENGLISH, 300)]
    (tmp_path / "titles.tsv").write_text("\n".join(lines), encoding="utf-8")
    plans = [
        _valid(
            plan_text_generator(
                [inspect_file(tmp_path / "titles.tsv")], {}, pretrained=encoder, epochs=None, epoch_steps=None
            )
        ).content
        for encoder in ("minilm-l6", None)
    ]
    assert [plan["data"]["max_tokens"] for plan in plans] == [32, 32]
    assert [plan["data"]["max_output_tokens"] for plan in plans] == [8, 8]
    assert plans[0]["network"] == {"pretrained": "minilm-l6"}
    assert plans[1]["network"]["vocab_size"] == 500


def _files(plan: Planned) -> Mapping[str, Any]:
    files: Mapping[str, Any] = plan.content["data"]["files"]
    return {name: value for name, value in files.items() if name != "train"}


def _translator(*paths: Path, languages: tuple[str, str] | None = None) -> Planned:
    found = [inspect_file(path) for path in paths]
    return _valid(plan_translator(found, {}, languages=languages, epochs=None, epoch_steps=None))


def _language_model(path: Path, lines: list[str]) -> Planned:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _valid(plan_language_model(inspect_file(path), {}, epochs=None, epoch_steps=None))


# ---- files ------------------------------------------------------------------------------------------------


def test_a_german_spreadsheet(tmp_path: Path) -> None:
    rows = [f"{n};{('Lob & Dank', 'Kritik')[n % 2]};mail;{text}" for n, text in enumerate(_texts(GERMAN, 60))]
    plan = _classifier(tmp_path / "a.csv", "\n".join(["Nr;Grund;Kanal;Anliegen", *rows]), "cp1252")
    assert _files(plan) == {"encoding": "cp1252", "columns": {"label": "Grund", "text": "Anliegen"}}
    assert "pretrained" not in plan.content["network"]
    assert "language de" in plan.found[0]


@pytest.mark.parametrize(
    ("header", "first", "second", "files"),
    [
        ("", "{label}\t{text}", "a.tsv", {"header": False}),
        ("", "{text}\t{label}", "a.tsv", {"header": False, "columns": {"label": "2", "text": "1"}}),
        ("label\ttext\n", "{label}\t{text}", "a.tsv", {}),
        ("Kind\tWords\n", "{label}\t{text}", "a.txt", {"columns": {"label": "Kind", "text": "Words"}}),
        ("", "{label},{text}", "a.csv", {"header": False}),
        ("", '{{"a": {{"kind": "{label}"}}, "body": "{text}"}}', "a.jsonl",
         {"columns": {"label": "a.kind", "text": "body"}}),
    ],
)  # fmt: skip
def test_columns_and_headers(header: str, first: str, second: str, files: Any, tmp_path: Path) -> None:
    labels = ("book a table", "say thanks")
    lines = [first.format(label=labels[n % 2], text=text) for n, text in enumerate(_texts(ENGLISH, 40))]
    plan = _classifier(tmp_path / second, header + "\n".join(lines))
    assert _files(plan) == files
    assert plan.content["network"] == {"pretrained": "minilm-l6"}
    recipe = parse_recipe(plan.content)
    found = read_labelled(recipe.data, "train", tmp_path)  # type: ignore[arg-type]
    assert {label for each in found for label in each.labels} == set(labels)


def test_given_columns_are_taken_and_wrong_ones_refused(tmp_path: Path) -> None:
    content = "a,b,c\n" + "\n".join(
        f"{'xy'[n % 2]},{'uv'[n // 20]},{text}" for n, text in enumerate(_texts(ENGLISH, 40))
    )
    assert "could also be the column b: --columns label=NAME" in _classifier(tmp_path / "a.csv", content).found[-1]
    assert _files(_classifier(tmp_path / "a.csv", content, label="b"))["columns"] == {"label": "b", "text": "c"}
    with pytest.raises(ValueError, match=r"label=d: .*a\.csv has no such column, but a, b, c"):
        _classifier(tmp_path / "a.csv", content, label="d")
    with pytest.raises(ValueError, match="there is no 'source' here, but label and text"):
        _classifier(tmp_path / "a.csv", content, source="a")


def test_texts_without_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="which column has the labels"):
        _classifier(tmp_path / "a.csv", "nr,body\n" + "\n".join(f"{n},{t}" for n, t in enumerate(_texts(ENGLISH, 40))))


def test_json_of_another_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[\n{"text": "x"}\n]')
    with pytest.raises(ValueError, match=r"an object on each line, named \.jsonl"):
        inspect_file(tmp_path / "a.json")


# ---- choices ----------------------------------------------------------------------------------------------


def test_translators_start_from_a_bundled_model_of_their_languages(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"Das ist Satz {n}.\tThis is sentence {n}.\n" for n in range(60)), encoding="utf-8")
    for languages, initial in ((("de", "en"), "bundled/de-en/"), (("nl", "en"), None)):
        plan = plan_translator(
            [inspect_file(path)], {}, languages=languages, initial=bundled_translator, epochs=None, epoch_steps=None
        )
        _valid(plan)
        assert plan.content.get("initial", "").startswith(initial or "")
        assert ("initial" in plan.content) is (initial is not None)
        if initial is not None:
            recipe = parse_recipe({**plan.content, "name": "own"})
            run = RunDirectory(tmp_path / "run")
            start_run(recipe, run, tmp_path)  # raises where network, output layer or vocabulary differ
            assert plan.content["loop"]["epochs"] <= 5


def test_lists_of_labels_are_several(tmp_path: Path) -> None:
    labels = ("a", "b", "a, b", "c, a", "c")
    lines = [f"{labels[n % 5]}\t{text}" for n, text in enumerate(_texts(ENGLISH, 50))]
    plan = _classifier(tmp_path / "a.tsv", "\n".join(lines))
    assert plan.content["data"]["multi_label"] is True


def test_two_parallel_files(tmp_path: Path) -> None:
    for name, words in (("news.de", GERMAN), ("news.en", ENGLISH)):
        (tmp_path / name).write_text("\n".join(_texts(words, 200)), encoding="utf-8")
    plan = _translator(tmp_path / "news.de", tmp_path / "news.en")
    assert (plan.content["data"]["source"], plan.content["data"]["target"]) == ("de", "en")
    loop = plan.content["loop"]
    steps = loop["average"] * loop["snapshot_steps"]
    assert steps < 0.2 * loop["epochs"] * 10
    (tmp_path / "news.en").write_text("one\n")
    with pytest.raises(ValueError, match=r"has 200 lines and .*news\.en 1: lines of the same number must be a pair"):
        _translator(tmp_path / "news.de", tmp_path / "news.en")


def test_languages_of_pairs_are_detected_or_given(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(map("\t".join, zip(_texts(GERMAN, 100), _texts(ENGLISH, 100), strict=True))), "utf-8")
    data = _translator(path).content["data"]
    assert (data["source"], data["target"]) == ("de", "en")
    data = _translator(path, languages=("nl", "en")).content["data"]
    assert (data["source"], data["target"]) == ("nl", "en")
    path.write_text("\n".join(f"{text}\t{text[:40]}" for text in _texts(ENGLISH, 100)), "utf-8")
    with pytest.raises(ValueError, match="both sides seem to be in 'en'; --languages says it"):
        _translator(path)


def test_warm_up_is_a_fraction_of_a_small_training(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(map("\t".join, zip(_texts(GERMAN, 900), _texts(ENGLISH, 900), strict=True))), "utf-8")
    found = [inspect_file(path)]
    plan = plan_translator(found, {}, languages=("de", "en"), epochs=40, epoch_steps=62)
    assert plan.content["loop"]["warmup_steps"] == 372
    assert plan.content["loop"]["average"] * plan.content["loop"]["snapshot_steps"] <= 124


def test_a_wrapped_book_is_a_stream_and_has_a_bias_without_a_mixture(tmp_path: Path) -> None:
    words = _texts([*ENGLISH, "Anna", "came."], 300)
    lines = [line for n, line in enumerate(words) for line in ([line, ""] if n % 10 == 9 else [line])]
    plan = _language_model(tmp_path / "book.txt", lines)
    assert plan.content["data"]["context"] == "stream"
    assert plan.content["output_layer"] == {"kernels": "lin", "bias": True}
    assert "book.txt: 29 empty lines are left out" in inspect_file(tmp_path / "book.txt").lines()[1]


def test_sentences_are_no_stream(tmp_path: Path) -> None:
    lines = [f"{text}." for text in _texts(ENGLISH, 100)]
    assert _language_model(tmp_path / "text.txt", lines).content["data"]["context"] == "sentence"
    assert not is_running_text(lines[:5])


def _transformer(path: Path, lines: list[str]) -> Planned:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _valid(plan_causal_language_model(inspect_file(path), {}, epochs=None, epoch_steps=None))


def test_transformers_of_short_lines_have_few_positions(tmp_path: Path) -> None:
    """100 lines of 8 words have some 1,200 tokens, too few for more than the smallest vocabulary, of 512."""
    content = _transformer(tmp_path / "text.txt", [f"{text}." for text in _texts(ENGLISH, 100)]).content
    assert content["data"] | {"files": None} == {
        "files": None,
        "context": "sentence",
        "vocab_size": 512,
        "batch_tokens": content["data"]["batch_tokens"],
    }
    assert content["network"]["positions"] == 64
    assert content["network"]["hidden_size"] == 64 * content["network"]["heads"] == 128
    assert content["output_layer"] == {"kernels": "lin", "bias": True}
    long = _transformer(tmp_path / "long.txt", [" ".join(_texts(ENGLISH, 8, seed=n)) + "." for n in range(40)]).content
    assert (long["data"]["context"], long["network"]["positions"]) == ("stream", 256)


def test_transformers_of_a_wrapped_book_read_a_stream_and_grow_with_it(tmp_path: Path) -> None:
    lines = _texts([*ENGLISH, "Anna", "came."], 300)
    book = _transformer(tmp_path / "book.txt", lines).content
    assert book["data"]["context"] == "stream"
    assert book["network"]["positions"] == 256 <= book["data"]["batch_tokens"]
    larger = _transformer(tmp_path / "larger.txt", lines * 100).content
    assert larger["data"]["vocab_size"] > book["data"]["vocab_size"]
    assert larger["network"]["hidden_size"] == 256
    assert larger["loop"]["epochs"] < book["loop"]["epochs"]


def test_comments_say_why(tmp_path: Path) -> None:
    plan = _classifier(tmp_path / "a.tsv", "\n".join(f"{'ab'[n % 2]}\t{t}" for n, t in enumerate(_texts(ENGLISH, 40))))
    text = plan.document("Head.")
    assert text.startswith("# Head.\n# 40 texts")
    assert "pretrained: minilm-l6  # the texts are English" in text
    assert max(map(len, text.splitlines())) <= 120
