"""Whether the tags of generated fragments of HTML are right in their translation.

    .venv/bin/python -m benchmarks.tags [models/bundled/de-en/5] [--fragments 500] [--show 10]

Printed are the fractions of the fragments whose tree of elements is that of the source up to the order of siblings, and
of the tags around a number or a name that enclose the same number or name.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lxml.html

from benchmarks.tagged_fragments import TaggedFragment, tagged_fragments
from models.store import ModelStore, load_bundle
from models.tasks.translation import Translator
from models.text.markup import Markup
from service.settings import BUNDLED

__all__ = ["Kept", "html_tree", "kept_tags"]

Tree = tuple[str, tuple[tuple[str, str], ...], tuple["Tree", ...]]


def html_tree(markup: str) -> Tree:
    """Return the elements and comments of a fragment as lxml parses it, siblings in an order of their own.

    Values of the attributes `alt` and `title`, which are translated, are left out.
    """
    return _tree(lxml.html.document_fromstring(f"<div>{markup}</div>"))


def _tree(element: Any) -> Tree:
    name = element.tag if isinstance(element.tag, str) else f"comment {element.text}"
    attributes = [(key, "" if key in ("alt", "title") else value) for key, value in element.attrib.items()]
    return name, tuple(sorted(attributes)), tuple(sorted(map(_tree, element)))


@dataclass(frozen=True, slots=True)
class Kept:
    """What translations of fragments have of their source."""

    fragments: int
    trees: int
    """Fragments whose tree is that of the source."""
    tags: int
    """Tags around a number or a name."""
    enclosing: int
    """Those around the same number or name."""
    lost: int
    """Numbers and names that the translation does not have anywhere, which no placement can enclose."""


def kept_tags(translations: Sequence[tuple[TaggedFragment, str]]) -> Kept:
    """Compare fragments with their translations."""
    trees = enclosing = lost = 0
    for fragment, text in translations:
        trees += html_tree(text) == html_tree(fragment.markup)
        for tag, word in fragment.enclosed:
            if f"<{tag}>{word}</{tag}>" in text:
                enclosing += 1
            else:
                lost += re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is None
    tags = sum(len(fragment.enclosed) for fragment, _ in translations)
    return Kept(len(translations), trees, tags, enclosing, lost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, nargs="?", default=ModelStore(BUNDLED).path("de-en"))
    parser.add_argument("--fragments", type=int, default=500)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--show", type=int, default=0, help="translations to print of those with a tag that is wrong")
    arguments = parser.parse_args()
    model = load_bundle(arguments.bundle)
    assert isinstance(model, Translator)
    fragments = tagged_fragments(arguments.fragments)
    found = model.translate([each.markup for each in fragments], arguments.beam_size, markup=Markup("html"))
    pairs = [(each, result.translations[0].text) for each, result in zip(fragments, found, strict=True)]
    kept = kept_tags(pairs)
    wrong = [pair for pair in pairs if kept_tags([pair]).enclosing < len(pair[0].enclosed)]
    for fragment, text in wrong[: arguments.show]:
        print(f"{fragment.markup}\n    {text}")
    print(f"trees kept: {kept.trees} of {kept.fragments} fragments ({100 * kept.trees / kept.fragments:.1f} %)")
    print(
        f"tags around a number or a name that enclose the same one: {kept.enclosing} of {kept.tags}"
        f" ({100 * kept.enclosing / kept.tags:.1f} %); {kept.lost} of the numbers and names are not in the translation"
    )


if __name__ == "__main__":
    main()
