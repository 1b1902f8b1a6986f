"""Baselines: metrics of simple methods, where they are kept and shown, and the line of a run that is behind."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from training.cli.commands import run as run_command
from training.recipe.loading import parse_recipe
from training.run.baselines import Baseline, best_baseline, read_baselines, verdict, write_baselines
from training.run.directory import Evaluation, Progress, RunDirectory
from training.run.session import open_task, start_run
from training.tasks.baselines import (
    frequent_class,
    linear_classifier,
    linear_probe,
    micro_f1,
    nearest_text,
    text_classifier,
    word_by_word,
)
from training.tasks.wrong_labels import likely_wrong

CPU = torch.device("cpu")


def test_classes_by_words() -> None:
    texts = [f"{word} {filler}" for word in ("red", "green") for filler in "abcdef"]
    labels = [(text.split()[0],) for text in texts]
    assert list(linear_classifier(texts, labels)(["red x", "y green"])) == [("red",), ("green",)]
    several = [*labels[:-2], ("green", "last"), ("green", "last")]
    assert set(linear_classifier(texts, several)(["green f"])[0]) >= {"green"}
    assert list(frequent_class([("a",), ("b",), ("b",)], 2)) == [("b",), ("b",)]
    assert micro_f1([("a",), ("b",)], [("a",), ("c",)]) == 0.5
    assert micro_f1([("a", "b")], [("a",)]) == pytest.approx(2 / 3)
    assert micro_f1([("a",)], [()]) == 0


def test_a_regression_that_is_too_large_is_replaced_and_the_name_says_why() -> None:
    texts = [f"word{number} item" for number in range(300)]
    labels = [(f"class {number}",) for number in range(300)]
    name, predict = text_classifier(texts, labels)
    assert "300 classes, 20,000 features and 300 examples are too many" in name
    assert list(predict(["word7", "an item word42"])) == [("class 7",), ("class 42",)]
    assert text_classifier(texts[:9], labels[:9])[0] == "logistic regression on TF-IDF"
    with pytest.raises(ValueError, match="too many for it"):
        likely_wrong(texts * 5, [label for (label,) in labels] * 5)


def test_vectors_are_classified() -> None:
    generator = np.random.default_rng(0)
    centres = {"near": -1.0, "far": 1.0}
    vectors = np.concatenate([generator.normal(centre, 0.3, (20, 4)) for centre in centres.values()]).astype(np.float32)
    predict = linear_probe(vectors, [(name,) for name in centres for _ in range(20)])
    assert list(predict(np.array([[-1.0] * 4, [1.0] * 4], np.float32))) == [("near",), ("far",)]


def test_the_most_similar_text() -> None:
    texts = ["the printer is broken", "the mail is slow", "open the door"]
    assert nearest_text(texts)(["my mail", "a door that does not open"]) == [1, 2]


def test_words_are_translated_by_what_they_stand_with() -> None:
    pairs = [("ein Hund", "a dog"), ("ein Haus", "a house"), ("der Hund", "the dog"), ("das Haus", "the house")]
    assert word_by_word(pairs)(["ein Hund", "Haus Xyz"]) == ["a dog", "house Xyz"]


def _evaluation(epoch: int, loss: float, metric: float) -> Evaluation:
    return Evaluation(epoch=epoch, step=epoch, train_loss=loss, metric=metric, seconds=1.0)


@pytest.mark.parametrize(
    ("history", "cause"),
    [
        ([_evaluation(1, 2.0, 0.2), _evaluation(2, 1.99, 0.2)], "hardly fallen"),
        ([_evaluation(1, 2.0, 0.2), _evaluation(2, 1.0, 0.5)], "still improving"),
        ([_evaluation(1, 2.0, 0.5), _evaluation(2, 0.5, 0.4)], "overfitting"),
        ([_evaluation(1, 2.0, 0.2), _evaluation(2, 1.0, 0.9)], None),
    ],
)
def test_a_run_behind_a_baseline_says_why(history: list[Evaluation], cause: str | None, tmp_path: Path) -> None:
    run, progress = RunDirectory(tmp_path), Progress(maximize=True, history=history)
    assert verdict(run, progress, "accuracy") is None, "no baselines were measured"
    found = [{"name": "one", "dev": 0.6, "test": 0.5}, {"name": "other", "dev": 0.8, "test": 0.7}]
    run.baselines.write_text(json.dumps(found), encoding="utf-8")
    line = verdict(run, progress, "accuracy")
    if cause is None:
        assert line is None
    else:
        assert line is not None
        assert "behind other, which has dev accuracy 0.800" in line
        assert cause in line
    assert best_baseline(run, maximize=False) == Baseline(name="one", dev=0.6, test=0.5)


def test_a_run_measures_them_first_and_shows_the_best(
    tiny_data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"{label}\t{label} the thing {number}" for label in ("fetch", "drop") for number in range(40)]
    (tmp_path / "texts.tsv").write_text("\n".join(texts), encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "name: small\ntask: text-classification\ndata: {files: {train: texts.tsv}, max_tokens: 16}\n"
        "network: {hidden_size: 16, inner_size: 16, heads: 2, layers: 1, vocab_size: 200}\n"
        "loop: {epochs: 2, warmup_steps: 1}\n",
        encoding="utf-8",
    )
    for options in ({}, {"restart": True, "baselines": False}):
        assert run_command(recipe, data_dir=tmp_path, runs=tmp_path / "runs", **options) == 0  # type: ignore[arg-type]
        printed, run = capsys.readouterr().out, RunDirectory(tmp_path / "runs" / "small")
        shown = re.findall(r"epoch \d: .* dev accuracy [\d.]+ \(logistic regression on TF-IDF 1.000\)", printed)
        assert len(shown) == (0 if options else 2)
        assert ("baseline most frequent class: dev accuracy" in printed) is not bool(options)
        assert [each.name for each in read_baselines(run)] == (
            [] if options else ["logistic regression on TF-IDF", "most frequent class"]
        )


@pytest.mark.parametrize("probed", [True, False])
def test_a_pretrained_encoder_is_a_baseline_unless_it_takes_long(
    probed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(0)
    texts = [f"{label}\t{label} the thing {number}" for label in ("fetch", "drop") for number in range(40)]
    (tmp_path / "texts.tsv").write_text("\n".join(texts), encoding="utf-8")
    words = sorted({word for line in texts for word in line.replace("\t", " ").split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    pieces = dict(zip(vocabulary, range(len(vocabulary)), strict=True))
    BertTokenizerFast(vocab=pieces).save_pretrained(tmp_path)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=32, **sizes)).save_pretrained(tmp_path)
    monkeypatch.setattr("training.tasks.text_classification.task._PROBED_TOKENS", 10_000 if probed else 10)
    recipe = parse_recipe(
        {
            "name": "own",
            "task": "text-classification",
            "data": {"files": {"train": "texts.tsv"}, "max_tokens": 16},
            "network": {"pretrained": str(tmp_path)},
        }
    )
    run = RunDirectory(tmp_path / "run")
    start_run(recipe, run, tmp_path)
    methods = open_task(recipe, run, tmp_path, CPU).baselines()
    assert ("frozen encoder" in methods) is probed
    if probed:
        assert methods["frozen encoder"]("dev") == 1.0, "random vectors of words tell two words apart"


@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_a_language_model_has_n_grams(context: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(
        "".join(f"we see {'a b c d'[: 1 + 2 * (n % 4)]} now {n % 30}\n" for n in range(400))
    )
    recipe = parse_recipe(
        {
            "name": "words",
            "task": "language-model",
            "data": {"files": {"train": "text.txt"}, "context": context},
            "network": {"hidden_size": 8, "num_layers": 1},
        }
    )
    run = RunDirectory(tmp_path / "run")
    start_run(recipe, run, tmp_path)
    write_baselines(run, open_task(recipe, run, tmp_path, CPU), lambda line: None)
    unigram, longer = read_baselines(run)
    assert (unigram.name, longer.name) == ("unigram", "Kneser-Ney 5-gram")
    assert longer.dev < 0.5 * unigram.dev
