"""The views of imported encoders in Chromium: entities, ranks, labels of the reader's own, similarities."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.fixtures.optional_tools import needs
from tests.service.web.browser import Running

pytestmark = needs("chromium")


@pytest.fixture(scope="module")
def encoders(running: Callable[..., Running], encoder_models: Path, tagger_bundle: Path) -> Running:
    """An embedder, a reranker, a classifier of premise and hypothesis, and a token classifier."""
    return running(model_dirs=(encoder_models, tagger_bundle.parents[1]))


@pytest.mark.parametrize(("width", "scheme"), [(1180, "light"), (360, "dark")])
@pytest.mark.parametrize(
    "view",
    [
        "tag?text=one+two",
        "rerank?query=one&texts=two%0Athree",
        "zero-shot?text=one&labels=two%0Athree",
        "embed?texts=one%0Atwo+three",
    ],
)
def test_each_view_is_accessible_fits_and_sends_one_request(playground, encoders, view, width, scheme):
    opened = playground(f"#{view}", address=encoders.address, width=width, scheme=scheme)
    opened.settle()
    assert len(opened.posts) == 1
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert Axe().run(opened.page).response["violations"] == []
    assert opened.page.locator("figure:has(table)").count() == 1


def test_views_are_listed_where_a_model_has_their_operation(playground, server, encoders):
    usual = ["Next word", "Score", "Translate", "Classify"]
    for each, more in ((server, []), (encoders, ["Zero-shot", "Entities", "Rerank", "Similarity"])):
        opened = playground("#classify", address=each.address)
        opened.settle()
        expect(opened.page.locator("nav a").nth(len(usual + more) - 1)).to_be_visible()
        listed = opened.page.locator("nav a").all_inner_texts()
        assert [name for name in listed if name != "Other"] == usual + more


def test_entities_are_marked_where_the_service_finds_them(playground, encoders):
    text = "one 🙂 two three four"
    opened = playground(f"#tag?text={text}", address=encoders.address)
    said = opened.settle()
    assert opened.posts == [{"text": text, "aggregation": "simple", "model": "names:1"}]
    entities = encoders.post("/v1/tag", opened.posts[0])["results"][0]["entities"]
    assert entities
    assert said.startswith(f"{len(entities)} entit")
    marks = [each.split("\n")[0].strip() for each in opened.page.locator("mark").all_inner_texts()]
    assert marks == [f"{each['text']} {each['label']}" for each in entities]
    assert opened.page.locator(".tagged").inner_text().count("🙂") == 1


def test_texts_are_ranked(playground, encoders):
    opened = playground("#rerank?query=one&texts=two%0A%0Athree%0Afour", address=encoders.address)
    said = opened.settle()
    assert opened.posts == [{"query": "one", "text": ["two", "three", "four"], "model": "ranks:1"}]
    results = sorted(encoders.post("/v1/rerank", opened.posts[0])["results"], key=lambda each: -each["score"])
    assert said == f"Best text: {results[0]['text']}"
    rows = opened.rows(opened.page.locator("table"))
    assert rows == [[each["text"], "", f"{each['score']:.4f}"] for each in results]


def test_labels_of_the_reader_are_scored(playground, encoders):
    opened = playground("#zero-shot?text=one+two&labels=three%0Afour&several=yes", address=encoders.address)
    said = opened.settle()
    body = {"text": "one two", "labels": ["three", "four"], "template": "This example is {}.", "multi_label": True}
    assert opened.posts == [body | {"model": "follows:1"}]
    (result,) = encoders.post("/v1/zero-shot", opened.posts[0])["results"]
    rows = opened.rows(opened.page.locator("table"))
    assert rows == [[each["label"], "", f"{100 * each['probability']:.1f} %"] for each in result["labels"]]
    assert said == f"Best label: {rows[0][0]}, {rows[0][2]}."


def test_similarities_are_cosines_of_the_vectors(playground, encoders):
    opened = playground("#embed?texts=one+two%0Athree%0Afour", address=encoders.address)
    opened.settle()
    assert opened.posts == [{"text": ["one two", "three", "four"], "normalize": True, "model": "vectors:1"}]
    vectors = np.array([each["embedding"] for each in encoders.post("/v1/embed", opened.posts[0])["results"]])
    rows = opened.rows(opened.page.locator("table"))
    assert [row[0] for row in rows] == ["1. one two", "2. three", "3. four"]
    shown = np.array([[float(value.replace("−", "-")) for value in row[1:]] for row in rows])
    assert np.abs(shown - vectors @ vectors.T).max() <= 0.00501
