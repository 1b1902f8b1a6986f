"""Translation models of many languages: imported by the command line, served, called by clients of other services."""

import contextlib

import deepl
import httpx2
import pytest
from libretranslatepy import LibreTranslateAPI

from models import ModelStore
from tests.clients.conftest import served
from tests.support.translation_directories import write_directory
from tests.training.cli.test_cli import run_cli

IMPORTS = {
    "nllb": ["--source-languages", "en,deu_Latn,fr", "--target-languages", "de,fra_Latn,en", "--languages", "fr-de"],
    "t5": ["--languages", "en-ro", "--target-languages", "ro,fr"],
    "mt5": ["--languages", "en-es", "--prefix", "translate English to Spanish: ", "--max-tokens", "40"],
}
"""Flags of the import of each model."""
GERMAN, ENGLISH, FRENCH = "Wir gehen morgen ins Museum.", "Where is the station?", "Nous avons acheté du pain."


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The directory of the original models, and of the bundles in `models`."""
    directory = tmp_path_factory.mktemp("imported")
    for family, flags in IMPORTS.items():
        write_directory(family, directory / family)
        output = "--output", directory / "models", "--name", family, "--licence", "CC0-1.0"
        result = run_cli("import", directory / family, *output, *flags)
        assert result.code == 0, result.output
    return directory


@pytest.fixture(scope="module")
def address(directory, tmp_path_factory):
    """The address of a server of the imported models."""
    yield from served(tmp_path_factory.mktemp("log") / "log.txt", "--model-dirs", directory / "models")


@pytest.fixture(scope="module")
def expected(directory):
    """Return a function of model and text that returns the translation by the library."""
    store = ModelStore(directory / "models")
    loaded = {name: store.load(name, threads=1) for name in IMPORTS}

    def translate(name, text, **languages):
        return loaded[name].translate([text], **languages)[0].translations[0].text

    return translate


@pytest.mark.parametrize(
    ("model", "text", "languages"),
    [
        ("nllb", FRENCH, {}),
        ("nllb", ENGLISH, {"source_language": "en", "target_language": "fr"}),
        ("nllb", GERMAN, {"source_language": "deu_Latn", "target_language": "eng_Latn"}),
        ("t5", ENGLISH, {}),
        ("t5", ENGLISH, {"source_language": "en", "target_language": "fr"}),
        ("mt5", ENGLISH, {"source_language": "en", "target_language": "es"}),
    ],
)
def test_a_request_chooses_languages_that_the_flags_have_kept(address, expected, model, text, languages):
    answer = httpx2.post(f"{address}/v1/translate", json={"model": model, "text": text, **languages}, timeout=30)
    (result,) = answer.json()["results"]
    assert result["translations"][0]["text"] == expected(model, text, **languages)


@pytest.mark.parametrize(
    ("model", "field", "language"),
    [("nllb", "target_language", "es"), ("t5", "target_language", "de"), ("mt5", "source_language", "fr")],
)
def test_other_languages_are_refused(address, model, field, language):
    answer = httpx2.post(f"{address}/v1/translate", json={"model": model, "text": ENGLISH, field: language}, timeout=30)
    assert answer.status_code == 422
    assert f"{field} must be " in answer.text


def test_defaults_are_those_of_the_flags(expected):
    """Without `--languages`, NLLB would translate from English, and T5's first prompt is that for German."""
    texts = GERMAN, ENGLISH, FRENCH, "12"
    default = [expected("nllb", text) for text in texts]
    assert default == [expected("nllb", text, source_language="fr", target_language="de") for text in texts]
    assert default != [expected("nllb", text, source_language="en", target_language="fr") for text in texts]
    assert expected("t5", ENGLISH) == expected("t5", ENGLISH, target_language="ro")
    assert expected("t5", ENGLISH) != expected("t5", ENGLISH, target_language="fr")


def test_a_limit_of_tokens_is_kept(address):
    answer = httpx2.post(f"{address}/v1/translate", json={"model": "mt5", "text": "house " * 60}, timeout=30)
    assert answer.status_code == 422
    assert "40" in answer.text


def test_deepl(address, expected):
    with contextlib.closing(deepl.Translator("any", server_url=address)) as client:
        found = client.translate_text(GERMAN, target_lang="FR")
        assert found.text == expected("nllb", GERMAN, source_language="de", target_language="fr")
        assert found.detected_source_lang == "DE"
        found = client.translate_text(ENGLISH, source_lang="EN", target_lang="RO")
        assert found.text == expected("t5", ENGLISH, target_language="ro")
        assert {each.code for each in client.get_source_languages()} == {"DE", "EN", "FR"}
        assert {each.code for each in client.get_target_languages()} >= {"DE", "FR", "RO", "ES", "EN-US"}


def test_libretranslate(address, expected):
    client = LibreTranslateAPI(address)
    assert client.translate(GERMAN, "de", "fr") == expected("nllb", GERMAN, source_language="de", target_language="fr")
    assert client.translate(GERMAN, "auto", "en") == expected(
        "nllb", GERMAN, source_language="de", target_language="en"
    )
    assert client.translate(ENGLISH, "en", "es") == expected("mt5", ENGLISH)
    assert {each["code"]: set(each["targets"]) for each in client.languages()} == {
        "de": {"en", "es", "fr", "ro"},
        "en": {"de", "es", "fr", "ro"},
        "es": set(),
        "fr": {"de", "en", "es", "ro"},
        "ro": set(),
    }


@pytest.mark.parametrize(
    ("family", "flags", "message"),
    [
        ("nllb", ["--prefix", "translate: "], "--prefix is for T5"),
        ("nllb", ["--target-languages", "de,tlh"], "--target-languages: 'tlh' is none of the model's languages"),
        ("nllb", ["--languages", "en"], "--languages must be source and target such as de-en, not 'en'"),
        ("t5", ["--source-languages", "en"], "--source-languages is for models"),
        ("t5", ["--languages", "de-en"], "config.json has prompts for en-de, en-fr, en-ro"),
        ("mt5", ["--prefix", "translate: "], "--prefix needs --languages"),
    ],
)
def test_flags_that_do_not_fit_are_refused(directory, tmp_path, family, flags, message):
    result = run_cli("import", directory / family, "--output", tmp_path, "--licence", "CC0-1.0", *flags)
    assert message in str(result.code)
    assert list(tmp_path.iterdir()) == []
