"""Translation through a third language, by two models: `/v1/translate`, `/v1/languages` and `/v1/documents`."""

import json

import pytest
from fastapi.testclient import TestClient

from models import ModelStore
from service.server.app import create_app
from service.settings import Settings
from tests.support.renamed_translator import write_translator
from tests.support.waiting import wait_until

TEXT = "Guten Morgen! Wie geht es dir?\n\nDer Zug kommt um 3:45 Uhr."


@pytest.fixture(scope="module")
def client(pivot_models, tmp_path_factory):
    database = tmp_path_factory.mktemp("pivot") / "jobs.db"
    settings = Settings(
        threads=1,
        model_dirs=(pivot_models,),
        database=f"sqlite:///{database}",
        default_target_language="fr",
    )
    with TestClient(create_app(settings, load_first=True)) as client:
        yield client


@pytest.fixture(scope="module")
def models(pivot_models):
    store = ModelStore(pivot_models)
    return store.load("de-en", threads=1), store.load("en-fr", threads=1)


def translate(client, text=TEXT, status=200, **fields):
    found = client.post("/v1/translate", json={"text": text, **fields})
    assert found.status_code == status, found.text
    return found.json()["results"][0] if status == 200 else found.json()["detail"]


def test_each_sentence_is_translated_twice_and_lines_are_kept(client, models):
    found = translate(client, source_language="de", target_language="fr", confidences=True)
    assert (found["via"], found["models"]) == ("en", ["de-en:1", "en-fr:1"])
    (best,) = found["translations"]
    between = models[0].translate([TEXT])[0].translations[0].text
    lines = [models[1].translate([line])[0].translations[0].text for line in between.split("\n")]
    assert best["text"] == "\n".join(lines)
    spans = [(TEXT[slice(*each["source"])], best["text"][slice(*each["target"])]) for each in best["sentences"]]
    assert [source for source, _ in spans] == ["Guten Morgen!", "Wie geht es dir?", "Der Zug kommt um 3:45 Uhr."]
    assert " ".join(target for _, target in spans) == " ".join(best["text"].split())
    assert "3:45" in spans[2][1]
    assert 0 < found["confidence"] <= min(each["confidence"] for each in best["sentences"])


def test_the_language_of_the_text_chooses_the_route(client):
    assert translate(client)["via"] == "en"
    english = translate(client, "Where is the next station, please?")
    assert "via" not in english
    assert "via" not in translate(client, target_language="en")


def test_links_and_alternatives_go_through_both_steps(client):
    text = "Der Hund schläft."
    found = translate(client, text, source_language="de", alignment=True, n_best=3)
    assert len(found["translations"]) == 3
    best = found["translations"][0]
    links = {(text[slice(*each["source"])], best["text"][slice(*each["target"])]) for each in best["alignment"]}
    assert {("Hund", "dog"), (".", ".")} <= links


def test_terms_are_those_of_the_text(client):
    text = "Es ist spät. Der Vertrag ist gut."
    found = translate(client, text, source_language="de", glossary={"Vertrag": "agreement"})
    best = found["translations"][0]
    (use,) = best["glossary"]
    assert (use["term"], use["used"], text[slice(*use["source"])]) == ("Vertrag", True, "Vertrag")
    assert best["text"][slice(*use["target"])] == "agreement"


def test_parts_are_protected_in_both_steps(client):
    text = "Die Firma Grünbaum schläft."
    found = translate(client, text, source_language="de", protect=[r"(?<=Firma )\w+"])
    assert "Grünbaum" in found["translations"][0]["text"]


def test_markup_goes_through_both_steps(client):
    found = translate(client, "<p>Der <b>Hund</b> schläft.</p>", source_language="de", format="html")
    assert found["translations"][0]["text"] == "<p>The <b>dog</b> is sleeping.</p>"


@pytest.mark.parametrize("field", [{"alignment": True}, {"confidences": True}, {"glossary": {"Hund": "dog"}}])
def test_what_markup_cannot_have_is_refused(client, field):
    detail = translate(client, "<b>Hund</b>", 422, source_language="de", format="html", **field)
    assert detail == f"{next(iter(field))}: there is none of texts with markup through a third language"


def test_sets_go_through_no_third_language(client):
    detail = translate(client, "Hund", 422, source_language="de", coverage=0.5)
    assert detail == "coverage: there is none of translations through a third language"


def test_a_text_without_words_stays(client):
    found = translate(client, "123", source_language="de", alignment=True)
    assert found["translations"] == [{"text": "123", "score": 0.0, "alignment": []}]


def test_a_named_model_is_never_a_step(client):
    assert "target_language must be one of en" in translate(client, status=422, model="de-en", target_language="fr")
    assert "via" not in translate(client, model="de-en")


def test_one_deadline_and_one_answer(client):
    body = {"text": [TEXT] * 20, "source_language": "de"}
    late = client.post("/v1/translate", json=body, headers={"X-Request-Timeout-Ms": "1"})
    assert late.status_code in (429, 504)
    many = client.post("/v1/translate", json=body)
    assert [each["text"] for each in many.json()["results"]] == [TEXT] * 20
    assert "infer" in many.headers["server-timing"]


def test_pairs_are_listed(client):
    listed = client.get("/v1/languages").json()
    assert listed["default_target"] == "fr"
    german, english = listed["languages"]
    assert german["targets"] == [
        {"code": "en", "models": ["de-en:1"], "via": None},
        {"code": "fr", "models": ["de-en:1", "en-fr:1"], "via": "en"},
    ]
    assert (english["code"], [each["code"] for each in english["targets"]]) == ("en", ["fr"])
    assert client.get("/v1/languages?source=deu").json()["languages"] == [german]


def test_a_document_goes_through_both_steps(client):
    content = json.dumps({"a": "Der Hund schläft.", "b": "Wie geht es dir heute?"}).encode()
    accepted = client.post("/v1/documents?name=a.json", content=content).json()
    path, key = f"/v1/documents/{accepted['id']}", {"X-Document-Key": accepted["key"]}
    wait_until(lambda: client.get(path, headers=key).json()["status"] in ("done", "error"))
    status = client.get(path, headers=key).json()
    assert (status["status"], status["via"], status["model"], status["failed"]) == ("done", "en", "en-fr:1", 0)
    assert client.get(f"{path}/result", headers=key).json()["a"] == "The dog is sleeping."


def test_terms_need_a_first_model_with_word_alignment(pivot_models, tmp_path):
    write_translator(tmp_path, "de", "en", alignment=None)
    write_translator(tmp_path, "en", "fr")
    settings = Settings(threads=1, model_dirs=(tmp_path,))
    with TestClient(create_app(settings, load_first=True)) as client:
        fields = {"source_language": "de", "target_language": "fr"}
        detail = translate(client, status=422, glossary={"Zug": "train"}, **fields)
        assert detail.startswith("glossary: through a third language it needs a first model with word alignment")
        assert translate(client, **fields)["via"] == "en"


def test_without_the_setting_there_is_no_third_language(pivot_models):
    settings = Settings(threads=1, model_dirs=(pivot_models,), pivot_language="none")
    with TestClient(create_app(settings, load_first=True)) as client:
        detail = translate(client, status=422, source_language="de", target_language="fr")
        assert detail == "no model translates from 'de' to 'fr'; served: de to en, en to fr"
        assert "there are several models" in translate(client, status=404)
