"""The script that writes the chart's table of values and the names of settings in its schema."""

import importlib.util
import json

import pytest

from service.settings import Settings
from tests.containers.helm import CHART

SPEC = importlib.util.spec_from_file_location("describe", CHART.parent / "describe.py")
describe = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(describe)

VALUES = """\
# Pods.
replicas: 2
image:
  # Its name,
  # with a | in it.
  name: a
  # Names of Secrets.
  secrets: []
# Labels: a comment above a map describes all of it.
labels: {a: "1"}
"""


def test_a_value_has_path_default_and_comment():
    assert list(describe.values(VALUES)) == [
        ("replicas", "2", "Pods."),
        ("image.name", '"a"', "Its name, with a | in it."),
        ("image.secrets", "[]", "Names of Secrets."),
        ("labels", '{"a": "1"}', "Labels: a comment above a map describes all of it."),
    ]


@pytest.mark.parametrize("text", ["replicas: 2\n", "image:\n  name: a\n", "# A.\na: 1\n\nb: {}\n"])
def test_a_value_without_a_comment_is_an_error(text):
    with pytest.raises(ValueError, match="has no comment above it"):
        list(describe.values(text))


def copied(tmp_path, monkeypatch):
    for name in ("README.md", "values.yaml", "values.schema.json"):
        (tmp_path / name).write_bytes((CHART / name).read_bytes())
    monkeypatch.setattr(describe, "CHART", tmp_path)
    monkeypatch.setattr(describe, "ROOT", tmp_path)


def status(monkeypatch, *arguments):
    monkeypatch.setattr(describe.sys, "argv", ["describe.py", *arguments])
    return describe.main()


def test_the_files_of_the_chart_are_up_to_date(monkeypatch):
    assert status(monkeypatch, "--check") == 0


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("values.yaml", "# Number of pods", "# The number of pods"),
        ("values.yaml", "replicas: 2", "replicas: 3"),
        ("README.md", "| `replicas` |", "| `replica` |"),
        ("values.schema.json", '"max_wait_ms"', '"max_wiat_ms"'),
    ],
)
def test_a_change_is_found_and_written(name, old, new, tmp_path, monkeypatch, capsys):
    copied(tmp_path, monkeypatch)
    text = (tmp_path / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new))
    assert status(monkeypatch, "--check") == 1
    assert "is out of date: run docker/helm/describe.py" in capsys.readouterr().out
    assert status(monkeypatch) == 0
    assert status(monkeypatch, "--check") == 0


def test_every_setting_is_one_of_the_chart_or_may_be_set():
    names = set(
        json.loads((CHART / "values.schema.json").read_text())["properties"]["settings"]["propertyNames"]["enum"]
    )
    assert names | describe.SET_BY_CHART == Settings.model_fields.keys()
    assert not names & describe.SET_BY_CHART
