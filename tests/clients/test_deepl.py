"""The package `deepl` and its command line against a server."""

import contextlib
import subprocess
import sys
import time

import deepl
import pytest

from models import ModelStore
from service.settings import BUNDLED
from tests.clients.conftest import KEY

TEXT = "Wo ist der Bahnhof?"


@pytest.fixture(scope="module")
def translator(closed):
    with contextlib.closing(deepl.Translator(KEY, server_url=closed)) as client:
        yield client


@pytest.fixture(scope="module")
def translation():
    return ModelStore(BUNDLED).load("de-en", threads=1).translate([TEXT])[0].translations[0].text


def test_a_text_and_a_list_are_translated(translator, translation):
    found = translator.translate_text(TEXT, target_lang="EN-US")
    assert (found.text, found.detected_source_lang, found.billed_characters) == (translation, "DE", len(TEXT))
    several = translator.translate_text([TEXT, "Danke!"], source_lang="DE", target_lang="EN-GB")
    assert several[0].text == translation
    assert len(several) == 2


def test_lines_are_translated_apart_or_joined(translator):
    text = "Wo ist\nder Bahnhof?\nDanke!"
    apart = translator.translate_text(text, target_lang="EN-US").text
    assert (apart.count("\n"), apart.endswith("\nThanks!")) == (2, True)
    joined = translator.translate_text(text, target_lang="EN-US", split_sentences="nonewlines").text
    assert joined == "Where is the station?\nThanks!"


def test_sentences_are_joined(translator):
    """Without a sentence in between, both parts are read and written as one."""
    text = "Tom wohnt. In Berlin\nund Paris."
    found = translator.translate_text(text, target_lang="EN-US", split_sentences="0").text
    model = ModelStore(BUNDLED).load("de-en", threads=1)
    assert found == model.translate([text], split_sentences=False)[0].translations[0].text
    assert "\n" not in found


def test_languages_are_listed(translator):
    assert [(each.code, each.name) for each in translator.get_source_languages()] == [("DE", "German")]
    assert [each.code for each in translator.get_target_languages()] == ["EN-GB", "EN-US"]


def test_usage_counts_characters(translator):
    before = translator.get_usage().character
    translator.translate_text(TEXT, target_lang="EN-US")
    after = translator.get_usage().character
    assert after.count - before.count == len(TEXT)
    assert not after.limit_reached


def test_a_wrong_key_is_refused(closed):
    for call in (
        lambda client: client.translate_text(TEXT, target_lang="EN-US"),
        lambda client: client.get_usage(),
        lambda client: client.get_source_languages(),
    ):
        with (
            contextlib.closing(deepl.Translator("another-key", server_url=closed)) as client,
            pytest.raises(deepl.AuthorizationException),
        ):
            call(client)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"formality": "more"}, "formality"),
        ({"formality": "less"}, "formality"),
        ({"target_lang": "FR"}, "no model translates to 'FR'"),
        ({"source_lang": "FR"}, "no model translates from 'FR' to 'EN-US'"),
    ],
)
def test_what_the_models_cannot_do_is_refused_at_once(translator, options, message):
    started = time.monotonic()
    with pytest.raises(deepl.DeepLException, match=message) as caught:
        translator.translate_text(TEXT, **{"target_lang": "EN-US", **options})
    assert caught.value.http_status_code == 400
    assert time.monotonic() - started < 2


def test_tags_are_handled(translator):
    options = {"target_lang": "EN-US", "ignore_tags": ["q"]}
    for handling in ("html", "xml"):
        found = translator.translate_text("Tom wohnt in <b>Berlin</b>.", tag_handling=handling, **options)
        assert found.text == "Tom lives in <b>Berlin</b>."


def test_tags_that_split_sentences_are_named(translator):
    source = "<a><p>Guten Morgen!</p><p>Tom wohnt in Berlin.</p></a>"
    options = {"target_lang": "EN-US", "tag_handling": "xml", "preserve_formatting": True, "context": "Berlin"}
    apart = "<a><p>Good morning!</p><p>Tom lives in Berlin.</p></a>"
    assert translator.translate_text(source, **options).text == apart
    named = translator.translate_text(source, splitting_tags=["p"], outline_detection=False, **options)
    assert named.text == apart
    source = "<p>Tom wohnt <q>nicht</q> mehr hier.</p>"
    whole = translator.translate_text(source, **options).text
    assert translator.translate_text(source, non_splitting_tags="q", **options).text == whole
    split = translator.translate_text(source, splitting_tags="q", **options).text
    assert split.startswith("<p>Tom lives <q>not</q>")
    assert not whole.startswith("<p>Tom lives <q>not</q>")


def test_formality_may_be_a_preference(translator, translation):
    found = translator.translate_text(TEXT, target_lang="EN-US", formality="prefer_more")
    assert found.text == translation


def test_its_command_line(closed, translation):
    command = [sys.executable, "-m", "deepl", "--auth-key", KEY, "--server-url", closed]
    found = subprocess.run(
        [*command, "text", "--to", "EN-US", TEXT], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == translation


def test_a_document_is_translated(translator, tmp_path):
    (tmp_path / "a.html").write_text("<p title='Ja'>Guten <b>Morgen</b>!</p>")
    status = translator.translate_document_from_filepath(tmp_path / "a.html", tmp_path / "b.html", target_lang="EN-US")
    assert (status.done, status.billed_characters) == (True, len("Ja") + len("Guten <b>Morgen</b>!"))
    assert (tmp_path / "b.html").read_text() == "<p title='Yes'>Good <b>morning</b>!</p>"


def test_a_document_that_cannot_be_read_is_an_error(translator, tmp_path):
    (tmp_path / "a.docx").write_bytes(b"no archive")
    with pytest.raises(deepl.DocumentTranslationException, match="not a zip file"):
        translator.translate_document_from_filepath(tmp_path / "a.docx", tmp_path / "b.docx", target_lang="EN-US")
    (tmp_path / "a.pdf").write_bytes(b"x")
    with pytest.raises(deepl.DeepLException, match="no format"):
        translator.translate_document_from_filepath(tmp_path / "a.pdf", tmp_path / "b.pdf", target_lang="EN-US")


def test_pairs_through_a_third_language(pivot, tmp_path):
    with contextlib.closing(deepl.Translator("any", server_url=pivot)) as client:
        assert [each.code for each in client.get_target_languages()] == ["EN-GB", "EN-US", "FR"]
        found = client.translate_text(["Der Hund schläft.", "Ja."], target_lang="FR")
        assert [(each.text, each.detected_source_lang) for each in found] == [
            ("The dog is sleeping.", "DE"),
            ("Yes.", "DE"),
        ]
        english = client.translate_text("Where is the next station, please?", target_lang="FR")
        assert english.detected_source_lang == "EN"
        marked = client.translate_text("Der <b>Hund</b> schläft.", target_lang="FR", tag_handling="xml")
        assert marked.text == "The <b>dog</b> is sleeping."
        (tmp_path / "a.txt").write_text("Der Hund schläft.\n")
        client.translate_document_from_filepath(tmp_path / "a.txt", tmp_path / "b.txt", target_lang="FR")
        assert (tmp_path / "b.txt").read_text() == "The dog is sleeping.\n"
