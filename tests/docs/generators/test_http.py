import pytest

from docs.generators.http import STATUSES, HttpPage, openapi


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
