"""Documents of every format, and a translation that can be seen: letters outside of markup in upper case."""

import io
import re

import docx

TXT = "Hallo Welt.\r\n\r\n  Zwei Wörter.  \r\n3\r\nDrei"
HTML = (
    "<!doctype html><html><head><title>Titel</title></head><body><p>Hallo <b>Welt</b>.</p>"
    "<ul><li>Eins<li>Zwei &amp; drei</ul><pre>code</pre></body></html>\n"
)
MD = (
    "---\ntitle: Vorspann\n---\n# Titel\n\nEin *kursives* Wort\nund [Link][a].\n\n> Zitat\n> weiter\n\n"
    "```\ncode\n```\n\n| Kopf | b |\n|---|---|\n| Eins | `x` |\n\n[a]: http://example.org\n"
)
SRT = (
    "1\r\n00:00:01,000 --> 00:00:02,500\r\n{\\an8}Hallo <i>Welt,\r\nwie geht</i> es?\r\n\r\n"
    "2\r\n00:00:03,000 --> 00:00:04,000\r\n- Ja.\r\n- Nein.\r\n"
)
VTT = (
    "WEBVTT - Titel\n\nSTYLE\n::cue { color: red }\n\nNOTE Notiz\n\nanfang\n"
    "00:01.000 --> 00:02.000 align:start line:0\n<v Bob>Hallo &amp; <i>du</i> da\n"
)
JSON = (
    '{\n  "titel": "Hallo \\"Welt\\"",\n   "zahl": 1.50,\n'
    ' "liste": ["eins", {"text": "zwei", "null": null}], "leer": ""}\n'
)
CSV = 'id;text;andere\r\n1;"Hallo; ""Welt""";a\r\n2;Zwei;b\r\n'
TSV = 'id\ttext\n1\t"Hallo" sagte er\n2\tZwei\n'
PO = """# Kopf
msgid ""
msgstr ""
"Project-Id-Version: x\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);\\n"

#. Hinweis
#: a.c:12
#, c-format
msgid "Datei %s ist "
"kaputt"
msgstr ""

msgctxt "menu"
msgid "Datei"
msgid_plural "Dateien"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

#, fuzzy
msgid "Alt"
msgstr "Old"

#~ msgid "weg"
#~ msgstr "gone"
"""
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="a" source-language="de" datatype="plaintext">
    <body>
      <trans-unit id="1">
        <source>Hallo <g id="1">Welt</g> <x id="2"/><bpt id="3">&lt;b&gt;</bpt>fett<ept id="3">&lt;/b&gt;</ept></source>
      </trans-unit>
      <trans-unit id="2"><source>Ja</source><target state="final">Yes</target></trans-unit>
      <trans-unit id="3" translate="no"><source>Nein</source></trans-unit>
    </body>
  </file>
</xliff>
"""
XLIFF2 = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="de"><file id="f"><unit id="u">'
    '<segment><source>Hallo <pc id="1">Welt</pc><ph id="2"/></source></segment></unit></file></xliff>\n'
)

TEXTS = {
    "txt": TXT,
    "html": HTML,
    "md": MD,
    "srt": SRT,
    "vtt": VTT,
    "json": JSON,
    "csv": CSV,
    "tsv": TSV,
    "po": PO,
    "xlf": XLIFF,
}


def word_document():
    """Return a docx file with styles, a table, a header and a footer."""
    document = docx.Document()
    document.add_heading("Der Bericht", 1)
    paragraph = document.add_paragraph("Das ist ")
    paragraph.add_run("sehr").bold = True
    paragraph.add_run(" wichtig.")
    paragraph.add_run(" Ende").italic = True
    table = document.add_table(2, 2)
    table.cell(0, 0).text = "Eins"
    table.cell(1, 1).text = "Zwei\tDrei"
    document.sections[0].header.paragraphs[0].text = "Kopf"
    document.sections[0].footer.paragraphs[0].text = "Fuß"
    written = io.BytesIO()
    document.save(written)
    return written.getvalue()


def upper(text):
    """Return a text in upper case, but for its markup."""
    return re.sub(r"(<[^>]*>|&\w+;|`[^`]*`|\]\[[^\]]*\])|([^<&`\]]+)", lambda found: found[1] or found[2].upper(), text)
