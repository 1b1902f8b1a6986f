"""Write the generated pages and plots of `docs`, or check with `--check` that they are up to date."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from docs.generators.http import http_page
from docs.generators.manifest import manifest_page
from docs.generators.metrics import metrics_page
from docs.generators.python_api import python_page
from docs.generators.recipes import recipes_page
from docs.generators.settings import settings_page
from training.search.tables.page import page_text, plots

DIRECTORY = Path(__file__).parents[1]
PAGES: Mapping[str, Callable[[], str]] = {
    "reference/http.md": http_page,
    "reference/manifest.md": manifest_page,
    "reference/metrics.md": metrics_page,
    "reference/python.md": python_page,
    "reference/recipes.md": recipes_page,
    "reference/settings.md": settings_page,
    "results.md": page_text,
}
"""File of `docs`, and the function that makes its content."""


def files() -> Iterator[tuple[str, str]]:
    """Yield each file of `docs` that is generated, and its content."""
    for name, make in PAGES.items():
        yield name, make()
    for name, picture in plots().items():
        yield f"figures/{name}", picture


def main() -> int:
    """Return 0, or 1 where a page is out of date."""
    status = 0
    for name, text in files():
        path = DIRECTORY / name
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            print(f"docs/{name} is out of date: run make docs", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
