"""Tests of causal language models that start from a pretrained one: the same at first, and what learns of them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from tests.support.causal_directory import write_causal
from tests.support.marian_directory import SENTENCES
from tests.training.importing.conftest import import_directory
from tests.training.tasks.causal_language_model.conftest import RECIPE
from training.bundling.verify import TOLERANCE
from training.importing.samples import Samples
from training.networks.lora import LoraLinear, adapt, merged
from training.networks.pretrained_causal import read_pretrained
from training.recipe.loading import parse_recipe
from training.run import checkpoint
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.session import load_trained, open_task, start_run, train
from training.tasks.causal_language_model.reading import joined_tokens
from training.tasks.causal_language_model.settings import CausalLanguageModelRecipe
from training.tasks.causal_language_model.task import CausalLanguageModelTask

CPU = torch.device("cpu")
GPT2, LLAMA, GEMMA = "GPT2LMHeadModel", "LlamaForCausalLM", "Gemma2ForCausalLM"
TIED = {GPT2: True, LLAMA: False, GEMMA: True}

Written = Callable[[str], Path]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return a function that makes a directory, or returns the one that was made, which is not to be changed."""
    made: dict[str, Path] = {}

    def make(architecture: str) -> Path:
        if architecture not in made:
            directory = tmp_path_factory.mktemp("hub") / architecture.lower()
            made[architecture] = write_causal(directory, architecture)
        return made[architecture]

    return make


def _recipe(directory: Path, **sections: dict[str, Any]) -> CausalLanguageModelRecipe:
    network = {"pretrained": str(directory), "positions": 64} | sections.pop("network", {})
    data = {name: each for name, each in RECIPE["data"].items() if name != "vocab_size"} | sections.pop("data", {})
    recipe = parse_recipe(RECIPE | {"data": data, "network": network} | sections)
    assert isinstance(recipe, CausalLanguageModelRecipe)
    return recipe


def _started(recipe: CausalLanguageModelRecipe, run: Path, data_dir: Path) -> CausalLanguageModelTask:
    start_run(recipe, RunDirectory(run), data_dir)
    task = open_task(recipe, RunDirectory(run), data_dir, CPU)
    assert isinstance(task, CausalLanguageModelTask)
    task.initialize()
    return task


# ---- before training ----


@pytest.mark.parametrize("architecture", [GPT2, LLAMA, GEMMA])
@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_before_training_it_is_the_imported_model(
    architecture: str, context: str, written: Written, counting: Path, tmp_path: Path
) -> None:
    recipe = _recipe(written(architecture), network={"tied": TIED[architecture]}, data={"context": context})
    task = _started(recipe, tmp_path / "run", counting)
    samples = Samples(SENTENCES, "")
    bundle = import_directory(written(architecture), tmp_path, samples, name="original", description="").path
    model = load_bundle(bundle, threads=1)
    assert isinstance(model, CausalLanguageModel)
    expected = CausalLanguageModelTask.measure_bundle(model, recipe, "dev", counting)["bits_per_byte"]
    assert task.evaluate(task.batches("dev")).value == pytest.approx(expected, abs=1e-4)


def test_corrections_change_nothing_at_first(written: Written, counting: Path, tmp_path: Path) -> None:
    trained, adapted = (
        _started(_recipe(written(GPT2), network={"body": body}), tmp_path / body, counting)
        for body in ("trained", "lora")
    )
    batch = next(iter(trained.batches("dev").epoch(0)))
    with torch.no_grad():
        found, expected = (task.model.eval()(batch.inputs) for task in (adapted, trained))
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("layer", "matrices"),
    [({"kernels": [{"name": "pow", "p": 1.5}]}, 1), ({"kernels": "2*lin", "untied": "full"}, 2)],
)
def test_other_kernels_start_from_the_output_matrix(
    layer: dict[str, Any], matrices: int, written: Written, counting: Path, tmp_path: Path
) -> None:
    recipe = _recipe(written(LLAMA), network={"tied": False}, output_layer=layer)
    task = _started(recipe, tmp_path / "run", counting)
    expected = read_pretrained(str(written(LLAMA))).head.linear.weight
    found = task.model.output_layer.class_weights()
    assert [torch.equal(each, expected) for each in found] == [True] * matrices


def test_variances_are_not_taken_from_the_output_matrix_unless_they_are_tied(
    written: Written, counting: Path, tmp_path: Path
) -> None:
    """Half of the columns are log-variances of the kernel `mog` with one Gaussian; the tokens' vectors stay."""
    own = read_pretrained(str(written(GPT2))).network.embedding.weight
    kernels = {"kernels": "mog"}
    free = _started(_recipe(written(GPT2), network={"tied": False}, output_layer=kernels), tmp_path / "free", counting)
    assert torch.equal(free.model.network.embedding.weight, own)
    assert 0 < int((free.model.output_layer.weight == 0).all(0).sum()) < own.shape[1]
    tied = _started(_recipe(written(GPT2), output_layer=kernels), tmp_path / "tied", counting)
    assert torch.equal(tied.model.network.embedding.weight, own)


def test_tokens_of_documents_are_those_of_the_joined_text(written: Written) -> None:
    """Llama's vocabulary puts a space before each text; encoded line by line, each line would begin with it."""
    parts = ["We will go.\n", "Where is the station?\n", "naïve\n"]
    for architecture in (GPT2, LLAMA):
        encode = read_pretrained(str(written(architecture))).tokenizer.encode
        assert joined_tokens(encode, parts) == encode("".join(parts))


# ---- training ----


@pytest.mark.parametrize(
    ("architecture", "network", "layer"),
    [
        (GPT2, {"body": "trained"}, "lin"),
        (GPT2, {"body": "lora", "lora_rank": 4}, "lin"),
        (GPT2, {"body": "frozen"}, "2*lin"),
        (LLAMA, {"body": "lora", "tied": False}, "pow"),
        (LLAMA, {"body": "frozen", "tied": False}, "lin"),
    ],
)
def test_a_few_updates_lower_the_loss_of_what_learns(
    architecture: str, network: dict[str, Any], layer: str, written: Written, counting: Path, tmp_path: Path
) -> None:
    """The run can be continued and exported after the pretrained directory is gone."""
    directory = Path(shutil.copytree(written(architecture), tmp_path / "pretrained"))
    loop = RECIPE["loop"] | {"epochs": 1, "warmup_steps": 3, "max_steps": 12, "weight_decay": 0.01}
    recipe = _recipe(directory, network=network, output_layer={"kernels": layer}, loop=loop)
    before = _started(recipe, tmp_path / "started", counting)
    start = before.evaluate(before.batches("dev")).value
    run = RunDirectory(tmp_path / "run")
    train(recipe, run, counting, CPU)
    shutil.rmtree(directory)
    best = train(recipe, run, counting, CPU).best
    assert best is not None
    assert best.metric < start - 0.05

    body, first = network["body"], dict(before.model.named_parameters())
    state = checkpoint.load(run.last, CPU)
    learning = {name for name, each in first.items() if each.requires_grad}
    assert len(state["optimizer"]["state"]) == len(learning)
    changed = {name for name, each in first.items() if not torch.equal(state["model"][name], each)}
    assert changed <= learning
    inside = {name for name in changed if name.startswith("network.")}
    assert bool(inside) == (body != "frozen")
    if body == "lora":
        assert inside == {name for name in first if "lora" in name}
        assert len(inside) == 2 * 2 * (4 + (3 if architecture == LLAMA else 2))

    exported = export_run(run, tmp_path / "bundles", counting)
    assert exported.difference <= TOLERANCE == 1e-4
    task = load_trained(run, counting, "cpu")
    quality = {(each.split, each.metric): each.value for each in exported.manifest.quality}
    assert quality["test", "bits_per_byte"] == pytest.approx(task.measure("test").metrics["bits_per_byte"], abs=2e-4)
    assert "weights of pretrained" in [each.name for each in exported.manifest.provenance.data]
    model = load_bundle(exported.path, threads=1)
    assert isinstance(model, CausalLanguageModel)
    assert model.config.limits.max_tokens == 63
    card = (exported.path / "MODEL_CARD.md").read_text("utf-8")
    assert {"trained": "trained further", "lora": "adapted (LoRA)", "frozen": "kept"}[body] in card


def test_frozen_parameters_get_no_gradient(written: Written, counting: Path, tmp_path: Path) -> None:
    recipe = _recipe(written(GPT2), network={"body": "lora"}, output_layer={"kernels": "lin", "bias": True})
    task = _started(recipe, tmp_path / "run", counting)
    loss, _ = task.loss(next(iter(task.batches("train").epoch(0))))
    loss.backward()
    for name, parameter in task.model.named_parameters():
        learns = "lora" in name or name == "output_layer.bias"
        assert parameter.requires_grad == learns == (parameter.grad is not None), name


def test_merged_corrections_compute_the_same(written: Written) -> None:
    network = read_pretrained(str(written(LLAMA))).network
    assert merged(network) is network
    tokens = torch.randint(400, (2, 9), generator=torch.Generator().manual_seed(0))
    plain = network(tokens)
    torch.manual_seed(0)
    adapt(network, 3, 6.0)
    for module in network.modules():
        if isinstance(module, LoraLinear):
            torch.nn.init.normal_(module.lora_up, std=0.1)
    with torch.no_grad():
        expected, found = network(tokens), merged(network)(tokens)
    assert float((expected - plain).abs().max()) > 0.1
    assert float((found - expected).abs().max()) < 1e-4
    assert not any(isinstance(module, LoraLinear) for module in merged(network).modules())


# ---- what cannot be ----


@pytest.mark.parametrize(
    ("architecture", "network", "message"),
    [
        (GPT2, {"hidden_size": 64}, "hidden_size: 64 is not that of the pretrained network, 48"),
        (GPT2, {"layers": 3}, "layers: 3 is not"),
        (GPT2, {"positions": 128}, "positions: 128 is more than the 64"),
        (LLAMA, {}, "network.tied"),
        (GPT2, {"body": "frozen"}, "leaves nothing to train"),
    ],
)
def test_a_recipe_that_contradicts_the_directory_is_refused(
    architecture: str, network: dict[str, Any], message: str, written: Written, counting: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        _started(_recipe(written(architecture), network=network), tmp_path / "run", counting)


def test_a_directory_of_another_kind_is_refused(counting: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"network\.pretrained: .* is neither a directory"):
        _started(_recipe(tmp_path / "none"), tmp_path / "run", counting)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"architectures": ["BertModel"]}')
    with pytest.raises(ValueError, match=r"network\.pretrained: BertModel is none of the causal language models"):
        _started(_recipe(tmp_path / "bert"), tmp_path / "run", counting)


def test_a_body_without_a_pretrained_network_is_refused() -> None:
    with pytest.raises(ValueError, match="body: lora needs a pretrained network"):
        parse_recipe(RECIPE | {"network": {"body": "lora"}})


def test_a_run_starts_from_a_pretrained_network_or_from_another_run(
    written: Written, counting: Path, tmp_path: Path
) -> None:
    """Weights of a run that was pretrained do not fit those from scratch, even where all sizes are the same."""
    recipe = _recipe(written(GPT2), loop=RECIPE["loop"] | {"max_steps": 1})
    with pytest.raises(ValueError, match=r"initial and network\.pretrained exclude each other"):
        parse_recipe({**recipe.model_dump(mode="json"), "initial": str(tmp_path / "first")})
    train(recipe, RunDirectory(tmp_path / "first"), counting, CPU)
    second = parse_recipe(RECIPE | {"initial": str(tmp_path / "first")})
    with pytest.raises(ValueError, match="started from a pretrained network"):
        start_run(second, RunDirectory(tmp_path / "second"), counting)


def test_lines_in_lower_case_are_added_with_a_pretrained_network(
    written: Written, counting: Path, tmp_path: Path
) -> None:
    plain, more = (
        _started(_recipe(written(GPT2), data={"lower_case": share}), tmp_path / str(share), counting)
        for share in (0.0, 0.5)
    )
    tokens = plain.token_count("train")
    assert 1.4 * tokens < more.token_count("train") < 1.6 * tokens
    assert more.token_count("dev") == plain.token_count("dev")


def test_fields_without_effect_are_named(written: Written) -> None:
    recipe = _recipe(written(GPT2), network={"hidden_size": 48, "lora_rank": 2}, data={"vocab_size": 300})
    assert list(recipe.ineffective_fields()) == [
        "network.hidden_size has no effect with pretrained",
        "network.lora_rank has no effect with body: trained",
        "data.vocab_size has no effect with network.pretrained",
    ]
