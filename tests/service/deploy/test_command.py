"""`softserve ray`, as far as it needs no cluster."""

import subprocess
import sys

import pytest
import yaml

from service.cli import main
from tests.service.deploy.cluster import ROOT

SHIPPED = ROOT / "docker/ray/serve.yaml"


def command(*arguments):
    run = [sys.executable, "-m", "service.cli", "ray", *map(str, arguments)]
    return subprocess.run(run, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"modells": ["intents"]}, "there are no settings modells"),
        ({"workers": 2}, "set replicas instead"),
        ({"models": ["nowhere"]}, "unknown model 'nowhere'"),
        ({"max_queue_items": 0}, "max_queue_items"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(tmp_path, settings, said, monkeypatch, capsys):
    file = tmp_path / "serve.yaml"
    args = {"settings": settings}
    each = {"name": "a", "route_prefix": "/", "import_path": "service.deploy.ray:application", "args": args}
    file.write_text(yaml.safe_dump({"applications": [each]}))
    monkeypatch.setattr(sys, "argv", ["softserve", "ray", "check", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_shipped_file_is_valid():
    ended = command("check", SHIPPED)
    assert (ended.returncode, ended.stdout.count("valid")) == (0, 1), ended.stderr


def test_the_environment_is_printed_as_a_shell_reads_it():
    assert "export RAY_SERVE_HAPROXY_RETRY_ON='conn-failure empty-response'\n" in command("environment").stdout
