"""The reference pages, which are generated from the code: `python -m docs.generators`."""

from collections.abc import Callable, Mapping

from docs.generators.http import http_page
from docs.generators.manifest import manifest_page
from docs.generators.metrics import metrics_page
from docs.generators.python_api import python_page
from docs.generators.recipes import recipes_page
from docs.generators.settings import settings_page

__all__ = ["PAGES"]

PAGES: Mapping[str, Callable[[], str]] = {
    "http.md": http_page,
    "manifest.md": manifest_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
    "recipes.md": recipes_page,
    "settings.md": settings_page,
}
"""File of `docs/reference`, and the function that makes its content."""
