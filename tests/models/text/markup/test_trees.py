"""The elements of a text with markup are those of the source, whatever the translation and its links are."""

import random
from collections import Counter
from collections.abc import Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import etree
from markdown_it import MarkdownIt

from benchmarks.tags import html_tree
from models.documents import format_of, read_document
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


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.one_of(WELL_FORMED, ANY), st.integers(0, 1000))
@example("<i>Hallo <code><i><p></p></i></code><b>Hallo</b></i>", 130)
@example("Hallo<img src=a>Hallo<code>", 0)
def test_the_tree_is_kept(source: str, seed: int) -> None:
    document = Markup("html", translate_attributes=("title", "alt")).document(source)
    assert html_tree(translated(document, seed)) == html_tree(source)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(WELL_FORMED, ANY), st.integers(0, 1000))
def test_a_document_keeps_its_tree(source: str, seed: int) -> None:
    document = read_document(source.encode(), format_of("html"))
    texts = [each.text for each in document.segments]
    assert document.written(texts) == source.encode()
    found = [translated(each.markup.document(each.text), seed) for each in document.segments]
    assert html_tree(document.written(found).decode()) == html_tree(source)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(WELL_FORMED, ANY, st.text(alphabet="<>/ab &;\"'=!-[]\n", max_size=40)))
def test_what_is_not_translated_comes_back_byte_for_byte(source: str) -> None:
    document = Markup("html", ("i",), ("title", "alt")).document(source)
    done: list[str] = []
    for block in document.blocks:
        done.append(filled(block.markup, done))
    assert document.joined(done) == source


XML = st.lists(
    st.recursive(
        st.sampled_from(["Hallo", " ", "3 Hunde", "&lt;&amp;", "<!-- c -->", "<x/>", "<![CDATA[a<b]]>", "<?p a?>"]),
        lambda inner: st.builds(
            lambda name, content: f"<{name} a='1>0'>{''.join(content)}</{name}>",
            st.sampled_from(["p", "q", "ä", "s:t"]),
            st.lists(inner, max_size=4),
        ),
        max_leaves=12,
    ),
    max_size=5,
).map("".join)


def xml_tree(markup: str) -> tuple[object, ...]:
    def tree(element: etree._Element) -> tuple[object, ...]:
        return str(element.tag), dict(element.attrib).__repr__(), tuple(sorted(map(tree, element)))

    return tree(etree.fromstring(f"<r xmlns:s='s'>{markup}</r>"))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(XML, st.integers(0, 1000))
def test_xml_keeps_its_tree(source: str, seed: int) -> None:
    document = Markup("xml").document(source)
    assert xml_tree(translated(document, seed)) == xml_tree(source)


WORDS = st.lists(st.sampled_from(["Hallo", "Welt", "3", "Anna", "a_b", "1 < 2", "x", "*"]), min_size=1, max_size=3)
PHRASES = WORDS.map(" ".join)
INLINE = st.recursive(
    st.one_of(PHRASES, st.sampled_from(["`a*b`", "![Bild](b.png)", "<http://a.de>", "&nbsp;", "\\*", "<i>ja</i>"])),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"**{' '.join(parts)}**"),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"*{' '.join(parts)}*"),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"[{' '.join(parts)}](http://x/{len(parts)})"),
    ),
    max_leaves=6,
)
LINES = st.lists(INLINE, min_size=1, max_size=4).map(" ".join)
BLOCKS = st.one_of(
    LINES,
    LINES.map("# {}".format),
    st.lists(LINES, min_size=1, max_size=3).map(lambda lines: "\n".join(f"* {line}" for line in lines)),
    st.lists(LINES, min_size=2, max_size=3).map(lambda lines: "\n".join(f"> {line}" for line in lines)),
    st.lists(LINES, min_size=2, max_size=3).map("  \n".join),
    PHRASES.map(lambda cell: f"| a | b |\n|---|---|\n| {cell} | **{cell}** |".replace("1 < 2", "12")),
    st.just("```\nif a*b*:\n```"),
)
MARKDOWN = st.lists(BLOCKS, min_size=1, max_size=4).map("\n\n".join)


def markdown_parts(markup: str) -> tuple[list[str], Counter[str]]:
    """Return the kinds of blocks of Markdown, and its links, images and code."""
    tokens = MarkdownIt("commonmark").enable(["table"]).parse(markup)

    def inline() -> Iterator[str]:
        for token in tokens:
            for child in token.children or ():
                if child.type in ("link_open", "image", "code_inline", "html_inline"):
                    yield f"{child.type} {child.attrs} {child.content}"

    return [token.type for token in tokens], Counter(inline())


@settings(max_examples=300, deadline=None, derandomize=True)
@given(MARKDOWN, st.integers(0, 1000))
@example("**Hallo ***  \nHallo  \nHallo ***** Hallo****", 0)
@example("* Hallo Hallo Hallo Hallo Hallo\n* ***`a*b` `a*b`** Hallo*", 3)
def test_markdown_keeps_its_blocks_and_links(source: str, seed: int) -> None:
    document = Markup("markdown").document(source)
    assert markdown_parts(translated(document, seed)) == markdown_parts(source)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.one_of(MARKDOWN, st.text(alphabet="*_`[]()<>!#-| \\\nab1.&;~\t\r", max_size=40)))
def test_untranslated_markdown_comes_back_byte_for_byte(source: str) -> None:
    document = Markup("markdown").document(source)
    assert document.joined([filled(block.markup, []) for block in document.blocks]) == source
