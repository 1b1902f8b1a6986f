"""The translation view in Chromium: words that stand for each other, files, third languages and the default target."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.fixtures.optional_tools import needs

pytestmark = needs("chromium")

TEXT = "Der+Hund+schläft."


@pytest.fixture(scope="module")
def pivot(running, pivot_models, tmp_path_factory):
    """A server with two models, a database of jobs and a default target that no model of German has."""
    database = f"sqlite:///{tmp_path_factory.mktemp('web-jobs') / 'jobs.db'}"
    return running(model_dirs=(pivot_models,), database=database, default_target_language="fr")


def marked(page):
    return page.locator("[data-marked]").all_inner_texts()


def test_words_that_stand_for_each_other_are_marked(playground):
    opened = playground(f"#translate?text={TEXT}&model=de-en%3A4")
    opened.settle()
    page = opened.page
    assert opened.posts[-1]["alignment"] is True
    source, target = page.get_by_label("Words of the text"), page.get_by_label("Words of the translation")
    source.get_by_text("Hund", exact=True).hover()
    expect(page.locator("[data-marked]").first).to_be_visible()
    assert marked(page) == ["Hund", "dog"]
    page.mouse.move(0, 0)
    expect(page.locator("[data-marked]")).to_have_count(0)
    target.get_by_text("dog", exact=True).focus()
    expect(page.locator("[data-marked]")).to_have_count(2)
    page.keyboard.press("End")
    expect(target.get_by_text(".", exact=True)).to_be_focused()
    assert marked(page) == [".", "."]
    expect(page.get_by_role("button", name="Hund: dog")).to_have_count(1)
    assert [each for each in Axe().run(page).response["violations"] if each["impact"] in ("serious", "critical")] == []


def test_the_default_target_is_chosen_and_goes_through_a_third_language(playground, pivot):
    opened = playground(f"#translate?text={TEXT}", address=pivot.address)
    page = opened.page
    expect(page.get_by_label("To", exact=True)).to_have_value("fr")
    expect(page.get_by_label("To", exact=True).locator("option")).to_have_text(["English", "French, through English"])
    opened.settle("1 sentence translated")
    expect(page.get_by_label("Translation", exact=True)).to_have_value("The dog is sleeping.")
    page.wait_for_function("() => document.querySelectorAll('.link').length")
    assert {"source_language": "de", "target_language": "fr"}.items() <= opened.posts[-1].items()
    page.get_by_label("To", exact=True).select_option("en")
    opened.settle()
    page.wait_for_url("**target=en*")
    assert "source_language" not in opened.posts[-1]


def test_a_file_is_translated_and_saved(playground, pivot):
    opened = playground(f"#translate?text={TEXT}", address=pivot.address)
    page = opened.page
    file = {"name": "Brief.txt", "mimeType": "text/plain", "buffer": b"Der Hund ist hier.\n"}
    page.get_by_label("Translate a file").set_input_files(file)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "Brief-translated.txt"
    assert download.value.path().read_text() == "The dog is here.\n"
    expect(page.get_by_label("Progress of Brief.txt")).to_have_js_property("value", 100)
    assert [each for each in Axe().run(page).response["violations"] if each["impact"] in ("serious", "critical")] == []
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Brief.txt")).to_have_count(0)


def test_a_file_can_be_dropped_and_cancelled(playground, pivot):
    opened = playground(f"#translate?text={TEXT}", address=pivot.address)
    page = opened.page
    page.get_by_label("Translate a file").wait_for()
    held = []
    page.route(
        "**/v1/documents/*", lambda route: held.append(route) if route.request.method == "GET" else route.continue_()
    )
    transfer = page.evaluate_handle(
        "() => { const held = new DataTransfer(); held.items.add(new File(['Ja.'], 'a.txt')); return held; }"
    )
    page.dispatch_event(".document", "drop", {"dataTransfer": transfer})
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("a.txt")).to_have_count(0)
    expect(page.get_by_label("Translate a file")).to_be_enabled()


def test_a_file_of_another_format_is_refused(playground, pivot):
    opened = playground(f"#translate?text={TEXT}", address=pivot.address, noise=True)
    file = {"name": "a.pdf", "mimeType": "application/pdf", "buffer": b"x"}
    opened.page.get_by_label("Translate a file").set_input_files(file)
    expect(opened.page.get_by_role("alert")).to_contain_text("no format of documents")


def test_without_a_database_there_is_no_form(playground):
    opened = playground(f"#translate?text={TEXT}")
    opened.settle()
    expect(opened.page.get_by_label("Translate a file")).to_have_count(0)
