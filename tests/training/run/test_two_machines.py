"""`torchrun` on two machines: the loss curve is that of one process."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from torch import distributed

from tests.fixtures.machines import Network, lacking

ROOT = Path(__file__).parents[3]
RECIPE = {
    "name": "two",
    "task": "language-model",
    "data": {"files": {"train": "text.txt"}, "min_count": 1, "batch_tokens": 40},
    "network": {"hidden_size": 16, "num_layers": 1, "dropout": 0.0},
    "output_layer": {"kernels": "lin, log"},
    "loop": {"epochs": 2, "learning_rate": 0.01, "precision": "float32"},
}

_LACKING = lacking()


def _history(runs: Path) -> Sequence[tuple[float, float]]:
    found = json.loads((runs / "two" / "history.json").read_text(encoding="utf-8"))
    return [(each["train_loss"], each["metric"]) for each in found]


@pytest.mark.skipif(_LACKING is not None, reason=str(_LACKING))
@pytest.mark.skipif(not (distributed.is_available() and distributed.is_gloo_available()), reason="needs gloo")
def test_two_machines_train_like_one_process(tmp_path: Path) -> None:
    verbs = {"dog": "barks", "cat": "sleeps", "bird": "sings", "horse": "runs"}
    words = itertools.product(("big", "old", "small", "young"), verbs, ("here", "there", "today", "at home", "again"))
    lines = [f"the {size} {animal} {verbs[animal]} {place}" for size, animal, place in words]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = tmp_path / "two.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    run = ["-m", "training.cli", "run", recipe, "--data-dir", tmp_path, "--threads", 1, "--runs"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with Network(tmp_path / "machines") as network:
        first, _ = network.machines
        processes = [
            machine.start(
                *[sys.executable, "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1],
                *["--node-rank", rank, "--master-addr", first.address, "--master-port", 29500, *run, tmp_path / "both"],
                environment={**environment, "GLOO_SOCKET_IFNAME": machine.interface},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for rank, machine in enumerate(network.machines)
        ]
        alone = [sys.executable, *map(str, run), str(tmp_path / "alone")]
        subprocess.run(alone, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=200)
        outputs = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    for found, expected in zip(_history(tmp_path / "both"), _history(tmp_path / "alone"), strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
