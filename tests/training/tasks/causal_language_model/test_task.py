"""Tests of the causal language model task: windows, vocabulary, loss, bits per byte, learning and resuming."""

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.tasks.causal_language_model.conftest import RECIPE
from training.data.batching import IGNORED
from training.data.tokenization import END_OF_TEXT, build_causal_tokenizer
from training.data.window_batching import EncodedTexts, WindowBatches, best_fit
from training.recipe.loading import parse_recipe
from training.run.baselines import read_baselines
from training.run.directory import RunDirectory
from training.run.loop import Trainer
from training.run.session import load_trained, open_task, start_run, train
from training.tasks.causal_language_model.bits import TextBits
from training.tasks.causal_language_model.reading import documents, text_parts
from training.tasks.causal_language_model.settings import CausalLanguageModelRecipe
from training.tasks.causal_language_model.task import CausalLanguageModelTask, build_model
from training.tasks.language_model.kneser_ney import KneserNey

CPU = torch.device("cpu")


def _recipe(**sections: dict[str, Any]) -> CausalLanguageModelRecipe:
    content = RECIPE | {name: RECIPE.get(name, {}) | fields for name, fields in sections.items()}
    recipe = parse_recipe(content)
    assert isinstance(recipe, CausalLanguageModelRecipe)
    return recipe


def _task(directory: Path, **sections: dict[str, Any]) -> CausalLanguageModelTask:
    recipe = _recipe(**sections)
    torch.manual_seed(0)
    tokenizer = CausalLanguageModelTask.build_tokenizer(recipe, directory)
    return CausalLanguageModelTask(recipe, tokenizer, directory, CPU)


# ---- windows ----------------------------------------------------------------------------------------------


def test_a_long_text_is_cut_and_its_last_piece_has_the_end() -> None:
    encoded = EncodedTexts([([5, 6, 7], 9), ([8], 1), ([], 0)], end_id=0, longest=2)
    assert [piece.tolist() for piece in encoded.pieces] == [[5, 6], [7, 0], [8, 0], [0]]
    assert encoded.owners.tolist() == [0, 0, 1, 2]
    assert encoded.sizes.tolist() == [9, 1, 0]


def test_pieces_fill_windows() -> None:
    """Longest first, each where the least room is left: 7 + 3, 6 + 4, 5 + 2 + 2."""
    lengths = [2, 7, 3, 5, 4, 6, 2]
    windows = best_fit(lengths, 10, seed=1)
    assert sorted(itertools.chain.from_iterable(windows)) == list(range(7))
    assert [sorted(lengths[index] for index in window) for window in windows] == [[3, 7], [4, 6], [2, 2, 5]]


def test_too_long_a_piece_fits_no_window() -> None:
    with pytest.raises(ValueError, match="11 tokens, a window 10"):
        best_fit([3, 11], 10, seed=1)


@pytest.mark.parametrize("window", [None, 12])
def test_inputs_are_the_start_and_the_tokens_before_their_targets(window: int | None) -> None:
    generator = random.Random(3)
    texts = [([generator.randrange(1, 50) for _ in range(generator.randrange(20))], 1) for _ in range(40)]
    encoded = EncodedTexts(texts, end_id=0, longest=12)
    batches = WindowBatches(encoded, batch_tokens=48, window=window, seed=2)
    found = []
    for batch in batches.epoch(1):
        assert batch.targets.numel() <= 48
        for row in range(len(batch.targets)):
            numbers = batch.texts[row] if batch.texts is not None else torch.where(batch.targets[row] < 0, -1, 0)
            for number in range(int(numbers.max()) + 1):
                own = numbers == number
                piece = batch.targets[row][own].tolist()
                assert batch.inputs[row][own].tolist() == [0, *piece[:-1]]
                assert batch.places is None or batch.places[row][own].tolist() == list(range(len(piece)))
                found.append(piece)
            assert (batch.targets[row][numbers == -1] == IGNORED).all()
    assert sorted(found) == sorted(piece.tolist() for piece in encoded.pieces)


def test_epochs_are_shuffled_and_repeatable() -> None:
    encoded = EncodedTexts([([number], 1) for number in range(1, 30)], end_id=0, longest=4)
    batches = WindowBatches(encoded, batch_tokens=8, window=4, seed=1)

    def order(epoch: int) -> list[int]:
        return [index for batch in batches.epoch(epoch) for index in batch.indices.tolist()]

    assert order(0) == order(0) != order(1)


# ---- texts and vocabulary ---------------------------------------------------------------------------------


def test_texts_are_unchanged_by_the_vocabulary() -> None:
    tokenizer = build_causal_tokenizer(["Äpfel  und Birnen"] * 3, vocab_size=300)
    text = f" ÄPFEL\tund 🙂 {END_OF_TEXT}"
    tokens = tokenizer.encode(text)
    assert tokenizer.end_id not in tokens
    assert b"".join(bytes(tokenizer.text(token), "utf-8") for token in tokenizer.encode("und Birnen")) == b"und Birnen"
    assert tokenizer.vocab_size <= 300
    with pytest.raises(ValueError, match="vocab_size must be at least 257"):
        build_causal_tokenizer(["a"], vocab_size=256)


def test_lines_make_documents_and_their_tokens_are_those_of_the_joined_text(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("= A =\n  first  line \n\n= = B = =\nmore\n= C =\nlast\n", encoding="utf-8")
    data = _recipe(data={"context": "stream", "document_start": "= [^=]+ =$"}).data
    found = list(documents(data, "train", tmp_path))
    assert found == [["= A =\n", "first  line\n", "= = B = =\n", "more\n"], ["= C =\n", "last\n"]]
    tokenizer = build_causal_tokenizer(["first line more last"] * 2, vocab_size=290)
    parts = [token for part in found[0] for token in tokenizer.encode(part)]
    assert parts == tokenizer.encode("".join(found[0]))
    whole = _recipe(data={"context": "stream"}).data
    assert len(list(documents(whole, "train", tmp_path))) == 1


# ---- network ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
def test_packed_texts_have_the_log_probabilities_that_they_have_alone(counting: Path, training: bool) -> None:
    task = _task(counting, network={"dropout": 0.0})
    model = task.model.train(training)
    encoded = task._encoded("dev")
    alone, packed = {}, {}
    for window, found in ((None, alone), (47, packed)):
        for batch in WindowBatches(encoded, batch_tokens=200, window=window).epoch(0):
            hidden, targets = task.context_vectors(batch)
            values = iter(model.output_layer.target_log_prob(hidden, targets).tolist())
            for row in batch.targets.tolist():
                text: list[int] = []
                for target in (each for each in row if each != IGNORED):
                    text.append(target)
                    found[tuple(text)] = next(values)
                    text = [] if target == encoded.end_id else text
    assert packed.keys() == alone.keys()
    assert len({len(window) for window in best_fit([len(piece) for piece in encoded.pieces], 47, 0)}) > 1
    assert [packed[key] for key in alone] == pytest.approx(list(alone.values()), abs=1e-4)


def test_a_token_sees_nothing_behind_it(counting: Path) -> None:
    model = _task(counting).model.eval()
    tokens = torch.randint(280, (2, 10), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 280
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert (before[:, 6:] - after[:, 6:]).abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize("tied", [True, False])
def test_vectors_are_tied_by_default(tied: bool) -> None:
    recipe = _recipe(network={"tied": tied})
    model = build_model(recipe, recipe.network.of_vocabulary(280))
    assert (model.network.embedding.weight is model.output_layer.weight) == tied


def test_all_parameters_get_gradients(counting: Path) -> None:
    task = _task(counting, output_layer={"kernels": "lin, pow", "bias": True})
    loss, count = task.loss(next(iter(task.batches("train").epoch(0))))
    loss.backward()
    assert count > 0
    for name, parameter in task.model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_packed_windows_have_the_loss_of_their_texts(counting: Path) -> None:
    task = _task(counting, network={"dropout": 0.0}, data={"context": "stream", "document_start": "Null"})
    train = task.batches("train")
    packed = [task.loss(batch) for batch in train.epoch(0)]
    alone = [task.loss(batch) for batch in WindowBatches(train.encoded, batch_tokens=2000).epoch(0)]
    assert sum(count for _, count in packed) == sum(count for _, count in alone) == task.token_count("train")
    assert sum(loss.item() for loss, _ in packed) == pytest.approx(sum(loss.item() for loss, _ in alone), rel=1e-5)


# ---- metric -----------------------------------------------------------------------------------------------


def test_bits_per_byte_by_hand() -> None:
    """Two tokens of probability 1/4 and 1/16 for 3 bytes: 6 bits."""
    result = TextBits(math.log(1 / 64), 2, 3)
    assert (result.value, result.perplexity) == (pytest.approx(2), pytest.approx(8))


@pytest.mark.parametrize("options", [{}, {"sparse_k": 3}, {"alpha": 1.5}, {"kernels": "2*lin"}], ids=str)
def test_the_metric_is_that_of_all_tokens_and_of_the_examples(counting: Path, options: dict[str, Any]) -> None:
    task = _task(counting, output_layer={"label_smoothing": 0.2, **options})
    measurement = task.measure("dev")
    assert measurement.examples is not None
    assert measurement.examples.value == pytest.approx(measurement.metrics[task.metric])
    task.model.output_layer.label_smoothing = 0.0
    losses, counts = zip(*(task.loss(batch) for batch in _plain(task).epoch(0)), strict=True)
    size = sum(len(line.encode()) for line in (counting / "dev.txt").read_text("utf-8").splitlines())
    if "sparse_k" not in options:
        expected = sum(loss.item() for loss in losses) / math.log(2) / size
        assert measurement.metrics[task.metric] == pytest.approx(expected, rel=1e-5)
        assert measurement.metrics["perplexity"] == pytest.approx(math.exp(expected * math.log(2) * size / sum(counts)))
    assert task.evaluate(task.batches("dev")).value == pytest.approx(measurement.metrics[task.metric])
    assert measurement.examples.statistics[:, 1].sum() == size


def _plain(task: CausalLanguageModelTask) -> WindowBatches:
    task.model.eval()
    return task.batches("dev")


def test_a_layer_with_zeros_is_selected_by_another_metric() -> None:
    metric = CausalLanguageModelTask.metric_of
    layers: tuple[dict[str, Any], ...] = ({}, {"sparse_k": 4}, {"alpha": 2.0})
    names = [metric(_recipe(output_layer=layer)) for layer in layers]
    assert len(set(names)) == 3


def test_baselines_are_n_grams_of_tokens(counting: Path) -> None:
    task = _task(counting, network={"positions": 12})  # texts are cut for the network, not for n-grams
    found = {name: metric("dev") for name, metric in task.baselines().items()}
    tokens = {split: [task.tokenizer.encode(text) for text in _lines(counting, split)] for split in ("train", "dev")}
    model = KneserNey(tokens["train"], order=1, vocab_size=task.tokenizer.vocab_size, end_id=0)
    bits = -sum(model.log_probs(text).sum() for text in tokens["dev"]) / math.log(2)
    assert found["unigram"] == pytest.approx(bits / sum(len(line.encode()) for line in _lines(counting, "dev")))
    assert found["Kneser-Ney 5-gram"] < found["unigram"]


def _lines(directory: Path, split: str) -> list[str]:
    return (directory / f"{split}.txt").read_text("utf-8").splitlines()


def test_the_bias_starts_at_the_frequencies(counting: Path) -> None:
    task = _task(counting, output_layer={"bias": True})
    task.initialize()
    bias = task.model.output_layer.bias
    assert bias is not None
    assert bias.exp().sum().item() == pytest.approx(1)
    ends = sum(1 for _ in _lines(counting, "train"))
    total = task.token_count("train") + task.tokenizer.vocab_size
    assert bias[0].exp().item() == pytest.approx((ends + 1) / total, rel=1e-5)


# ---- training ---------------------------------------------------------------------------------------------


def test_it_learns_what_follows(counting: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    recipe = _recipe()
    progress = train(recipe, run, counting, CPU, baselines=True)
    baselines = {each.name: each.dev for each in read_baselines(run)}
    assert progress.best is not None
    assert progress.best.metric < 0.5 * baselines["unigram"]
    task = load_trained(run, counting, "cpu")
    assert task.measure("dev").metrics["bits_per_byte"] == pytest.approx(progress.best.metric)
    assert "bits_per_byte" in task.report("test")[0]


@pytest.mark.parametrize("data", [{}, {"context": "stream", "document_start": "Null"}], ids=["padded", "packed"])
def test_resuming_is_exact(counting: Path, tmp_path: Path, data: dict[str, Any]) -> None:
    recipe = _recipe(data=data, loop={"epochs": 2})
    weights = []
    for name, stops in (("whole", (None,)), ("parts", (3, None))):
        run = RunDirectory(tmp_path / name)
        start_run(recipe, run, counting)
        for stop in stops:
            torch.manual_seed(recipe.seed)
            Trainer(open_task(recipe, run, counting, CPU), run, recipe.loop).fit(lambda line: None, stop)
        weights.append(load_trained(run, counting, "cpu").model.state_dict())
    for name, value in weights[0].items():
        np.testing.assert_array_equal(value.numpy(), weights[1][name].numpy(), err_msg=name)


# ---- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"network": {"hidden_size": 30, "heads": 4}}, "multiple of twice heads"),
        ({"network": {"heads": 2, "key_value_heads": 3}}, "key_value_heads must divide"),
        ({"network": {"positions": 1}}, "positions"),
        ({"data": {"document_start": "("}}, "document_start"),
        ({"data": {"column": "de"}}, "own files are plain text"),
    ],
    ids=str,
)
def test_recipes_that_cannot_be(sections: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _recipe(**sections)


def test_a_vocabulary_needs_the_bytes(counting: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vocab_size must be at least 257"):
        start_run(_recipe(data={"vocab_size": 100}), RunDirectory(tmp_path), counting)


# ---- other beginnings -------------------------------------------------------------------------------------


def test_a_share_of_the_training_lines_comes_again_in_lower_case(counting: Path) -> None:
    plain, data = _recipe().data, _recipe(data={"lower_case": 0.25}).data
    before, lines = list(text_parts(plain, "train", counting)), list(text_parts(data, "train", counting))
    assert lines[:6] == [*before[:4], before[3].lower(), before[4]]
    assert len(lines) == len(before) + len(before) // 4
    assert list(text_parts(data, "dev", counting)) == list(text_parts(plain, "dev", counting))


def _second(counting: Path, tmp_path: Path, **sections: dict[str, Any]) -> CausalLanguageModelRecipe:
    """Train a run for an epoch, and return the recipe of one that starts from it."""
    train(_recipe(loop={"epochs": 1}), RunDirectory(tmp_path / "first"), counting, CPU)
    recipe = parse_recipe({**_recipe(**sections).model_dump(mode="json"), "initial": str(tmp_path / "first")})
    assert isinstance(recipe, CausalLanguageModelRecipe)
    return recipe


def test_a_run_starts_from_the_vocabulary_and_weights_of_another(counting: Path, tmp_path: Path) -> None:
    recipe, second = _second(counting, tmp_path), RunDirectory(tmp_path / "second")
    start_run(recipe, second, counting)
    first = RunDirectory(tmp_path / "first")
    assert second.tokenizer.read_bytes() == first.tokenizer.read_bytes()
    task, trained = open_task(recipe, second, counting, CPU), load_trained(first, counting, "cpu")
    task.initialize()
    assert task.evaluate(task.batches("dev")).value == pytest.approx(trained.evaluate(trained.batches("dev")).value)


def test_another_network_than_that_of_the_initial_run_is_refused(counting: Path, tmp_path: Path) -> None:
    recipe = _second(counting, tmp_path, network={"hidden_size": 16})
    with pytest.raises(ValueError, match="another network or output layer"):
        start_run(recipe, RunDirectory(tmp_path / "second"), counting)
    missing = parse_recipe({**_recipe().model_dump(mode="json"), "initial": str(tmp_path / "nowhere")})
    with pytest.raises(FileNotFoundError, match="no run directory with a finished epoch"):
        start_run(missing, RunDirectory(tmp_path / "third"), counting)
