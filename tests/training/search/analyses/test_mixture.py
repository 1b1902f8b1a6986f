"""Tests of the look into mixtures: hand-computed responsibilities, sums, streams, the command."""

import csv
import math
import re
from pathlib import Path

import pytest
import torch

from training.cli.analyses import mixture as command
from training.data.batching import IGNORED
from training.recipe import Recipe
from training.run.directory import RunDirectory
from training.run.session import load_trained
from training.search.analyses.mixture import (
    Shares,
    component_rows,
    mixture_shares,
    responsibilities,
    top_words,
    word_rows,
)
from training.softmax import GeneralizedSoftmax
from training.softmax.mixture import parse_kernels
from training.tasks.evaluation import evaluate_batches
from training.tasks.language_model import LanguageModelTask
from training.tasks.language_model.task import EFFECTIVE_COMPONENTS, WEIGHT_VARIANCE


@pytest.fixture(scope="module")
def task(tiny_run: RunDirectory, tiny_data_dir: Path) -> LanguageModelTask:
    return load_trained(tiny_run, tiny_data_dir, "cpu")


@pytest.fixture(scope="module")
def shares(task: LanguageModelTask) -> Shares:
    return mixture_shares(task, task.batches("dev"))


def test_responsibilities_by_hand() -> None:
    """With `h_2 = 0` the second component is uniform over the two words; both have prior weight 1/2."""
    layer = GeneralizedSoftmax(2, 1, "2*lin")
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0], [1.0]]))
        layer.projections.copy_(torch.tensor([[[math.atanh(0.5)]], [[0.0]]]))
    found = responsibilities(layer, torch.tensor([[1.0], [1.0]]), torch.tensor([0, 1]))
    first = 1 / (1 + math.exp(0.5))  # of word 0 under the first component
    expected = [[first, 0.5], [1 - first, 0.5]]
    torch.testing.assert_close(found, torch.tensor([[a / (a + b), b / (a + b)] for a, b in expected]))


@pytest.mark.parametrize("sparse_k", [None, 2])
def test_responsibilities_are_parts_of_the_probability(sparse_k: int | None) -> None:
    torch.manual_seed(1)
    layer = GeneralizedSoftmax(7, 4, "lin, log, pow", sparse_k=sparse_k)
    torch.nn.init.normal_(layer.prior)
    hidden, target = torch.randn(20, 4), torch.randint(7, (20,))
    found = responsibilities(layer, hidden, target)
    torch.testing.assert_close(found.sum(-1), torch.ones(20))
    if sparse_k is None:
        parts = [score.log_softmax(-1).gather(1, target[:, None])[:, 0] for score in layer.scores(hidden)]
        joint = layer.mixture_weights(hidden) * torch.stack(parts, dim=-1).exp()
        torch.testing.assert_close(found, joint / joint.sum(-1, keepdim=True))


def test_every_word_counts_once(task: LanguageModelTask, shares: Shares) -> None:
    assert int(shares.counts.sum()) == sum(
        int((batch.targets != IGNORED).sum()) for batch in task.batches("dev").epoch(0)
    )
    assert int(shares.counts[task.tokenizer.end_id]) == 61  # the split's sentences
    for part in (shares.priors, shares.responsibilities):
        torch.testing.assert_close(part.sum(-1), shares.counts, rtol=1e-5, atol=1e-5)
    assert shares.kernels == [spec["name"] for spec in parse_kernels(task.recipe.output_layer.kernels)]


def test_sums_are_those_of_the_positions(task: LanguageModelTask, shares: Shares) -> None:
    layer, token = task.model.output_layer, task.tokenizer.end_id
    total = torch.zeros(len(shares.kernels), dtype=torch.float64)
    for _, (hidden, target) in evaluate_batches(task.model, task.batches("dev"), task.context_vectors):
        total += layer.mixture_weights(hidden[target == token]).double().sum(0)
    torch.testing.assert_close(shares.priors[token], total)


def test_positions_are_those_of_the_metric_in_streams_too(tiny_recipe: Recipe, task: LanguageModelTask) -> None:
    data = tiny_recipe.data.model_copy(update={"context": "stream", "stream_steps": 7})
    stream = LanguageModelTask(
        tiny_recipe.model_copy(update={"data": data}), task.tokenizer, task.data_dir, torch.device("cpu")
    )
    stream.model.load_state_dict(task.model.state_dict())
    stream.model.eval().requires_grad_(False)
    total = 0.0
    for _, (hidden, target) in evaluate_batches(stream.model, stream.batches("dev"), stream.context_vectors):
        total += float(stream.model.output_layer.target_log_prob(hidden, target).double().sum())
    assert total == pytest.approx(stream.evaluate(stream.batches("dev")).log_probability)


@pytest.fixture
def by_hand() -> Shares:
    counts = torch.tensor([2.0, 0.0, 10.0, 4.0], dtype=torch.float64)
    parts = torch.tensor([[2.0, 0.0], [0.0, 0.0], [5.0, 5.0], [1.0, 3.0]], dtype=torch.float64)
    variances = torch.tensor([0.5, 0.0, 1.5, 0.4], dtype=torch.float64)
    priors = parts.flip(1)
    return Shares(kernels=["lin", "log"], counts=counts, priors=priors, responsibilities=parts, variances=variances)


def test_top_words_are_frequent_enough(by_hand: Shares) -> None:
    assert by_hand.frequent(2) == [2, 3, 0]
    assert top_words(by_hand, 0, min_count=1, count=9) == [(0, 1.0), (2, 0.5), (3, 0.25)]
    assert top_words(by_hand, 0, min_count=3, count=1) == [(2, 0.5)]
    assert top_words(by_hand, 1, min_count=3, count=9) == [(3, 0.75), (2, 0.5)]


def test_tables_by_hand(by_hand: Shares, task: LanguageModelTask) -> None:
    words = [task.tokenizer.word(token) for token in range(4)]
    rows = component_rows(by_hand, task, min_count=3, words=1)
    assert rows.rows == [(1, "lin", 0.5, 0.5, f"{words[2]} 0.5"), (2, "log", 0.5, 0.5, f"{words[3]} 0.75")]
    rows = word_rows(by_hand, task, min_count=4)
    assert rows.columns == [
        "word",
        "count",
        "prior 1 lin",
        "prior 2 log",
        "responsibility 1 lin",
        "responsibility 2 log",
    ]
    assert rows.rows == [(words[2], 10, 0.5, 0.5, 0.5, 0.5), (words[3], 4, 0.75, 0.25, 0.25, 0.75)]


def test_mean_variance_by_hand(by_hand: Shares) -> None:
    assert by_hand.mean_variance() == pytest.approx(2.4 / 16)


def test_the_mean_variance_is_that_of_evaluate(task: LanguageModelTask, shares: Shares) -> None:
    usage = task.mixture_usage(task.batches("dev"))
    variance, effective = usage[WEIGHT_VARIANCE], usage[EFFECTIVE_COMPONENTS]
    assert shares.mean_variance() == pytest.approx(variance)
    mean = (shares.priors.sum(0) / shares.counts.sum()).tolist()
    assert effective == pytest.approx(math.prod(weight**-weight for weight in mean))
    lines = task.report("dev")
    assert f"mean variance of the mixture weights over the components {variance:.4g}" in lines
    assert f"effective components {effective:.2f}" in lines
    assert task.measure("dev").metrics.keys() == {"perplexity", WEIGHT_VARIANCE, EFFECTIVE_COMPONENTS}


def test_a_single_kernel_is_an_error(tiny_recipe: Recipe, task: LanguageModelTask) -> None:
    layer = tiny_recipe.output_layer.model_copy(update={"kernels": "log"})
    single = LanguageModelTask(
        tiny_recipe.model_copy(update={"output_layer": layer}), task.tokenizer, task.data_dir, torch.device("cpu")
    )
    assert len(single.report("dev")) == 1
    with pytest.raises(ValueError, match="toy has the single kernel 'log', so there is no mixture"):
        mixture_shares(single, single.batches("dev"))


def test_the_command_writes_tables(
    tiny_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tiny_run.path, "test", tiny_data_dir, min_count=5, output=tmp_path, device="cpu") == 0
    with (tmp_path / "components.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["kernel"] for line in lines] == [
        spec["name"] for spec in parse_kernels(tiny_run.recipe().output_layer.kernels)
    ]
    assert math.isclose(sum(float(line["prior"]) for line in lines), 1.0, rel_tol=1e-5)
    assert len((tmp_path / "words.csv").read_text().splitlines()) > 10
    printed = capsys.readouterr().out
    assert "toy on test" in printed
    assert re.search(r"mean variance of the mixture weights over the components: 0\.\d+\n", printed)
    with pytest.raises(ValueError, match="has no split 'tset'"):
        command(tiny_run.path, "tset", tiny_data_dir, output=tmp_path, device="cpu")
