from pathlib import Path

import griffe
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, ConfigDict

import models
import training.softmax
from docs.generators import settings
from docs.generators.http import STATUSES, HttpPage, openapi
from docs.generators.metrics import metrics_page
from docs.generators.python_api import signature
from docs.generators.sections import Sections
from service.observability.metrics import Metrics
from service.settings import Settings


@pytest.fixture(scope="module")
def document():
    return openapi()


def test_every_endpoint_and_every_object_is_on_the_page(document):
    text = "\n".join(HttpPage(document).parts())
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"## {method.upper()} {path}\n" in text
    assert "| `beam_size` | integer, 1 to 32 | `5` | 1 is greedy search. |" in text
    assert "### ScoredText\n" in text


def test_every_status_of_the_service_is_explained(document):
    statuses = {
        int(status)
        for methods in document["paths"].values()
        for each in methods.values()
        for status in each["responses"]
    }
    assert {status for status in statuses if status >= 400} <= STATUSES.keys()


def test_examples_of_requests_are_shown():
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "examples": [{"text": "Grüße"}]}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Body"}}}
    operation = {"description": "Do it.", "requestBody": {"content": content}, "responses": {"400": {}}}
    problem = {"properties": {}}
    document = {
        "paths": {"/v1/do": {"post": operation}},
        "components": {"schemas": {"Body": schema, "Problem": problem}},
    }
    assert '```json\n{\n  "text": "Grüße"\n}\n```' in "\n".join(HttpPage(document).parts())


def test_every_metric_of_the_service_is_on_the_page():
    page = metrics_page()
    families = {each.name for each in text_string_to_metric_families(Metrics().text().decode())}
    own = {name for name in families if name.startswith("softserve_") and not name.endswith("_created")}
    assert len(own) > 20
    assert [name for name in own if f"| `{name}` |" not in page and f"| `{name}_total` |" not in page] == []
    labels = "`model`, `endpoint`, `status`, `deadline`"
    assert f"| `softserve_requests_total` | counter | {labels} | Requests that were answered; " in page


def test_every_setting_is_on_the_page():
    page = settings.settings_page()
    for name in Settings.model_fields:
        assert f"| `--{name.replace('_', '-')}`<br>`SOFTSERVE_{name.upper()}` | " in page
    assert "integer, 0 to 65,535<br>`8000` | Port to listen on. |" in page


def test_a_group_that_begins_with_no_setting_is_an_error(monkeypatch):
    monkeypatch.setitem(settings.GROUPS, "gone", "Gone")
    with pytest.raises(KeyError, match="gone"):
        settings.settings_page()


PAGE = Path(__file__).parents[2] / "docs/reference/python.md"


SOURCE = """
def plain(a: int, *rest: str, b: float = 1.0, **others: object) -> list[int]: ...

class Some:
    def long(
        self, pairs: Mapping[str, list[int]], *, aaaaaaaaaaaaaaaaaaaaaaaaaaa: float = 1.0, bbbbbbbbbbbbbbbbbbb=(1, 2)
    ) -> list[int]: ...
"""
LONG = """long(
    pairs: Mapping[str, list[int]],
    *,
    aaaaaaaaaaaaaaaaaaaaaaaaaaa: float = 1.0,
    bbbbbbbbbbbbbbbbbbb=(1, 2),
) -> list[int]"""


def test_signatures_are_those_of_the_source():
    module = griffe.visit("module", Path("module.py"), SOURCE)
    assert signature(module["plain"], "plain") == (
        "plain(a: int, *rest: str, b: float = 1.0, **others: object) -> list[int]"
    )
    assert signature(module["Some.long"], "long") == LONG


def test_every_public_name_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    for name in (*models.__all__, *training.softmax.__all__):
        assert f"\n### {name}\n" in text


class Documented(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Tensor(Documented):
    """An input or output."""

    shape: list[int]
    """Its axes."""


class Graph(Documented):
    """A computation."""

    inputs: list[Tensor]
    outputs: list[Tensor]


class File(Documented):
    name: str
    """Its name."""
    graphs: dict[str, Graph]
    seed: int = 1
    """Seed of everything random."""


def test_sections_have_the_path_of_their_first_field():
    sections = Sections(File)
    assert sections.paths == {"Graph": "graphs.*", "Tensor": "graphs.*.inputs[]"}
    assert sections.fields(frozenset({"graphs"})).splitlines()[2:] == [
        "| `name` | string | required | Its name. |",
        "| `seed` | integer | `1` | Seed of everything random. |",
    ]
    graph, tensor = sections.parts("###")
    assert graph.startswith("### `graphs.*`\n\nA computation.\n")
    assert "| `outputs` | list of section `graphs.*.inputs[]` | required | An input or output. |" in graph
    assert "| `shape` | list of integers | required | Its axes. |" in tensor
    assert list(sections.parts("###", frozenset({"graphs"}))) == []
