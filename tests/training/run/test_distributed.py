"""Tests of training in two processes: the loss curve is that of one, whatever stands in a batch."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import distributed, nn

from training.data.batching import Batch
from training.data.corpora import CORPORA
from training.data.corpus import Corpus
from training.data.pair_batching import PairBatches
from training.recipe import Recipe
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.distributed import Group, joined
from training.run.loop import Trainer
from training.run.session import open_task, start_run

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]
LOOP = {"epochs": 2, "learning_rate": 1e-2, "warmup_steps": 5, "precision": "float32"}
WORDS = {"task": "language-model", "network": {"hidden_size": 16, "num_layers": 1, "dropout": 0.0}}
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "sentences": {
        **WORDS,
        "data": {"corpus": "toy", "batch_tokens": 20, "limit": 50},
        "output_layer": {"kernels": "lin, pow", "variance_penalty": 0.1},
    },
    # Three streams, of which one process has two and the other one; the last ends in a window without targets.
    "streams": {
        **WORDS,
        "data": {"corpus": "toy", "context": "stream", "stream_steps": 5, "batch_tokens": 15, "limit": 40},
    },
    "pairs": {
        "task": "translation",
        "data": {"corpus": "numerals", "source": "de", "target": "en", "vocab_size": 300, "limit": 40,
                 "batch_tokens": 30},
        "network": {"hidden_size": 16, "inner_size": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1,
                    "dropout": 0.0},
        "output_layer": {"kernels": "lin", "label_smoothing": 0.1},
    },
    # What dropout drops is another thing in each process.
    "dropout": {
        **WORDS,
        "network": {"hidden_size": 16, "num_layers": 1, "dropout": 0.5},
        "data": {"corpus": "toy", "context": "stream", "stream_steps": 5, "batch_tokens": 20, "limit": 30},
    },
}  # fmt: skip
"""All have batches with fewer rows than processes, except those of streams."""

LAUNCHER = """
import contextlib, pickle, sys
from pathlib import Path
import torch
import torch._dynamo  # by optimizers anyway
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from training import cli
from training.run import session
from training.data.corpora import CORPORA
from training.run.distributed import joined

here, data_dir = Path(sys.argv[1]), sys.argv[2]

def work():
    with joined(torch.device("cpu")) as joint:  # once, since a process group cannot be opened again
        session.joined = lambda device: contextlib.nullcontext(joint)
        for name, runs, *flags in pickle.loads((here / "calls").read_bytes()):
            sys.argv = ["", "run", f"{here / name}.yaml", "--data-dir", data_dir, "--runs", str(here / runs), *flags]
            try:
                cli.main()
            except SystemExit as ended:
                assert not ended.code, ended.code

torch.set_num_threads(1)
CORPORA.update(pickle.loads((here / "corpora").read_bytes()))
elastic_launch(
    LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, start_method="fork",
        run_id="test", rdzv_backend="c10d", rdzv_endpoint="localhost:0",
    ),
    work,
)()
"""
"""What `torchrun --standalone --nproc-per-node 2` does, but the processes are forked, after torch was imported."""

THREADS = """
import torch
from pathlib import Path
from training.run.distributed import joined

def names():
    return [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]

with joined(torch.device("cpu")) as (group, _):
    import torch._dynamo  # as optimizers do
    assert group.gathered(1) == [1, 1]
    assert any("gloo" in name for name in names()), names()
assert not any("gloo" in name for name in names()), names()
"""
"""A process of two that exits with an error where a thread of the group is left."""


def _recipe(name: str) -> Recipe:
    """With dropout there is a checkpoint after each step, in which all processes take part."""
    minutes = {"checkpoint_minutes": 1e-9} if name == "dropout" else {}
    return parse_recipe({"name": name, "loop": {**LOOP, **minutes}, **RECIPES[name]})


def _history(run: Path) -> list[tuple[int, float, float]]:
    history = json.loads((run / "history.json").read_text(encoding="utf-8"))
    return [(each["step"], each["train_loss"], each["metric"]) for each in history]


@pytest.fixture(scope="module")
def two(
    tiny_corpus: Corpus, pairs_corpus: Corpus, tiny_data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Runs of two processes: `whole/<recipe>`, and `parts/<recipe>` with a stop inside the second epoch."""
    if not (distributed.is_available() and distributed.is_gloo_available()):
        pytest.skip("this build of torch has no gloo")
    here = tmp_path_factory.mktemp("two")
    for name in RECIPES:
        (here / f"{name}.yaml").write_text(yaml.safe_dump(_recipe(name).model_dump()), encoding="utf-8")
    calls = [(name, "whole") for name in RECIPES]
    calls += [("dropout", "parts", "--stop-after", "9"), ("dropout", "parts")]
    (here / "calls").write_bytes(pickle.dumps(calls))
    (here / "corpora").write_bytes(pickle.dumps({name: CORPORA[name] for name in ("toy", "numerals")}))
    finished = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(here), str(tiny_data_dir)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    (here / "output").write_text(finished.stdout, encoding="utf-8")
    return here


# ---- two processes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sentences", "streams", "pairs"])
def test_the_loss_curve_is_that_of_one_process(name: str, two: Path, tiny_data_dir: Path, tmp_path: Path) -> None:
    recipe, run = _recipe(name), RunDirectory(tmp_path)
    start_run(recipe, run, tiny_data_dir)
    torch.manual_seed(recipe.seed)
    Trainer(open_task(recipe, run, tiny_data_dir, CPU), run, recipe.loop).fit(lambda line: None)
    alone, together = _history(tmp_path), _history(two / "whole" / name)
    assert [step for step, _, _ in together] == [step for step, _, _ in alone]
    assert alone[0][0] > 5
    for (_, loss, metric), (_, other_loss, other_metric) in zip(alone, together, strict=True):
        assert other_loss == pytest.approx(loss, rel=1e-5)
        assert other_metric == pytest.approx(metric, rel=1e-4)


def test_resuming_is_exact(two: Path) -> None:
    """With dropout and recurrent states, which differ from process to process."""
    assert _history(two / "parts" / "dropout") == _history(two / "whole" / "dropout")
    first, second = (torch.load(two / runs / "dropout" / "last.pt", weights_only=True) for runs in ("parts", "whole"))
    assert all(torch.equal(first["model"][name], value) for name, value in second["model"].items())
    for state, other in zip((first, *first["others"]), (second, *second["others"]), strict=True):
        assert torch.equal(state["task"]["hidden"], other["task"]["hidden"])
        assert torch.equal(state["random"]["torch"], other["random"]["torch"])
    assert not torch.equal(first["random"]["torch"], first["others"][0]["random"]["torch"])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.skipif(not (distributed.is_available() and distributed.is_gloo_available()), reason="needs gloo")
def test_the_threads_of_a_group_end_with_it(tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text(THREADS, encoding="utf-8")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "threads.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, *launch], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_only_the_first_process_writes_and_reports(two: Path) -> None:
    lines = (two / "output").read_text(encoding="utf-8").splitlines()
    for name in ("sentences", "streams", "pairs"):
        own = [line for line in lines if line.startswith(f"{name}: ")]
        assert len(own) == 2
        assert own[0].endswith("preparing the data")
        assert "M parameters" in own[1]
        assert len(list((two / "whole" / name).glob("events.*"))) == 1
    assert sum("resuming at epoch" in line for line in lines) == 1


@pytest.mark.parametrize("name", ["dropout", "sentences"])
def test_a_run_goes_on_with_another_number_of_processes(
    name: str, two: Path, tiny_data_dir: Path, tmp_path: Path
) -> None:
    """The recurrent state is lost, since it is that of every other row; the report says that it is not exact."""
    recipe, run = _recipe(name), RunDirectory(tmp_path / name)
    shutil.copytree(two / "whole" / name, run.path)
    before = _history(run.path)
    lines: list[str] = []
    task = open_task(recipe, run, tiny_data_dir, CPU)
    Trainer(task, run, recipe.loop.model_copy(update={"epochs": 3})).fit(lines.append)
    assert lines[0].startswith("resuming at epoch 3 of 3, step ")
    assert lines[0].endswith(", not exactly: in 1 instead of 2 processes")
    assert _history(run.path)[:2] == before
    assert _history(run.path)[2][1] < before[0][1]
    assert torch.load(run.last, weights_only=True)["others"] == []


def test_processes_that_are_added_draw_from_the_seed(tiny_data_dir: Path, tiny_corpus: Corpus, tmp_path: Path) -> None:
    recipe, run = _recipe("dropout"), RunDirectory(tmp_path)
    start_run(recipe, run, tiny_data_dir)
    Trainer(open_task(recipe, run, tiny_data_dir, CPU), run, recipe.loop).fit(lambda line: None, stop_after=1)
    states = []
    for rank in range(3):
        task = open_task(recipe, run, tiny_data_dir, CPU)
        trainer = Trainer(task, run, recipe.loop, Group(rank, 3))
        assert trainer._load() == 1
        assert task.state_dict() == {}
        states.append(torch.get_rng_state())
    assert torch.equal(states[0], torch.load(run.last, weights_only=True)["random"]["torch"])
    assert torch.equal(states[1], torch.Generator().manual_seed(recipe.seed + 1).get_state())
    assert not torch.equal(states[1], states[2])


# ---- shares -----------------------------------------------------------------------------------------------


def test_shares_by_hand() -> None:
    batch = Batch(torch.arange(5)[:, None], torch.arange(5, 10)[:, None], continues=True)
    first, second = (Group(rank, 2).share(batch) for rank in range(2))
    assert first is not None
    assert second is not None
    assert (first.inputs.flatten().tolist(), first.targets.flatten().tolist()) == ([0, 2, 4], [5, 7, 9])
    assert (second.inputs.flatten().tolist(), second.targets.flatten().tolist()) == ([1, 3], [6, 8])
    assert first.continues
    assert second.continues


def test_every_tensor_of_a_pair_batch_is_shared() -> None:
    (batch,) = PairBatches([([1], [2, 3]), ([4, 5], [6]), ([7], [8])], end_id=9, batch_tokens=99).epoch(0)
    shares = [Group(rank, 4).share(batch) for rank in range(4)]
    assert shares[3] is None
    assert [share.indices.tolist() for share in shares if share is not None] == [[each] for each in batch.indices]
    assert [share.targets.tolist() for share in shares if share is not None] == [
        [row] for row in batch.targets.tolist()
    ]
    assert [share.source_lengths.tolist() for share in shares[:3] if share] == [[n] for n in batch.source_lengths]


def test_one_process_does_nothing_but_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    with joined(CPU) as (group, device):
        assert (group, device) == (Group(), CPU)
        assert not distributed.is_initialized()
    batch = object()
    assert group.is_first
    assert group.share(batch) is batch
    assert (group.summed(3), group.from_first("a"), group.gathered("a")) == (3, "a", ["a"])
    parameter = nn.Parameter(torch.ones(1))
    group.sum_gradients([parameter])
    assert parameter.grad is None


@pytest.mark.parametrize(
    ("device", "said"),
    [("cuda:1", "device cuda:1 would be shared by several processes"), ("cuda", "there are 1 GPUs, too few")],
)
def test_processes_do_not_share_a_gpu(device: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=said), joined(torch.device(device)):
        pass
