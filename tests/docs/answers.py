"""Run the blocks of pages and write the answers that come into them: `python -m tests.docs.answers README.md`.

Answers of text in which `...` stands for something are left as they are.
"""

import sys
import tempfile
from pathlib import Path

from tests.docs.blocks import ROOT, blocks
from tests.docs.workplace import Workplace, workplace

__all__ = ["main"]


def main(pages: list[str]) -> None:
    """Write the answers of each page; tutorials have a directory each, other pages a server of the bundled models."""
    tutorials = [page for page in pages if page.startswith("docs/tutorials/")]
    others = [page for page in pages if page not in tutorials]
    for group in filter(None, [others, *([page] for page in tutorials)]):
        with tempfile.TemporaryDirectory() as directory, workplace(Path(directory)) as place:
            if group is others:
                place.serve("make serve")
            for page in group:
                write(page, place)
                print(f"wrote {page}")


def write(page: str, place: Workplace) -> None:
    """Run the blocks of a page, and write their answers into it."""
    found = [(block, place.run(block, compared=False)) for block in blocks(page)]
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    for block, came in reversed(found):
        answer = block.answer
        if answer is None or came is None or "..." in answer.code.split():
            continue
        lines[answer.line - 1 : answer.line - 1 + answer.code.count("\n")] = came.strip().splitlines()
    (ROOT / page).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
