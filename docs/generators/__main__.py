"""Write the reference pages of `docs/reference`, or check with `--check` that they are up to date."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generators.http import http_page
from docs.generators.manifest import manifest_page
from docs.generators.metrics import metrics_page
from docs.generators.python_api import python_page
from docs.generators.recipes import recipes_page
from docs.generators.settings import settings_page

DIRECTORY = Path(__file__).parents[1] / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "http.md": http_page,
    "manifest.md": manifest_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
    "recipes.md": recipes_page,
    "settings.md": settings_page,
}
"""File of `docs/reference`, and the function that makes its content."""


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
