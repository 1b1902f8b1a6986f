"""Glossaries of the package `deepl` against a server with a database: its versions 2 and 3, texts and documents."""

import contextlib

import deepl
import pytest
from deepl.api_data import MultilingualGlossaryDictionaryEntries

from tests.clients.conftest import KEY, served

TEXT = "Wo ist der Bahnhof?"
TERMS = {"Bahnhof": "railway depot", "Haus": "residence"}


@pytest.fixture(scope="module")
def client(closed):
    with contextlib.closing(deepl.DeepLClient(KEY, server_url=closed)) as client:
        yield client


@pytest.fixture
def glossary(client):
    made = client.create_glossary("Terms", "DE", "EN-US", TERMS)
    yield made
    with contextlib.suppress(deepl.GlossaryNotFoundException):
        client.delete_glossary(made)


@pytest.fixture
def multilingual(client):
    dictionaries = [MultilingualGlossaryDictionaryEntries("DE", "EN", TERMS)]
    made = client.create_multilingual_glossary("Several", dictionaries)
    yield made
    with contextlib.suppress(deepl.GlossaryNotFoundException):
        client.delete_multilingual_glossary(made)


def test_a_glossary_is_stored_and_deleted(client, glossary):
    assert (glossary.name, glossary.ready, glossary.entry_count) == ("Terms", True, 2)
    assert (glossary.source_lang, glossary.target_lang) == ("DE", "EN")
    found = client.get_glossary(glossary.glossary_id)
    assert (found.glossary_id, found.creation_time) == (glossary.glossary_id, glossary.creation_time)
    assert [each.glossary_id for each in client.list_glossaries()] == [glossary.glossary_id]
    assert client.get_glossary_entries(glossary) == TERMS
    client.delete_glossary(glossary)
    assert client.list_glossaries() == []
    for ask in (client.get_glossary, client.get_glossary_entries, client.delete_glossary):
        with pytest.raises(deepl.GlossaryNotFoundException):
            ask(glossary.glossary_id)


def test_a_glossary_of_csv(client):
    made = client.create_glossary_from_csv("CSV", "de", "en", 'Bahnhof,"railway, depot",de,en\nHaus,residence,de,en\n')
    assert client.get_glossary_entries(made) == {"Bahnhof": "railway, depot", "Haus": "residence"}
    client.delete_glossary(made)


def test_texts_are_translated_by_a_glossary(client, glossary):
    options = {"source_lang": "DE", "target_lang": "EN-GB"}
    for given in (glossary, glossary.glossary_id):
        assert "railway depot" in client.translate_text(TEXT, glossary=given, **options).text
    assert "railway depot" in client.translate_text_with_glossary(TEXT, glossary).text
    assert "railway depot" in client.translate_text(TEXT, glossary_ids=[glossary.glossary_id], **options).text
    found = client.translate_text(f"<p>{TEXT}</p>", tag_handling="html", glossary=glossary, **options).text
    assert "railway depot" in found
    assert "railway depot" not in client.translate_text(TEXT, **options).text


def test_the_first_of_several_glossaries_goes_first(client, glossary, multilingual):
    client.replace_multilingual_glossary_dictionary(
        multilingual, MultilingualGlossaryDictionaryEntries("DE", "EN", {"Bahnhof": "terminal"})
    )
    for ids, word in (([glossary, multilingual], "railway depot"), ([multilingual, glossary], "terminal")):
        found = client.translate_text(TEXT, source_lang="DE", target_lang="EN-US", glossary_ids=ids)
        assert word in found.text


def test_documents_are_translated_by_a_glossary(client, glossary, tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    for name, option in (("b", {"glossary": glossary}), ("c", {"glossary_ids": [glossary.glossary_id]})):
        written = tmp_path / f"{name}.txt"
        client.translate_document_from_filepath(
            tmp_path / "a.txt", written, source_lang="DE", target_lang="EN-US", **option
        )
        assert "railway depot" in written.read_text()


def test_a_multilingual_glossary(client, multilingual):
    assert (multilingual.name, len(multilingual.dictionaries)) == ("Several", 1)
    found = client.get_multilingual_glossary(multilingual.glossary_id)
    assert (found.dictionaries[0].source_lang, found.dictionaries[0].entry_count) == ("DE", 2)
    assert multilingual.glossary_id in [each.glossary_id for each in client.list_multilingual_glossaries()]
    renamed = client.update_multilingual_glossary_name(multilingual, "Renamed")
    assert renamed.name == "Renamed"
    more = MultilingualGlossaryDictionaryEntries("DE", "EN", {"Kind": "infant", "Haus": "home"})
    updated = client.update_multilingual_glossary_dictionary(multilingual, more)
    assert updated.dictionaries[0].entry_count == 3
    (entries,) = client.get_multilingual_glossary_entries(multilingual, "DE", "EN").dictionaries
    assert sorted(entries.entries.split("\n")) == ["Bahnhof\trailway depot", "Haus\thome", "Kind\tinfant"]
    found = client.translate_text(TEXT, source_lang="DE", target_lang="EN-US", glossary=updated).text
    assert "railway depot" in found
    replaced = client.replace_multilingual_glossary_dictionary_from_csv(multilingual, "DE", "EN", "Bahnhof,halt\n")
    assert replaced.entry_count == 1
    client.delete_multilingual_glossary_dictionary(multilingual, source_lang="DE", target_lang="EN")
    assert client.get_multilingual_glossary(multilingual.glossary_id).dictionaries == []
    with pytest.raises(deepl.DeepLException, match="no entries from 'de' to 'en'"):
        client.translate_text(TEXT, source_lang="DE", target_lang="EN-US", glossary=multilingual.glossary_id)


def test_language_pairs_are_those_that_are_translated(client):
    assert [(each.source_lang, each.target_lang) for each in client.get_glossary_languages()] == [("de", "en")]


def test_glossaries_that_cannot_be_used_are_refused(client):
    with pytest.raises(deepl.DeepLException, match="no model translates from 'FR'"):
        client.create_glossary("Terms", "FR", "EN", TERMS)
    with pytest.raises(deepl.DeepLException, match="longer than 100"):
        client.create_glossary("Terms", "DE", "EN", {"a" * 101: "b"})
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.translate_text(TEXT, source_lang="DE", target_lang="EN-US", glossary="0" * 36)


def test_without_a_database_the_reason_is_named(address):
    with contextlib.closing(deepl.DeepLClient("any-key", server_url=address)) as client:
        for ask in (
            lambda: client.create_glossary("Terms", "DE", "EN", TERMS),
            client.list_glossaries,
            client.list_multilingual_glossaries,
            lambda: client.translate_text(TEXT, source_lang="DE", target_lang="EN-US", glossary="0" * 36),
        ):
            with pytest.raises(deepl.DeepLException, match="without --database") as caught:
                ask()
            assert caught.value.http_status_code == 400


def test_two_workers_and_a_restart_share_glossaries_and_usage(tmp_path):
    keys = (KEY, "another-key-of-the-tests-0123")
    (tmp_path / "keys.txt").write_text("\n".join(keys))
    arguments = ("--models", "de-en", "--max-glossaries", "1")
    arguments += ("--api-keys", tmp_path / "keys.txt", "--database", f"sqlite:///{tmp_path / 'store.db'}")
    options = {"source_lang": "DE", "target_lang": "EN-US"}
    with contextlib.contextmanager(served)(tmp_path / "first.txt", "--workers", "2", *arguments) as address:
        client, other = (deepl.DeepLClient(key, server_url=address) for key in keys)
        glossary = client.create_glossary("Terms", "DE", "EN", TERMS)
        for _ in range(8):  # each on a new connection, to either process
            with contextlib.closing(deepl.DeepLClient(KEY, server_url=address)) as new:
                assert "railway depot" in new.translate_text(TEXT, glossary=glossary, **options).text
        assert other.list_glossaries() == []
        with pytest.raises(deepl.GlossaryNotFoundException):
            other.get_glossary(glossary.glossary_id)
        with pytest.raises(deepl.QuotaExceededException, match="1 glossaries"):
            client.create_glossary("More", "DE", "EN", TERMS)
        other.create_glossary("Terms", "DE", "EN", TERMS)
        for each in (client, other):
            each.close()
    (tmp_path / "keys.txt").write_text("\n".join(reversed(keys)))
    with contextlib.contextmanager(served)(tmp_path / "second.txt", *arguments) as address:
        client, other = (deepl.DeepLClient(key, server_url=address) for key in keys)
        assert client.get_usage().character.count == 8 * len(TEXT)
        assert other.get_usage().character.count == 0
        assert [each.glossary_id for each in client.list_glossaries()] == [glossary.glossary_id]
        for each in (client, other):
            each.close()
