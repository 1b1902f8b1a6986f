"""Every command of the tutorials, run in its order."""

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.docs.workplace import workplace

TUTORIALS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: Path(page).stem)
def test_the_commands_of_a_tutorial_work(page: str, tmp_path: Path) -> None:
    with workplace(tmp_path) as place:
        for block in blocks(page):
            place.run(block)
