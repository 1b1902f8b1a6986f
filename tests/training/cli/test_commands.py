"""Tests of commands of `softserve-train` that need no trained model, and of flags that several commands have."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import models
from models.bundle.manifest import MANIFEST
from models.reading import verify
from models.signing import TrustedKey
from tests.training.cli import test_cli
from tests.training.cli.test_cli import Result, Train, _one_line, run_cli
from training.cli import main
from training.data.corpora import CORPORA
from training.data.corpus import Corpus, Source
from training.run.directory import RunDirectory

recipe, train = test_cli.recipe, test_cli.train  # fixtures
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONWARNINGS": ""}


@pytest.mark.parametrize("command", ["run", "evaluate", "tune"])
def test_threads_are_checked(command: str, tmp_path: Path) -> None:
    assert _one_line(run_cli(command, tmp_path, "--threads", 0)).endswith("--threads must be at least 1, not 0")


def test_threads_are_used(train: Train, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    assert train(recipe, "--threads", 1, "--stop-after", 1).code == 0
    assert given == [1]


def test_the_version_is_that_of_the_package() -> None:
    assert run_cli("--version") == Result(0, f"softserve-train {metadata.version('softserve')}")


def test_a_command_says_that_it_starts_before_it_imports_torch(tmp_path: Path) -> None:
    code = "import sys; from training.cli import main; sys.argv = ['softserve-train', 'evaluate', 'nowhere']; main()"
    slow = "import sys; sys.modules['torch'] = None; " + code  # what imports torch ends with an error
    found = subprocess.run([sys.executable, "-c", slow], cwd=tmp_path, env=_ENVIRONMENT, capture_output=True, text=True)
    first, second = found.stderr.splitlines()
    assert first == "softserve-train evaluate: starting"
    assert second == "softserve-train: torch is not installed; training needs it: pip install 'softserve[train]'"


def test_warnings_are_one_line_each_and_others_one_line(tmp_path: Path) -> None:
    code = """
import sys, warnings
from training.cli import commands, main
def run_command(_):
    for number in range(85):
        warnings.warn(f"an operator {number} is deprecated")
    for _ in range(3):
        warnings.warn_explicit("3 pairs are left out", UserWarning, commands.__file__, 1)
    return 0
commands.run_command = run_command
sys.argv = ["softserve-train", "corpora"]
main()
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=_ENVIRONMENT, capture_output=True, text=True)
    assert found.stderr.splitlines() == [
        "softserve-train: warning: 3 pairs are left out",
        "softserve-train: 85 warnings of other packages are not shown; PYTHONWARNINGS=default shows them",
    ]


# ---- corpora ----------------------------------------------------------------------------------------------


def test_corpora_are_listed_with_their_licences(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines of tab-separated columns, since the output is no terminal, whatever its width."""
    with contextlib.suppress(SystemExit), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["softserve-train", "corpora"])
        main()
    header, *lines = capfd.readouterr().out.splitlines()
    assert header.split("\t") == ["corpus", "columns", "licence", "models may be released", "--fetch", "homepage"]
    for corpus in CORPORA.values():
        released, fetched = ("yes" if value else "no" for value in (corpus.release_allowed, corpus.sources))
        row = (corpus.name, ", ".join(corpus.columns), corpus.licence, released, fetched, corpus.homepage)
        assert "\t".join(row) in lines
    assert any(line.startswith("cifar100\timg, fine_label\tresearch only\tno\tyes\thttps://") for line in lines)


def test_corpora_are_readable_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.output.console._force_terminal", True)
    monkeypatch.setattr("training.output.console._color_system", None)
    result = run_cli("corpora")
    for corpus in CORPORA.values():
        assert f"{corpus.name} columns {', '.join(corpus.columns)}; {corpus.licence}, models may" in result.output
        assert f"{f'--fetch {corpus.name}, from' if corpus.sources else 'see'} {corpus.homepage}" in result.output
    assert "…" not in result.output


def test_corpora_fetches(
    tiny_corpus: Corpus, tiny_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tuple(
        Source(url=(tiny_data_dir / "toy" / file.name).as_uri(), checksum=file.checksums[0])
        for file in tiny_corpus.splits.values()
    )
    monkeypatch.setitem(CORPORA, "toy", replace(tiny_corpus, sources=sources))  # type: ignore[arg-type]
    result = run_cli("corpora", "--fetch", "toy", "--data-dir", tmp_path)
    assert (result.code, result.output) == (0, f"wrote {tmp_path / 'toy'}")
    assert len(list(CORPORA["toy"].records("dev", tmp_path))) == 61


def test_what_cannot_be_evaluated_is_an_error(tiny_run: RunDirectory, tiny_bundle: Path, tmp_path: Path) -> None:
    result = run_cli("evaluate", tiny_run.path, "--graphs", "cuda")
    assert _one_line(result) == "softserve-train: --graphs: only bundles have graphs for GPUs, and this is a run"
    result = run_cli("evaluate", tiny_bundle, "--device", "cuda:0")
    assert _one_line(result) == "softserve-train: --device: bundles are measured on the CPU"
    imported = Path(shutil.copytree(tiny_bundle, tmp_path / "toy" / "1"))
    content = json.loads((imported / MANIFEST).read_text(encoding="utf-8"))
    content["provenance"]["recipe"] = {}
    (imported / MANIFEST).write_text(json.dumps(content), encoding="utf-8")
    result = run_cli("evaluate", imported)
    assert _one_line(result).endswith("was imported: no recipe says what to measure it on")


def test_counts_of_analyses_are_at_least_1(tiny_run: RunDirectory) -> None:
    result = run_cli("analyze", "mixture", tiny_run.path, "--min-count", "0")
    assert _one_line(result) == "softserve-train: --min-count must be at least 1, not 0"


def test_a_grid_needs_a_search(recipe: Path, tmp_path: Path) -> None:
    result = run_cli("analyze", "grid", recipe, "--runs", tmp_path / "runs")
    assert "little-tune holds no search" in _one_line(result)
    assert not (tmp_path / "runs").exists()


def test_bundles_are_signed(tmp_path: Path) -> None:
    bundled = Path(models.__file__).parent / "bundled" / "next-word" / "5"
    bundle = shutil.copytree(bundled, tmp_path / "next-word" / "5")
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    sign = ("sign", bundle, "--private-key", tmp_path / "key")
    assert run_cli(*sign).output.endswith(f"wrote {bundle / 'model.sig'}")
    assert verify(bundle, trusted_key=TrustedKey(pem=public)).path == bundle
    assert "--chain needs the --certificate" in _one_line(run_cli(*sign, "--chain", tmp_path / "key"))
    assert "No such file" in _one_line(run_cli("sign", bundle, "--private-key", tmp_path / "no key"))
    (bundle / "labels.txt").touch()
    assert "labels.txt has no checksum" in _one_line(run_cli(*sign))
