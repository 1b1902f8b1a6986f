"""Every command of the tutorials on models of your own, run in its order."""

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.docs.workplace import run_page

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
PAGES = [
    *(path.relative_to(ROOT).as_posix() for path in TUTORIALS if not path.name.startswith("own-")),
    "docs/how-to/own-data.md",
    "docs/how-to/retrain.md",
]
"""Those of `own-*.md` are in `test_tutorials_own.py`, for another process."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: Path(page).stem)
def test_the_commands_of_a_tutorial_work(page: str, tmp_path: Path) -> None:
    run_page(page, tmp_path)
