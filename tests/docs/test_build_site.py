from pathlib import Path

import pytest
import yaml

from docs import build_site
from docs.build_site import adapted, loaded, pages

ROOT = Path(build_site.__file__).parents[1]
PLACED = {
    "SECURITY.md": "security.md",
    "docs/serving.md": "serving.md",
    "docs/reference/http.md": "reference/http.md",
    "docs/figures/a.svg": "figures/a.svg",
}


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("docs/serving.md", "[HTTP](reference/http.md#errors)", "[HTTP](reference/http.md#errors)"),
        ("docs/serving.md", "[model](../SECURITY.md)", "[model](security.md)"),
        ("SECURITY.md", "[limits](docs/serving.md#memory)", "[limits](serving.md#memory)"),
        ("docs/reference/http.md", "[s](../serving.md)", "[s](../serving.md)"),
        ("docs/reference/http.md", "![a](../figures/a.svg)", "![a](../figures/a.svg)"),
        ("docs/serving.md", "see [the code](../service/server/app.py) for it", "see the code for it"),
        ("docs/serving.md", "[recipes](../training/recipes)", "recipes"),
        ("docs/serving.md", "[gone](missing.md)", "[gone](missing.md)"),
        (
            "docs/serving.md",
            "[here](#memory), [RFC](https://example.org/a.md)",
            "[here](#memory), [RFC](https://example.org/a.md)",
        ),
        ("docs/serving.md", "`[a](../service/server/app.py)`", "`[a](../service/server/app.py)`"),
        ("docs/serving.md", "```\n[a](../service/server/app.py)\n```\n", "```\n[a](../service/server/app.py)\n```\n"),
    ],
)
def test_links_lead_to_the_pages_of_the_site(source, text, expected):
    assert adapted(text, source, PLACED) == expected


def test_the_site_has_all_pages_of_the_repository():
    placed = pages()
    assert placed["SECURITY.md"] == "security.md"
    assert placed["docs/index.md"] == "index.md"
    assert placed["docs/reference/http.md"] == "reference/http.md"
    assert not [path for path in placed if path.endswith(".py")]


def test_the_navigation_has_every_page_once():
    def entries(section):
        for each in section:
            (value,) = each.values()
            yield from [value] if isinstance(value, str) else entries(value)

    content = yaml.safe_load((ROOT / "docs/mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(entries(content["nav"])) == sorted(path for path in pages().values() if path.endswith(".md"))


def test_what_a_page_loads_is_found():
    page = """
        <a href="https://example.org/link"></a><script src="https://unpkg.com/a.js"></script><script src="../b.js">
        <link rel="stylesheet" href=//fonts.example.org/c.css><link rel="icon" href="./d.png">
    """
    assert loaded(page) == ["https://unpkg.com/a.js", "//fonts.example.org/c.css"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs/reference").glob("*.md")), ids=lambda path: path.name)
def test_every_entry_of_the_reference_has_a_meaning(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("|") and line.endswith("|  |")] == []
