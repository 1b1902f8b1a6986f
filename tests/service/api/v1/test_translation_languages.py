"""Tests of translation into a language of the client's choice."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import Settings
from tests.fixtures.marian import LANGUAGES
from tests.support.marian_directory import SENTENCES

TEXT = " ".join(SENTENCES[:2])


@pytest.fixture(scope="module")
def client(
    many_languages_bundle: Path, wait_until: Callable[..., None], _no_settings_from_outside: None
) -> Iterator[TestClient]:
    settings = Settings(threads=1, model_dirs=(many_languages_bundle.parents[1],))
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def translate(client: TestClient, **body: Any) -> Any:
    return client.post("/v1/translate", json={"text": TEXT, "beam_size": 1, **body})


def test_the_language_is_chosen_by_the_request(client: TestClient) -> None:
    texts = {
        code: translate(client, target_language=code).json()["results"][0]["translations"][0]["text"]
        for code in (None, *LANGUAGES)
    }
    assert texts[None] == texts["spa"], "the default"
    assert len(set(texts.values())) == len(LANGUAGES)


@pytest.mark.parametrize("code", ["fr", "FRA", "fr-CA"])
def test_other_codes_of_a_language_are_known(code: str, client: TestClient) -> None:
    assert translate(client, target_language=code).json() == translate(client, target_language="fra").json()


@pytest.mark.parametrize("code", ["", "ja", "srp_Latn", ">>fra<<"])
def test_another_language_is_refused_and_the_known_ones_are_named(
    code: str, client: TestClient, detail_of: Callable[..., str]
) -> None:
    detail = detail_of(translate(client, target_language=code), 422)
    assert "target_language must be one of fra, spa, srp_Cyrl" in detail


def test_a_code_is_bounded(client: TestClient) -> None:
    assert translate(client, target_language="x" * 17).status_code == 422


def test_the_list_of_models_has_the_languages(client: TestClient) -> None:
    (model,) = client.get("/v1/models").json()["models"]
    assert model["languages"] == {"source": "de", "target": "spa", "targets": list(LANGUAGES)}
