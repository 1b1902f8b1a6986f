"""Links of pages, what their text says about comments, and how blocks are written."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks

RUN = [
    "README.md",
    "docs/quick-start.md",
    "docs/how-to/own-training.md",
    "docs/how-to/own-distributed-training.md",
    *(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/tutorials/*.md")),
]
"""Pages whose commands are all run."""
ALL = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_BARE = re.compile(r"^ *(\$ )?(pip3?|softserve|softserve-train|torchrun|tensorboard|pytest) ")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ALL)
def test_commands_run_in_the_virtual_environment(page: str) -> None:
    code = re.findall(r"^```sh\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)
    lines = [line for block in code for line in block.splitlines()] + re.findall(r"(?m)^    +.*", text_of(page))
    assert [line for line in lines if _BARE.match(line)] == []


@pytest.mark.parametrize("page", RUN)
def test_no_command_escapes_its_test(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"(?m)^    \S.*|^ *```.*", text) == []
    assert {block.language for block in blocks(page)} <= {"sh", "python", "toml", "yaml", "text", "json"}


COMMENTED = [block for page in RUN for block in blocks(page) if block.comment]


@pytest.mark.parametrize("block", COMMENTED, ids=lambda block: block.place)
def test_readers_see_what_a_comment_says(block: Block) -> None:
    visible = re.sub(r"<!--.*?-->", "", text_of(block.page))
    file = block.option("file")
    assert file or block.comment in ("quick try", "run: with the options of the quick try")
    assert file is None or f"`{file}`" in visible
    assert "quick try" not in block.comment or "append this to `run`:" in visible


def test_a_tutorial_has_each_part() -> None:
    for page in ROOT.glob("docs/tutorials/*.md"):
        headings = re.findall(r"(?m)^## (.*)", page.read_text(encoding="utf-8"))
        assert headings[0] == "Install", page
        assert {"Train, export, serve", "Call it", "What to look at"} <= set(headings), page


_LINK = re.compile(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)")


@pytest.mark.parametrize("page", ALL)
def test_links_lead_somewhere(page: str) -> None:
    for path, anchor in _LINK.findall(text_of(page)):
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page}: {path}"
        if anchor and target.suffix == ".md":
            assert anchor[1:] in anchors(target), f"{page}: {path}{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.*)", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
