"""Every command of the pages about code of the reader's own, run in its order, in another process than other pages."""

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.docs.workplace import run_page

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*/own-*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: Path(page).stem)
def test_the_commands_of_a_page_work(page: str, tmp_path: Path) -> None:
    run_page(page, tmp_path)
