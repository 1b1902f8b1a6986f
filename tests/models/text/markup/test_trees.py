"""The tree of elements of HTML is that of the source, whatever the translation and its links are."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.tags import html_tree
from models.text.markup import Aligned, Markup, filled
from models.text.markup.document import Document

NAMES = ["a", "b", "i", "span", "p", "div", "li", "ul", "td", "table", "tr", "h1", "code", "pre", "button", "x-y", "br"]
TEXTS = [
    "Hallo",
    " ",
    "3",
    "Anna Berlin. Ja",
    "\n",
    "&amp;",
    "&nbsp;",
    "&copy;",
    "<",
    ">",
    "&",
    " a < b ",
    "&lt;b&gt;",
    '"',
]
OTHERS = ["<br>", "<img src=a>", "<br/>", "<!-- c -->", "<hr>", "<input value='a>b'>", "<script>a<b</script>"]


def elements(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    opening = st.sampled_from(["", "", ' class="x y"', " title=a", " translate=no", " alt='&quot;'"])
    return st.builds(
        lambda name, attributes, content: f"<{name}{attributes}>{content}</{name}>",
        st.sampled_from(["b", "i", "span", "div", "p", "li", "code", "em"]),
        opening,
        inner,
    )


NESTED = st.recursive(
    st.sampled_from(TEXTS + OTHERS), lambda inner: elements(st.lists(inner, max_size=4).map("".join)), max_leaves=12
)
WELL_FORMED = st.lists(NESTED, max_size=6).map("".join)
ANY = st.lists(
    st.one_of(
        st.sampled_from(TEXTS + OTHERS),
        st.sampled_from(NAMES).map("<{}>".format),
        st.sampled_from(NAMES).map("</{}>".format),
    ),
    max_size=14,
).map("".join)


def translated(document: Document, seed: int) -> str:
    """Return a document with random translations and links of its blocks."""
    drawn = random.Random(seed)
    done: list[str] = []
    for block in document.blocks:
        if not any(map(str.isalpha, block.text)):
            done.append(filled(block.markup, done))
            continue
        words = block.text.replace("\n", " \n ").split(" ")
        drawn.shuffle(words)
        text = " ".join(words + drawn.sample(["neu", "x & y", "<b>", "."], drawn.randrange(3)))
        links = [
            (drawn.choice(spans(block.text)), drawn.choice(spans(text)))
            for _ in range(drawn.randrange(6))
            if spans(text) and spans(block.text)
        ]
        found = Aligned(block.text, text, [((0, len(block.text)), (0, len(text)))], links)
        done.append(block.translated(found, done))
    return document.joined(done)


def spans(text: str) -> list[tuple[int, int]]:
    place, found = 0, []
    for word in text.split(" "):
        found.append((place, place + len(word)))
        place += len(word) + 1
    return found


@settings(max_examples=400, deadline=None)
@given(st.one_of(WELL_FORMED, ANY), st.integers(0, 1000))
def test_the_tree_is_kept(source: str, seed: int) -> None:
    document = Markup("html", translate_attributes=("title", "alt")).document(source)
    assert html_tree(translated(document, seed)) == html_tree(source)


@settings(max_examples=200, deadline=None)
@given(st.one_of(WELL_FORMED, ANY, st.text(alphabet="<>/ab &;\"'=!-[]\n", max_size=40)))
def test_what_is_not_translated_comes_back_byte_for_byte(source: str) -> None:
    document = Markup("html", ("i",), ("title", "alt")).document(source)
    done: list[str] = []
    for block in document.blocks:
        done.append(filled(block.markup, done))
    assert document.joined(done) == source
