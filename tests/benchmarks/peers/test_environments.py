"""Tests of environments of peers: made once, and a failure says why."""

import subprocess

import pytest

from benchmarks.peers import environments
from benchmarks.peers.environments import environment


@pytest.fixture(autouse=True)
def _nothing_is_shared(monkeypatch):
    monkeypatch.setattr(environments, "shared_requirements", list)


def test_an_environment_is_made_once(tmp_path, capsys):
    """Of a package that an environment has anyway, so that nothing is downloaded."""
    python = environment(tmp_path, "peer", ["pip"])
    prefix = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    assert prefix.stdout.strip() == str(python.parents[1])
    assert "installing" in capsys.readouterr().err
    assert environment(tmp_path, "peer", ["pip"]) == python
    assert capsys.readouterr().err == ""


def test_what_cannot_be_installed_is_said(tmp_path):
    with pytest.raises(RuntimeError, match=r"could not be made: .*missing"):
        environment(tmp_path, "peer", [str(tmp_path / "missing-1.0-py3-none-any.whl")])
