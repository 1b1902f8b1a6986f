"""Write the reference pages of `docs/reference`, or check with `--check` that they are up to date."""

import sys
from pathlib import Path

from docs.generators import PAGES

DIRECTORY = Path(__file__).parents[1] / "reference"


def main() -> int:
    """Return 0, or 1 where a page is out of date."""
    status = 0
    for name, make in PAGES.items():
        path, text = DIRECTORY / name, make()
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            print(f"docs/reference/{name} is out of date: run make docs", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
