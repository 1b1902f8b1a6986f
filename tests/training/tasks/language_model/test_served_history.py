"""Language models with a cache or pointer from the recipe to the service: training, export, `score`, `next-word`.

The documents name people who occur nowhere else: only the words read before say who comes next.
"""

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from models.reading import validate
from models.store import load_bundle
from models.tasks.language_model import LanguageModel
from service.server.app import create_app
from service.settings import Settings
from tests.support.waiting import wait_until
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.loop import Trainer
from training.run.session import load_trained
from training.tasks.language_model import LanguageModelTask
from training.tasks.language_model.perplexity import bundle_perplexity

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")

WINDOW = 12
COMPONENTS: dict[str, Any] = {
    "cache": {"name": "cache", "theta": 0.5, "window": WINDOW, "weight": 0.3},
    "pointer": {"name": "pointer", "window": WINDOW},
}


def _document(generator: random.Random) -> list[str]:
    one, other = (f"name{generator.randrange(40)}" for _ in range(2))
    return [f"{generator.choice((one, other))} likes {generator.choice((one, other))}" for _ in range(12)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents")
    for seed, (split, count) in enumerate({"train": 40, "dev": 4, "test": 4}.items()):
        generator = random.Random(seed)
        lines = [line for _ in range(count) for line in _document(generator)]
        (path / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _trained(directory: Path, kind: str, **export: Any) -> RunDirectory:
    files = {split: str(directory / f"{split}.txt") for split in ("train", "dev", "test")}
    recipe = parse_recipe(
        {
            "name": f"documents-{kind}",
            "task": "language-model",
            "data": {"files": files, "style": "whitespace", "context": "stream", "batch_tokens": 80, "stream_steps": 8},
            "network": {"hidden_size": 16, "num_layers": 2},
            "output_layer": {"kernels": ["lin", COMPONENTS[kind], "unigram"], "bias": True},
            "loop": {"epochs": 1, "learning_rate": 0.01},
            "export": {"max_tokens": 300, **export},
        }
    )
    run = RunDirectory(directory / recipe.name)
    run.start(recipe)
    tokenizer = LanguageModelTask.build_tokenizer(recipe, directory)
    tokenizer.save(run.tokenizer)
    torch.manual_seed(0)
    Trainer(LanguageModelTask(recipe, tokenizer, directory, torch.device("cpu")), run, recipe.loop).fit(
        lambda line: None
    )
    return run


@pytest.fixture(scope="module", params=COMPONENTS)
def run(directory: Path, request: pytest.FixtureRequest) -> RunDirectory:
    return _trained(directory, request.param, torchscript=True)


@pytest.fixture(scope="module")
def bundle(run: RunDirectory, directory: Path) -> Path:
    return export_run(run, directory / "models", directory).path


@pytest.fixture(scope="module")
def model(bundle: Path) -> LanguageModel:
    return load_bundle(bundle, threads=1)


@pytest.fixture(scope="module")
def document(directory: Path) -> str:
    """The first document of the test split: 12 lines, 36 words."""
    return "\n".join((directory / "test.txt").read_text().splitlines()[:12])


def _values(score: Any) -> list[float]:
    return [token.log_probability for token in score.tokens]


def _evaluated(run: RunDirectory, directory: Path) -> float:
    task = load_trained(run, directory, "cpu")
    assert isinstance(task, LanguageModelTask)
    return task.evaluate(task.batches("test")).value


def test_the_bundle_has_the_perplexity_of_the_run(
    run: RunDirectory, bundle: Path, model: LanguageModel, directory: Path
) -> None:
    assert validate(bundle) == []
    expected = _evaluated(run, directory)
    (stated,) = (each.value for each in model.manifest.quality if each.split == "test")
    lines = (directory / "test.txt").read_text().splitlines()
    assert stated == pytest.approx(expected, rel=1e-3)
    for backend in ("onnx", "torchscript"):
        loaded = load_bundle(bundle, backend=backend, threads=1)
        assert bundle_perplexity(loaded, lines, stream=True).value == pytest.approx(expected, rel=1e-3)


def test_the_manifest_and_the_card_name_the_components(bundle: Path, model: LanguageModel) -> None:
    layer = model.manifest.output_layer
    first, second = layer.components
    wanted = COMPONENTS[first.name]
    assert (first.window, first.weight) == (WINDOW, wanted.get("weight"))
    assert first.hyperparameters == ({"theta": 0.5} if first.name == "cache" else {})
    assert (second.name, second.window, second.weight) == ("unigram", None, None)
    assert layer.names == ("lin", first.name, "unigram")
    assert layer.window == WINDOW
    shown = "(theta = 0.5, window = 12, weight = 0.3)" if first.name == "cache" else "(window = 12) of learnt weight"
    assert f"`{first.name}` {shown}" in (bundle / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize("name", ["window", "weight"])
def test_a_component_out_of_range_is_refused(bundle: Path, name: str, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(bundle, tmp_path / bundle.parent.name / bundle.name))
    content = json.loads((copied / "manifest.json").read_text())
    content["softmax"]["components"][0][name] = 0
    (copied / "manifest.json").write_text(json.dumps(content))
    assert any(f"softmax.components.0.{name}" in problem for problem in validate(copied))


def test_a_text_alone_has_the_answers_that_it_has_in_a_batch(model: LanguageModel, document: str) -> None:
    texts = [document, "name1 likes name1 likes name1", "name3", document[:60]]
    together = model.score(texts, lines=True)
    for text, score in zip(texts, together, strict=True):
        (alone,) = model.score([text], lines=True)
        assert _values(score) == pytest.approx(_values(alone), abs=1e-4)
    contexts = [text.replace("\n", " ") for text in texts]
    for context, found in zip(contexts, model.next_words(contexts, 5), strict=True):
        (one,) = model.next_words([context], 5)
        assert [each.weight for each in found.components] == pytest.approx([each.weight for each in one.components])
        assert [each.log_probability for each in found.words] == pytest.approx(
            [each.log_probability for each in one.words], abs=1e-4
        )


def test_the_ways_to_a_position_agree(bundle: Path, model: LanguageModel, document: str) -> None:
    """`score` in windows, `explain` by single steps, continued prefixes, and prefixes of the cache."""
    (scored,), (explained,) = (model.score([document], lines=True, explain=explain) for explain in (0, 2))
    assert _values(explained) == pytest.approx(_values(scored), abs=1e-4)
    words = document.replace("\n", " ").split()
    (whole,) = model.next_words([" ".join(words)], 3)
    (result,) = model.next_words([words[0]], 3)
    for word in words[1:]:
        (result,) = model.next_words([word], 3, after=[result.prefix])
    assert result.entropy == pytest.approx(whole.entropy, abs=1e-4)
    assert result.prefix.words is not None
    assert len(result.prefix.words) == WINDOW
    cached = load_bundle(bundle, threads=1)
    cached.use_cache(1 << 20)
    for count in (20, 34, len(words)):
        (found,) = cached.next_words([" ".join(words[:count])], 3)
        cached.result(cached.next_words_query(" ".join(words[:count]), 3), [found])
    assert found.entropy == pytest.approx(whole.entropy, abs=1e-4)
    for text in (document, document + " name1", document + " name2\nname1"):
        expected, got = (each.score([text], lines=True)[0] for each in (model, cached))
        assert _values(got) == pytest.approx(_values(expected), abs=1e-4)


def test_a_document_is_more_probable_than_its_lines(model: LanguageModel, directory: Path) -> None:
    """The perplexity falls where the words of earlier lines are seen."""
    lines = (directory / "test.txt").read_text().splitlines()
    documents = ["\n".join(lines[start : start + 12]) for start in range(0, len(lines), 12)]
    values = {
        name: [value for score in model.score(texts, lines=name == "documents") for value in _values(score)]
        for name, texts in {"documents": documents, "lines": lines}.items()
    }
    assert len(values["documents"]) == len(values["lines"])
    perplexity = {name: math.exp(-math.fsum(each) / len(each)) for name, each in values.items()}
    assert perplexity["documents"] < 0.9 * perplexity["lines"]


def test_states_of_large_texts_are_computed_in_parts(
    model: LanguageModel, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [document, *("name1 likes " * count for count in range(1, 6))]
    expected = model.score(texts, lines=True)
    words = model.next_words([text.replace("\n", " ") for text in texts], 3)
    monkeypatch.setattr("models.tasks.language_state._HELD_BYTES", 2 * 4 * WINDOW * 16)
    for one, other in zip(expected, model.score(texts, lines=True), strict=True):
        assert _values(other) == pytest.approx(_values(one), abs=1e-4)
    found = model.next_words([text.replace("\n", " ") for text in texts], 3)
    assert [each.entropy for each in found] == pytest.approx([each.entropy for each in words], abs=1e-4)


def test_the_service_answers_as_the_run(run: RunDirectory, bundle: Path, directory: Path, document: str) -> None:
    settings = Settings(threads=1, model_dirs=(bundle.parents[1],), models=(bundle.parent.name,))
    text = (directory / "test.txt").read_text()
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        answer = client.post("/v1/score", json={"text": text, "lines": True, "model": bundle.parent.name}).json()
        assert answer["results"][0]["perplexity"] == pytest.approx(_evaluated(run, directory), rel=1e-3)
        body = {"context": document.replace("\n", " "), "explain": True, "model": bundle.parent.name}
        (words,) = client.post("/v1/next-word", json=body).json()["results"]
        names = [each["kernel"] for each in words["components"]]
        assert names[0] == "lin"
        assert names[1] in COMPONENTS
        assert math.fsum(each["weight"] for each in words["components"]) == pytest.approx(1)
        if names[1] == "cache":
            assert words["components"][1]["weight"] == pytest.approx(0.3)
        (first,) = client.post("/v1/next-word", json={**body, "context": ""}).json()["results"]
        assert first["components"][1]["weight"] == 0  # no word is read yet
        listed = client.get("/v1/models").json()["models"]
        assert ["lin", names[1], "unigram"] in [each["kernels"] for each in listed]


def test_a_cache_is_added_to_trained_weights_in_int8(directory: Path) -> None:
    run = _trained(directory, "cache")
    kernels = json.dumps(["lin", COMPONENTS["cache"] | {"theta": 1.0, "weight": 0.4}, "unigram"])
    overrides = [f"output_layer.kernels={kernels}", "export.quantization=int8", "export.version=2"]
    exported = export_run(run, directory / "models", directory, overrides=overrides)
    model = load_bundle(exported.path, threads=1)
    (cache, _) = model.manifest.output_layer.components
    assert (cache.hyperparameters, cache.weight) == ({"theta": 1.0}, 0.4)
    task = load_trained(run, directory, "cpu", overrides[:1])
    lines = (directory / "test.txt").read_text().splitlines()
    measured = bundle_perplexity(model, lines, stream=True).value
    assert measured == pytest.approx(task.evaluate(task.batches("test")).value, rel=2e-2)
    with pytest.raises(ValueError, match=r"only fields of export and output_layer.kernels can be set"):
        export_run(run, directory / "models", directory, overrides=["seed=2"])


def test_other_trained_components_cannot_be_exchanged(run: RunDirectory, directory: Path) -> None:
    with pytest.raises(ValueError, match="the parameters are those of a layer with kernels"):
        export_run(run, directory / "other", directory, overrides=["output_layer.kernels=pow"])
