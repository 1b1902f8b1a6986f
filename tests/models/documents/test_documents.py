"""Documents of every format: the parts that are translated, those that stay, and the files that are refused."""

import io
import itertools
import json
import zipfile

import docx
import pysubs2
import pytest
from lxml import etree

from models.documents import DocumentError, DocumentOptions, Limits, format_of, read_document
from models.errors import QueryError
from tests.models.documents.samples import JSON, PO, SRT, TEXTS, TXT, VTT, XLIFF, XLIFF2, upper, word_document


def read(name, content, **options):
    data = content.encode() if isinstance(content, str) else content
    return read_document(data, format_of(name), DocumentOptions(**options))


def translated(name, content, **options):
    document = read(name, content, **options)
    return document.written([upper(each.text) for each in document.segments])


def texts(name, content, **options):
    return [each.text for each in read(name, content, **options).segments]


@pytest.mark.parametrize("name", ["txt", "html", "md", "srt", "vtt", "json", "csv", "tsv"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_same_texts_give_the_same_bytes(name, mark):
    content = mark + TEXTS[name].encode()
    document = read(name, content)
    assert document.segments
    assert document.written([each.text for each in document.segments]) == content
    assert document.written([None] * len(document.segments)) == content


@pytest.mark.parametrize("name", ["po", "xlf"])
def test_files_without_a_translation_stay_as_they_are(name):
    content = TEXTS[name].encode()
    document = read(name, content)
    assert document.written([None] * len(document.segments)) == content


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252"])
def test_the_encoding_of_a_file_is_that_of_its_translation(encoding):
    given = None if encoding == "utf-16" else encoding
    found = translated("txt", TXT.encode(encoding), encoding=given)
    assert found.decode(encoding) == TXT.upper()


def test_another_encoding_is_an_error_that_names_the_byte():
    with pytest.raises(DocumentError, match="byte 4"):
        read("txt", b"abc\xff")
    with pytest.raises(DocumentError, match="no encoding"):
        read("txt", b"abc", encoding="nope")
    document = read("txt", b"Stra\xdfe", encoding="latin-1")
    with pytest.raises(DocumentError, match="convert the file to UTF-8"):
        document.written(["日本"])


def test_html_says_its_encoding():
    content = '<meta charset="iso-8859-1"><p>Straße</p>'.encode("latin-1")
    assert texts("html", content) == ["Straße"]


def test_a_text_file_has_a_text_on_each_line_or_in_each_paragraph():
    assert texts("txt", TXT) == ["Hallo Welt.", "Zwei Wörter.", "Drei"]
    assert texts("txt", "Ein Satz,\nder weitergeht.\n\nZwei.", join_lines=True) == [
        "Ein Satz,\nder weitergeht.",
        "Zwei.",
    ]
    assert translated("txt", TXT).decode() == TXT.upper()


def test_markup_stays_around_its_blocks():
    found = translated("html", TEXTS["html"]).decode()
    assert "<p>HALLO <b>WELT</b>.</p><ul><li>EINS<li>ZWEI &amp; DREI</ul><pre>code</pre>" in found
    found = translated("md", TEXTS["md"]).decode()
    assert found.startswith("---\ntitle: Vorspann\n---\n# TITEL\n\nEIN *KURSIVES* WORT\nUND [LINK][a].")
    assert "> ZITAT\n> WEITER" in found
    assert "```\ncode\n```" in found
    assert "| EINS | `x` |" in found


SHOWN = [
    ("<img alt='Ein Hund'>", "Ein Hund"),
    ("<img src=x title='Ein Hund'>", "Ein Hund"),
    ("<input placeholder='Ihr Name'>", "Ihr Name"),
    ("<textarea placeholder='Ihr Name'>Nein</textarea>", "Ihr Name"),
    ("<input type=submit value='Senden'>", "Senden"),
    ("<input type=BUTTON value=Senden>", "Senden"),
    ("<select><optgroup label='Farben'></select>", "Farben"),
    ("<svg aria-label='Ein Kreis'><text>Nein</text></svg>", "Ein Kreis"),
    ("<meta name=Description content=' Alles\n über Hunde '>", "Alles\n über Hunde"),
    ("<meta property='og:title' content='Hunde'>", "Hunde"),
]
HIDDEN = [
    "<input type=text value=Nein>",
    "<input type=submit name=a value=Nein>",
    "<meta name=author content=Nein><meta charset=utf-8>",
    "<link rel=stylesheet title=Nein>",
    "<style title=Nein>p {}</style>",
    "<img alt='' title=' '>",
    "<img data-alt=Nein id=nein class=nein>",
    "<p translate=no title=Nein>Nein</p>",
    "<img translate=no alt=Nein>",
    "<img class='a notranslate' alt=Nein>",
    "<div translate=no><img alt=Nein></div>",
    "<code translate=no title=Nein>Nein</code>",
]


@pytest.mark.parametrize(("source", "expected"), SHOWN)
def test_attributes_that_people_see_are_texts(source, expected):
    assert texts("html", source) == [expected]
    assert texts("html", source, translate_attributes=()) == []


@pytest.mark.parametrize("source", HIDDEN)
def test_other_attributes_are_no_texts(source):
    assert texts("html", source) == []


def test_attributes_can_be_named_and_elements_left_alone():
    source = "<img alt=Hund title=Haus data-x=Katze>"
    assert texts("html", source, translate_attributes=("data-x",)) == ["Katze"]
    assert texts("html", source, ignore_tags=("img",)) == []


def test_attributes_of_tags_within_a_text_are_part_of_it():
    source = "<p>Der <a title='Ein Tier'>Hund</a> <img alt=Katze> schläft.<br>Ein <b title=Haus>Satz</b>.</p>"
    first, second = read("html", source).segments
    assert first.text == "Der <a title='Ein Tier'>Hund</a> <img alt=Katze> schläft."
    assert [each.text for each in first.markup.document(first.text).blocks] == [
        "Ein Tier",
        "Katze",
        "Der Hund schläft.",
    ]
    assert [each.text for each in second.markup.document(second.text).blocks] == ["Haus", "Ein Satz."]


def test_a_translation_is_quoted_as_its_place_needs_it():
    source = "<p>Hund</p><img alt=\"Hund\"><img alt='Hund'><img alt=Hund>"
    document = read("html", source)
    assert len({each.key for each in document.segments}) == 1
    found = document.written(["\"a\" 'b' &lt;"] * 4).decode()
    assert found == (
        "<p>\"a\" 'b' &lt;</p><img alt=\"&quot;a&quot; 'b' &lt;\">"
        "<img alt='\"a\" &#39;b&#39; &lt;'><img alt=\"&quot;a&quot; 'b' &lt;\">"
    )


def test_tags_in_the_value_of_an_attribute_are_text():
    first, second = read("html", "<img alt='<b>Hund</b>'><p>Ein <b>Hund</b></p>").segments
    assert (first.text, second.text) == ("&lt;b>Hund&lt;/b>", "Ein <b>Hund</b>")
    assert [each.text for each in first.markup.document(first.text).blocks] == ["<b>Hund</b>"]


def test_values_in_html_have_attributes_too():
    (segment,) = read("json", '{"a": "<q>Nein</q><img alt=Hund>"}', value_format="html", ignore_tags=("q",)).segments
    assert segment.markup.plain(segment.text) == "Hund"


@pytest.mark.parametrize("names", [{"ignore_tags": ("q",)}, {"translate_attributes": ("alt",)}])
def test_names_of_elements_and_attributes_need_html_or_xml(names):
    for name, content in (("txt", TXT), ("md", TEXTS["md"]), ("json", JSON), ("xlf", XLIFF)):
        with pytest.raises(DocumentError, match=f"{next(iter(names))} is for HTML"):
            read(name, content, **names)
    assert texts("json", '{"a": "<q>Ja</q>"}', value_format="xml", **names)


def test_another_text_than_the_segment_is_read_by_itself():
    (segment,) = read("html", "<p>Der Hund</p>").segments
    assert segment.markup.plain("The <b>dog</b>") == "The dog"


def test_strings_with_branches_are_messages():
    pytest.importorskip("pyicumessageformat")
    message = "{n, plural, one {# Hund} other {# Hunde}}"
    po = f'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{message}"\nmsgstr ""\n'
    files = {
        "json": json.dumps([message]),
        "csv": f'text\n"{message}"\n',
        "po": po,
        "xlf": XLIFF.replace("Ja", message),
    }
    for name, content in files.items():
        found = [each for each in read(name, content, overwrite=True).segments if each.text == message]
        assert [each.markup.plain(each.text) for each in found] == ["\U000f8000 Hund\n\U000f8000 Hunde"]


def test_inline_elements_of_a_message_are_kept():
    pytest.importorskip("pyicumessageformat")
    source = '{n, plural, other {vor <x id="2"/> <g id="3">Tagen</g> &amp; <x id="4" equiv-text="{m}"/> &lt; #}}'
    document = read("xlf", XLIFF.replace('Ja</source><target state="final">Yes</target>', f"{source}</source>"))
    segment = document.segments[1]
    assert segment.text == "{n, plural, other {vor <x-0/> <x-1>Tagen</x-1> & {code-2} < #}}"
    assert segment.markup.plain(segment.text) == "vor Tagen & \U000f8000 < \U000f8001"
    found = document.written([None, segment.text.replace("vor <x-0/>", "<x-0/> in").replace("Tagen", "days")]).decode()
    expected = source.replace('vor <x id="2"/>', '<x id="2"/> in').replace("Tagen", "days")
    assert f">{expected}</target>" in found
    assert "<target" not in document.written([None, segment.text.replace("<x-0/>", "")]).decode()


def test_a_block_is_read_with_the_document_around_it():
    segment = read("md", TEXTS["md"]).segments[1]
    (block,) = segment.markup.document(segment.text).blocks
    assert block.text == "Ein kursives Wort und Link."
    ((_, first), (_, second)) = [(each, block.text[slice(*each.span)]) for each in block.elements]
    assert (first, second) == ("kursives", "Link")


@pytest.mark.parametrize(("name", "content"), [("srt", SRT), ("vtt", VTT)])
def test_time_codes_stay(name, content):
    before, after = (
        pysubs2.SSAFile.from_string(each, format_=name) for each in (content, translated(name, content).decode())
    )
    assert [(each.start, each.end, each.text.upper()) for each in before] == [
        (each.start, each.end, each.text.upper()) for each in after
    ]


def test_lines_of_subtitles_are_joined_and_broken_again():
    document = read("srt", SRT)
    assert [each.text for each in document.segments] == [
        "<x-0/>Hallo <x-1>Welt, wie geht</x-1> es?",
        "- Ja.<br>- Nein.",
    ]
    found = document.written(["<x-0/>Hello <x-1>world, how are you doing</x-1> today?", "- Yes.<br>- No."]).decode()
    assert "\r\n{\\an8}Hello <i>world, how\r\nare you doing</i> today?\r\n\r\n2\r\n" in found
    assert found.endswith("- Yes.\r\n- No.\r\n")


def test_vtt_keeps_styles_notes_and_settings():
    found = translated("vtt", VTT).decode()
    assert found == VTT.replace("Hallo", "HALLO").replace("du</i> da", "DU</i> DA")


def test_a_translation_with_other_tags_leaves_a_cue_as_it_is():
    document = read("srt", SRT)
    assert document.written(["Hello <x-7>world</x-7>", "- Yes."]) == SRT.encode()


def test_strings_of_json_are_translated_in_place():
    assert texts("json", JSON) == ['Hallo "Welt"', "eins", "zwei"]
    found = translated("json", JSON).decode()
    assert found == JSON.replace("Hallo", "HALLO").replace("Welt", "WELT").replace("eins", "EINS").replace(
        "zwei", "ZWEI"
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("titel", ['Hallo "Welt"']),
        ("$.liste[1].text", ["zwei"]),
        ("liste.*", ["eins"]),
        ("**.text", ["zwei"]),
        ("nothing", []),
    ],
)
def test_paths_choose_values_of_json(path, expected):
    assert texts("json", JSON, paths=(path,)) == expected


def test_escaped_json_stays_ascii():
    content = '{"a": "Stra\\u00dfe"}'
    document = read("json", content)
    assert json.loads(document.written(["Öl"])) == {"a": "Öl"}
    assert document.written(["Öl"]).isascii()


def test_columns_of_tables():
    assert texts("csv", TEXTS["csv"]) == ['Hallo; "Welt"', "Zwei"]
    assert texts("csv", TEXTS["csv"], columns=("3", "TEXT")) == ['Hallo; "Welt"', "a", "Zwei", "b"]
    assert translated("csv", TEXTS["csv"]).decode() == 'id;text;andere\r\n1;"HALLO; ""WELT""";a\r\n2;ZWEI;b\r\n'
    document = read("csv", "text,b\nEins,x\n")
    assert document.written(['One, "two"']) == b'text,b\n"One, ""two""",x\n'
    assert read("tsv", TEXTS["tsv"]).written(["a\tb", "c"]) == b"id\ttext\n1\ta b\n2\tc\n"
    with pytest.raises(DocumentError, match="id, andere"):
        read("csv", "id;andere\n1;2\n")
    with pytest.raises(DocumentError, match="'nope'"):
        read("csv", TEXTS["csv"], columns=("nope",))


def test_messages_without_a_translation_get_one():
    document = read("po", PO)
    assert [(each.text, each.context) for each in document.segments] == [
        ("Datei %s ist kaputt", "a.c:12"),
        ("Datei", "menu"),
        ("Dateien", "menu"),
    ]
    found = document.written(["File %s is broken", "File", "Files"]).decode()
    changed = PO.replace('"kaputt"\nmsgstr ""', '"kaputt"\nmsgstr "File %s is broken"')
    changed = changed.replace('[0] ""', '[0] "File"').replace('[1] ""', '[1] "Files"').replace('[2] ""', '[2] "Files"')
    assert found == changed


def test_translations_of_messages_are_kept_unless_they_are_to_be_overwritten():
    document = read("po", PO, overwrite=True)
    found = document.written([each.text.upper() for each in document.segments]).decode()
    assert 'msgstr "ALT"' in found
    assert "fuzzy" not in found
    assert 'msgstr "gone"' in found


def test_plural_forms_are_those_of_the_target_language():
    content = PO.replace('"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);\\n"\n', "")
    document = read("po", content.replace('msgstr[2] ""\n', ""), target_language="ja")
    found = document.written(["a", "b", "c"]).decode()
    assert "nplurals=1" in found
    assert 'msgstr[0] "c"' in found
    assert "msgstr[1]" not in found


def test_templates_name_no_encoding():
    content = PO.replace("charset=UTF-8", "charset=CHARSET")
    document = read("pot", content)
    assert "日本".encode() in document.written(["日本"] * 3)


def test_units_of_xliff_get_targets_with_their_inline_elements():
    found = etree.fromstring(translated("xlf", XLIFF, target_language="en"))
    name = "{urn:oasis:names:tc:xliff:document:1.2}"
    first, second, third = found.iter(f"{name}trans-unit")
    target = first.find(f"{name}target")
    assert target.attrib == {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
    assert [(each.tag.removeprefix(name), each.text, each.get("id")) for each in target] == [
        ("g", "WELT", "1"),
        ("x", None, "2"),
        ("bpt", "<b>", "3"),
        ("ept", "</b>", "3"),
    ]
    assert (target.text, target[2].tail) == ("HALLO ", "FETT")
    assert second.find(f"{name}target").text == "Yes"
    assert third.find(f"{name}target") is None
    assert found.find(f"{name}file").get("target-language") == "en"
    assert texts("xlf", XLIFF, overwrite=True)[1:] == ["Ja"]


def test_segments_of_xliff_2_get_targets():
    found = translated("xlf", XLIFF2, target_language="en").decode()
    assert '<segment state="translated"><source>Hallo <pc id="1">Welt</pc><ph id="2"/></source>' in found
    assert '<target>HALLO <pc id="1">WELT</pc><ph id="2"/></target>' in found
    assert 'trgLang="en"' in found


def test_runs_of_word_documents_keep_their_styles():
    document = docx.Document(io.BytesIO(translated("docx", word_document())))
    assert [(each.style.name, each.text) for each in document.paragraphs] == [
        ("Heading 1", "DER BERICHT"),
        ("Normal", "DAS IST SEHR WICHTIG. ENDE"),
    ]
    runs = [(each.text, each.bold, each.italic) for each in document.paragraphs[1].runs]
    assert runs == [
        ("DAS IST ", None, None),
        ("SEHR", True, None),
        (" WICHTIG.", None, None),
        (" ENDE", None, True),
    ]
    assert document.tables[0].cell(0, 0).text == "EINS"
    assert document.tables[0].cell(1, 1).text == "ZWEI\tDREI"
    assert document.sections[0].header.paragraphs[0].text == "KOPF"
    assert document.sections[0].footer.paragraphs[0].text == "FUSS"


def test_styles_go_with_their_words_to_other_places():
    document = read("docx", word_document())
    given = [each.text for each in document.segments]
    given[1] = "<x-0>Very</x-0> important it is.<x-1> End</x-1>"
    runs = docx.Document(io.BytesIO(document.written(given))).paragraphs[1].runs
    assert [(each.text, each.bold, each.italic) for each in runs] == [
        ("Very", True, None),
        (" important it is.", None, None),
        (" End", None, True),
    ]


def test_the_same_texts_leave_the_parts_of_a_word_document():
    content = word_document()
    document = read("docx", content)
    found = document.written([each.text for each in document.segments])
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(io.BytesIO(found)) as after:
        assert sorted(before.namelist()) == sorted(after.namelist())
        assert before.read("word/document.xml") == after.read("word/document.xml")


def _with_paragraph(xml):
    """Return a docx file whose only paragraph is given as XML."""
    document = docx.Document()
    name = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    relationships = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    document.element.body.insert(0, etree.fromstring(f'<w:p xmlns:w="{name}" xmlns:r="{relationships}">{xml}</w:p>'))
    written = io.BytesIO()
    document.save(written)
    return written.getvalue()


def test_fields_links_and_notes_are_carried_along():
    content = _with_paragraph(
        '<w:r><w:t xml:space="preserve">Seite </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r>'
        "<w:r><w:instrText>PAGE</w:instrText></w:r>"
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>3</w:t></w:r>'
        '<w:r><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t xml:space="preserve"> von </w:t></w:r>'
        '<w:hyperlink w:anchor="x"><w:r><w:rPr><w:u w:val="single"/></w:rPr><w:t>vier</w:t></w:r></w:hyperlink>'
        '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:br/><w:t>Neu</w:t></w:r>'
    )
    document = read("docx", content)
    (segment,) = document.segments
    assert segment.text == ('Seite <code id="0"></code> von <x-1><x-2>vier</x-2></x-1><x-3/><br>Neu')
    found = document.written(['<x-1><x-2>Four</x-2></x-1><x-3/>, page <code id="0"></code><br>New'])
    body = docx.Document(io.BytesIO(found)).element.body
    marks = [each.tag.rpartition("}")[2] for each in body[0].iter()]
    assert marks.index("hyperlink") < marks.index("footnoteReference") < marks.index("instrText") < marks.index("br")
    assert [each.text for each in body[0].iter("{*}t")] == ["Four", ", page ", "3", "New"]
    assert [each.get(each.keys()[0]) for each in body[0].iter("{*}fldChar")] == ["begin", "separate", "end"]
    assert body[0].find("{*}hyperlink").find(".//{*}u") is not None


def test_a_format_is_known_by_the_ending():
    assert format_of("Report.DOCX").name == "docx"
    assert format_of("srt").name == "srt"
    with pytest.raises(DocumentError, match="macros"):
        format_of("report.docm")
    with pytest.raises(DocumentError, match=r"\.docx"):
        format_of("report.pdf")


def _archive(**files):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return written.getvalue()


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x version="1.2">&b;</x>'


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("docx", b"no archive", "not a zip file"),
        ("docx", _archive(**{"a.bin": bytes(30 << 20)}), "200 to 1"),
        ("docx", _archive(**{f"{number}.txt": b"" for number in range(5001)}), "5001 files"),
        ("docx", _archive(**{"a.xml": BOMB}), "document type"),
        ("docx", _archive(**{"a.xml": "<a>" * 201 + "</a>" * 201}), "200 elements within"),
        ("docx", _archive(**{"[Content_Types].xml": "<Types/>"}), "docx: "),
        ("xlf", BOMB, "document type"),
        ("xlf", BOMB.encode("utf-16"), "document type"),
        ("xlf", "<xliff version='1.2'>", "no element found"),
        ("xlf", "<other/>", "no XLIFF"),
        ("xlf", "<a>" * 201 + "</a>" * 201, "200 elements within"),
        ("json", "[" * 201 + "]" * 201, "200 lists and objects"),
        ("json", "{", "line 1, column 2"),
        ("json", '{"a": "b"', "json: "),
        ("json", "1" * 5000, "json: "),
        ("srt", "nothing", "no time codes"),
        ("vtt", "nothing", "WEBVTT"),
        ("po", "nothing", "po: "),
        ("html", "<p>a" * 60_000, "50000 tags"),
    ],
    ids=itertools.count(),
)
def test_bad_files_are_refused(name, content, words):
    with pytest.raises(QueryError, match=words.replace("(", r"\(")):
        read(name, content)


def test_documents_have_limits():
    with pytest.raises(DocumentError, match="the limit is 10"):
        read("txt", "a" * 11, limits=Limits(max_bytes=10))
    with pytest.raises(DocumentError, match="3 texts; the limit is 2"):
        read("txt", "a\nb\nc", limits=Limits(max_segments=2))
    with pytest.raises(DocumentError, match="the limit is 100"):
        read("docx", word_document(), limits=Limits(max_unpacked_bytes=100))


def test_documents_with_macros_are_refused():
    document = docx.Document(io.BytesIO(word_document()))
    from docx.opc.packuri import PackURI
    from docx.opc.part import Part

    part = Part(PackURI("/word/vbaProject.bin"), "application/vnd.ms-office.vbaProject", b"x", document.part.package)
    document.part.relate_to(part, "http://schemas.microsoft.com/office/2006/relationships/vbaProject")
    written = io.BytesIO()
    document.save(written)
    with pytest.raises(DocumentError, match="macros"):
        read("docx", written.getvalue())
