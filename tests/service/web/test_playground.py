"""The views of the playground in Chromium: what they send, what they show, and how they are used."""

import json
import re
import subprocess
import sys
from urllib.parse import unquote_plus

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.fixtures.bundled import NEXT_WORD_VERSION
from tests.fixtures.optional_tools import needs

pytestmark = needs("chromium")

VIEWS = ["next-word", "score", "translate", "classify"]
LIMIT = 100_000
"""Bytes of the page, in all and uncompressed."""


def percent(probability):
    if probability * 100 < 0.01:
        return "< 0.01 %"
    return f"{probability * 100:.{2 if probability * 100 < 0.1 else 1}f} %"


def number(value):
    return f"{value:.2f}".replace("-", "−")


@pytest.mark.parametrize(("width", "scheme"), [(1180, "light"), (360, "dark")])
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_accessible_fits_and_sends_one_request(playground, server, view, width, scheme):
    opened = playground(f"#{view}", width=width, scheme=scheme)
    opened.settle()
    page = opened.page
    assert len(opened.posts) == 1
    assert {address.startswith(server.address) for address in opened.addresses} == {True}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for each in page.locator("details").all():
        each.locator("summary").click()
    found = Axe().run(page).response["violations"]
    assert [each for each in found if each["impact"] in ("serious", "critical")] == []
    assert page.locator("figure, table").count() > 0
    assert page.locator("figure").count() == page.locator("figure:has(table)").count()


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_the_reference_follows_the_colour_scheme(playground, server, scheme, dark):
    opened = playground(scheme=scheme)
    opened.page.goto(f"{server.address}/docs")
    opened.page.locator(".opblock").first.wait_for()
    assert opened.page.evaluate("document.documentElement.classList.contains('dark-mode')") is dark


def test_a_long_text_leaves_the_answer_in_view(playground):
    opened = playground("#classify", width=1180)
    opened.settle()
    opened.page.locator("textarea").first.fill("play\n" * 40)
    opened.settle()
    box = opened.page.locator("textarea").first.bounding_box()
    assert box["height"] <= opened.page.viewport_size["height"] / 2


def test_the_page_is_light_and_paints_before_a_model_answers(playground):
    opened = playground()
    opened.settle()
    timing = opened.page.evaluate(
        "() => ({paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,"
        " files: [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".map(each => [each.name, each.decodedBodySize, each.encodedBodySize, each.responseEnd])})"
    )
    answers = [end for name, *_, end in timing["files"] if "/v1/" in name]
    files = [sizes for name, *sizes, _ in timing["files"] if "/v1/" not in name and "readyz" not in name]
    assert len(answers) == 2
    assert timing["paint"] < max(answers)
    assert len(files) > 10
    assert 50_000 < sum(decoded for decoded, _ in files) < LIMIT
    assert sum(encoded for _, encoded in files) < LIMIT / 2


def test_next_words_are_those_of_the_service(playground, server):
    opened = playground("#next-word?context=we+had+a+very&words=5")
    assert opened.settle().startswith("Most probable: good, ")
    body = {"context": ["", "we", "we had", "we had a", "we had a very"], "top_k": 5, "explain": True}
    assert opened.posts == [body | {"model": f"next-word:{NEXT_WORD_VERSION}"}]
    results = server.post("/v1/next-word", opened.posts[0])["results"]
    words, entropy = opened.page.locator("figure table").all()
    expected = [[each["word"], "", percent(each["probability"])] for each in results[-1]["words"]]
    rest = 1 - results[-1]["unknown_probability"] - sum(each["probability"] for each in results[-1]["words"])
    assert opened.rows(words) == [
        *expected,
        ["all other words", percent(rest)],
        ["words outside the vocabulary", percent(results[-1]["unknown_probability"])],
    ]
    opened.page.get_by_text("As a table").click()
    after = ["start", "we", "had", "a", "very"]
    entropies = [[word, number(each["entropy"])] for word, each in zip(after, results, strict=True)]
    assert opened.rows(entropy) == entropies


def test_the_weights_of_a_mixture_are_those_of_the_service(playground, server):
    opened = playground("#next-word?context=one+cow&model=toy%3A1")
    opened.settle()
    assert opened.posts[0]["model"] == "toy:1"
    components = server.post("/v1/next-word", opened.posts[0])["results"][-1]["components"]
    assert len(components) == 2
    mixture = opened.page.locator("figure table").last
    assert opened.rows(mixture) == [[each["kernel"], "", percent(each["weight"])] for each in components]


def test_typing_sends_one_request_once_it_has_settled(playground):
    opened = playground("#next-word?context=")
    opened.settle()
    field, clock = opened.page.get_by_label("Beginning of a sentence"), opened.page.clock
    clock.install()
    clock.pause_at(opened.page.evaluate("Date.now()") + 1000)  # so that no key is late, however busy the machine is
    for key in "do you like coff":
        field.press_sequentially(key)
        clock.run_for(200)
    assert len(opened.posts) == 1
    clock.run_for(400)
    opened.settle()
    assert [each["context"][-1] for each in opened.posts[1:]] == ["do you like coff"]
    field.press("e")
    clock.run_for(100)
    field.press("Backspace")
    clock.run_for(600)
    assert len(opened.posts) == 2  # the same input again
    clock.resume()


def test_a_click_appends_a_word(playground):
    opened = playground("#next-word?context=we+had+a+very")
    opened.settle()
    opened.page.get_by_role("button", name="good", exact=True).click()
    expect(opened.page.get_by_label("Beginning of a sentence")).to_have_value("we had a very good")
    expect(opened.page).to_have_url(re.compile(r"very\+good"))
    opened.settle()
    assert opened.posts[-1]["context"][-1] == "we had a very good"
    assert len(opened.posts) == 2


def test_a_view_is_used_by_keyboard_alone(playground):
    opened = playground()
    opened.settle()
    page = opened.page

    def tab_to(name):
        for _ in range(40):
            page.keyboard.press("Tab")
            found = page.evaluate(
                "[document.activeElement.textContent, document.activeElement.labels?.[0]?.textContent]"
            )
            if name in [each and each.strip() for each in found]:
                return
        raise AssertionError(f"{name} is not in the tab order")

    tab_to("Score")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Score")
    tab_to("Sentences, one on each line")
    page.keyboard.press("Control+A")
    page.keyboard.type("tom drinks green milk.")
    opened.settle("Perplexity")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('token')"):
            break
    page.keyboard.press("Home")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("green, rank ")
    expect(page.locator(".expected")).to_contain_text("green has rank")
    page.keyboard.press("Tab")
    assert not page.evaluate("document.activeElement.classList.contains('token')")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_words_are_coloured_by_rank_with_thresholds_of_the_reader(playground, server):
    opened = playground("#score?text=tom+drinks+green+milk.%0Athe+cat+is+here.")
    opened.settle("2 sentences")
    results = server.post("/v1/score", opened.posts[0])["results"]
    page = opened.page

    def classes():
        return [
            next(int(name[-1]) for name in each.split() if name.startswith("rank-"))
            for each in page.locator(".card button.token").evaluate_all("all => all.map(each => each.className)")
        ]

    ranks = [token["rank"] for result in results for token in result["tokens"]]
    assert classes() == [sum(rank > bound for bound in (10, 100, 1000)) for rank in ranks]
    page.get_by_label("Ranks of class 2: up to").fill("20")
    page.get_by_label("Ranks of class 1: up to").fill("2")
    assert classes() == [sum(rank > bound for bound in (2, 20, 1000)) for rank in ranks]
    assert len(set(classes())) > 2
    assert len(opened.posts) == 1
    token = results[0]["tokens"][1]
    page.locator(".card button.token").nth(1).hover()
    shown = page.locator(".expected").first
    expect(shown).to_contain_text(f"drinks has rank {token['rank']:,} of 7,729")
    expect(shown).to_contain_text(token["alternatives"][0]["word"])
    rows = opened.rows(page.locator(".card").first.locator("table.total"))
    assert rows == [[number(results[0]["log_probability"]), number(results[0]["perplexity"]), "6"]]


def test_two_models_are_compared_word_by_word(playground, server):
    opened = playground("#score?text=One+cow+now+likes+two.")
    opened.settle("Perplexity")
    opened.page.get_by_label("Difference to").select_option("toy:1")
    opened.settle("two models")
    assert [each["model"] for each in opened.posts[1:]] == [f"next-word:{NEXT_WORD_VERSION}", "toy:1"]
    first, second = (server.post("/v1/score", body)["results"][0]["tokens"] for body in opened.posts[1:])
    expected = [b["log_probability"] - a["log_probability"] for a, b in zip(first, second, strict=True)]
    shown = opened.page.locator(".card .token small").all_inner_texts()
    assert [float(each.replace("−", "-")) for each in shown] == pytest.approx(expected, abs=0.051)
    signs = opened.page.locator(".card .token").evaluate_all("all => all.map(each => each.className)")
    assert {"token more", "token less"} <= set(signs)
    opened.page.get_by_text("As a table").click()
    rows = opened.rows(opened.page.locator("figure table"))
    assert [row[0] for row in rows] == ["One", "cow", "now", "likes", "two", ".", "end"]
    assert rows[0][1:3] == [number(first[0]["log_probability"]), number(second[0]["log_probability"])]


def test_sentences_are_translated_one_by_one(playground, server):
    opened = playground(
        "#translate?text=Guten+Morgen!%0A%0ADr.+Müller+trinkt+Kaffee.+Hello+my+friend,+how+are+you%3F&n_best=3"
    )
    assert opened.settle() == "3 sentences translated, 1 with low confidence."
    page = opened.page
    (body,) = opened.posts
    assert body["text"] == ["Guten Morgen!", "Dr. Müller trinkt Kaffee.", "Hello my friend, how are you?"]
    results = server.post("/v1/translate", body)["results"]
    best = [result["translations"][0]["text"] for result in results]
    output = page.get_by_label("Translation", exact=True)
    expect(output).to_have_value(f"{best[0]}\n\n{best[1]} {best[2]}")
    expect(page.get_by_text("70 characters, 3 sentences")).to_be_visible()
    expect(page.get_by_text("the text seems to be English, not German")).to_be_visible()
    rows = [opened.rows(table) for table in page.locator("table.choices").all()]
    assert rows == [[[each["text"], number(each["score"])] for each in result["translations"]] for result in results]
    page.get_by_role("radio", name=results[0]["translations"][1]["text"]).check()
    expect(output).to_have_value(f"{results[0]['translations'][1]['text']}\n\n{best[1]} {best[2]}")
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the translation").click()
    assert page.evaluate("navigator.clipboard.readText()") == output.input_value()
    assert len(opened.posts) == 1


def test_languages_are_swapped_where_a_model_translates_back(playground):
    opened = playground("#translate?text=Guten+Morgen!&model=de-en%3A2")
    opened.settle()
    translation = opened.page.get_by_label("Translation", exact=True).input_value()
    opened.page.get_by_role("button", name="Swap languages and texts").click()
    expect(opened.page.get_by_label("Text", exact=True)).to_have_value(translation)
    assert opened.page.locator(".language").all_inner_texts() == ["English", "German"]
    opened.settle()
    assert opened.posts[-1]["model"] == "en-de:1"


def test_classes_of_probability_zero_and_the_threshold_are_said(playground, server):
    opened = playground("#classify?text=book+a+table")
    opened.settle("Best class: restaurant_reservation")
    page = opened.page
    (result,) = server.post("/v1/classify", {"text": "book a table", "top_k": 150})["results"]
    labels = result["labels"]
    zeros = 150 - len(labels)
    assert zeros > 100
    page.get_by_role("button", name="more class").click()
    rows = opened.rows(page.locator("figure table"))
    assert rows[: len(labels)] == [[each["label"], "", percent(each["probability"])] for each in labels]
    assert rows[-1] == [f"{zeros} other classes", "", "exactly 0"]
    rule = next(
        each for each in page.evaluate("fetch('v1/models').then(each => each.json())")["models"] if each["classes"]
    )
    assert rule["out_of_scope"]["score"] == "logit", "so that its threshold is no place in a bar of probabilities"
    assert page.locator(".mark").count() == 0
    expect(page.get_by_text(f"before the softmax is below {rule['out_of_scope']['threshold']:.2f}")).to_be_visible()
    expect(page.get_by_text("this one is in scope")).to_be_visible()
    page.get_by_role("button", name="asdfghjkl").click()
    opened.settle("Out of scope")
    expect(page.get_by_text("this one is out of scope")).to_be_visible()


def test_a_set_of_next_words_is_asked_for_by_its_coverage(playground, running):
    server = running(models=("next-word",))
    opened = playground("#next-word?context=We+had+a+very&coverage=0.7", address=server.address, width=360)
    opened.settle("Most probable: good")
    page = opened.page
    assert opened.posts[-1]["coverage"] == 0.7
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    (result,) = server.post("/v1/next-word", {"context": "We had a very", "coverage": 0.7})["results"]
    words = [each["word"] for each in result["words"]]
    assert [row[0] for row in opened.rows(page.locator("figure table").first)][: len(words)] == words
    expect(page.get_by_text(f"by {result['calibration_examples']:,} calibration examples")).to_be_visible()
    page.get_by_label("Choose").select_option("")
    opened.settle()
    assert "coverage" not in opened.posts[-1]
    assert opened.posts[-1]["top_k"] == 10


def test_a_set_of_translations_is_asked_for_by_its_coverage(playground, server):
    opened = playground("#translate?text=Das+ist+gut.&coverage=0.95&model=de-en%3A4")
    opened.settle("1 sentence translated")
    page = opened.page
    assert opened.posts[-1]["coverage"] == 0.95
    assert "beam_size" not in opened.posts[-1]
    (result,) = server.post("/v1/translate", {"text": "Das ist gut.", "coverage": 0.95, "model": "de-en"})["results"]
    assert len(opened.rows(page.locator("table.choices"))) == len(result["translations"])
    expect(page.get_by_text(f"by {result['calibration_examples']:,} calibration examples")).to_be_visible()
    page.get_by_label("Choose").select_option("")
    opened.settle()
    assert "coverage" not in opened.posts[-1]
    assert opened.posts[-1]["beam_size"] == 5


def test_a_prediction_set_is_asked_for_by_its_coverage(playground, server):
    opened = playground("#classify?text=book+a+table&coverage=0.99")
    opened.settle("Best class: restaurant_reservation")
    page = opened.page
    assert opened.posts[-1]["coverage"] == 0.99
    (result,) = server.post("/v1/classify", {"text": "book a table", "coverage": 0.99})["results"]
    rows = opened.rows(page.locator("figure table"))
    assert rows == [[each["label"], "", percent(each["probability"])] for each in result["labels"]]
    expect(page.get_by_text(f"by {result['calibration_examples']:,} calibration examples")).to_be_visible()
    page.get_by_label("Classes").select_option("")
    opened.settle()
    assert "coverage" not in opened.posts[-1]
    assert len(opened.rows(page.locator("figure table"))) > len(rows)


def test_other_thresholds_and_what_they_refuse_are_shown(playground):
    opened = playground("#classify?text=book+a+table")
    opened.settle()
    page = opened.page
    page.get_by_text("What other thresholds refuse").click()
    rows = opened.rows(page.get_by_role("region", name="Thresholds").locator("table"))
    rule = next(
        each for each in page.evaluate("fetch('v1/models').then(each => each.json())")["models"] if each["classes"]
    )["out_of_scope"]
    in_use = [percent(rule["rejected"]), percent(rule["detected"])]
    assert [row[1:] for row in rows if "in use" in row[0]] == [in_use]
    points = {(percent(each["rejected"]), percent(each["detected"])) for each in rule["trade_off"]}
    assert len(rows) > 4
    assert {tuple(row[1:]) for row in rows if "in use" not in row[0]} <= points
    thresholds = [float(row[0].split()[-1]) for row in rows]
    assert thresholds == sorted(thresholds)


@pytest.mark.parametrize(
    ("view", "field", "value"),
    [
        ("next-word", "context", "a & b = c? #d\n50 %"),
        ("score", "text", "one.\ntwo."),
        ("translate", "text", "Straße über Käse. 🙂"),
        ("classify", "text", "+1 ~ 2"),
    ],
)
def test_the_address_holds_the_state(playground, view, field, value):
    opened = playground(f"#{view}")
    opened.settle()
    page = opened.page
    page.locator("textarea:not([readonly])").fill(value)
    expect(page).to_have_url(re.compile(r"\?"))
    hash_ = page.evaluate("location.hash")
    assert hash_.startswith(f"#{view}?{field}=")
    assert unquote_plus(hash_.partition("=")[2]) == value
    again = playground(hash_)
    expect(again.page.locator("textarea:not([readonly])")).to_have_value(value)
    again.settle()
    opened.settle()


def test_the_links_of_the_views_keep_their_inputs(playground):
    opened = playground("#classify")
    opened.settle()
    opened.page.get_by_label("Text", exact=True).fill("play some music")
    opened.page.get_by_role("link", name="Translate").click()
    expect(opened.page.get_by_role("heading", level=1)).to_have_text("Translate")
    opened.settle()
    opened.page.get_by_role("link", name="Classify").click()
    expect(opened.page.get_by_label("Text", exact=True)).to_have_value("play some music")
    opened.page.go_back()
    expect(opened.page.get_by_role("heading", level=1)).to_have_text("Translate")
    opened.settle()


def test_an_input_is_never_written_into_the_address_of_another_view(playground):
    opened = playground("#classify")
    opened.settle()
    page = opened.page
    page.evaluate(
        "() => { const later = setTimeout; window.timers = [];"
        " window.setTimeout = (run, ...rest) => { window.timers.push(run); return later(run, ...rest); } }"
    )
    page.get_by_label("Text", exact=True).fill("play some music")
    expect(page).to_have_url(re.compile(r"\?text="))
    # The address changes, and a timer of the old view ends before the page is told.
    page.evaluate("() => { location.hash = '#translate'; for (const run of timers) run(); }")
    assert page.evaluate("location.hash") == "#translate"
    expect(page.get_by_role("heading", level=1)).to_have_text("Translate")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Classify")
    opened.settle()


MARKUP = "<img src=x onerror=\"document.title='broken in'\"> <script>document.title='broken in'</script> &lt;b&gt;"


@pytest.mark.parametrize(
    ("view", "field"), [("next-word", "context"), ("score", "text"), ("translate", "text"), ("classify", "text")]
)
def test_text_never_becomes_markup(playground, view, field):
    opened = playground(f"#{view}")
    opened.settle()
    opened.page.locator("textarea:not([readonly])").fill(MARKUP)
    opened.page.wait_for_timeout(500)
    opened.settle()
    assert opened.page.locator("#app img, #app script, #app b:text('<')").count() == 0
    assert opened.page.title().endswith("Softserve")
    assert opened.posts[-1][field][-1] in MARKUP or opened.posts[-1][field] == MARKUP
    forbidden = "document.body.innerHTML = '<b>x</b>'"
    assert "TrustedHTML" in opened.page.evaluate(
        f"() => {{ try {{ {forbidden} }} catch (error) {{ return error.message }} }}"
    )
    opened.console.clear()  # of the attempt


@needs("curl")
def test_the_request_is_shown_as_curl_and_python_that_run(playground, server):
    opened = playground("#score?text=it's+a+%22test%22+of+%24HOME+%5C+%60.")
    opened.settle("Perplexity")
    opened.page.get_by_text("This request as").click()
    answers = []
    for name, command in (("curl", ["bash", "-c"]), ("Python", [sys.executable, "-c"])):
        opened.page.get_by_role("button", name=name, exact=True).click()
        text = opened.page.locator("pre").inner_text()
        finished = subprocess.run([*command, text], capture_output=True, text=True, timeout=60, check=True)
        answers.append(finished.stdout)
    expected = server.post("/v1/score", opened.posts[0])
    assert json.loads(answers[0])["results"][0]["text"] == 'it\'s a "test" of $HOME \\ `.'
    assert json.loads(answers[0]) == expected
    assert answers[1].strip() == str(expected)


def test_the_timing_of_a_call_is_that_of_the_server(playground):
    opened = playground("#classify")
    opened.settle()
    with opened.page.expect_response("**/v1/classify") as found:
        opened.page.get_by_role("button", name="what is on my to do list").click()
    header = found.value.headers["server-timing"]
    infer = float(header.rpartition("infer;dur=")[2])
    opened.settle()
    expect(opened.page.locator(".timing")).to_contain_text(f"inference{infer:.{1 if infer < 10 else 0}f}\u00a0ms")
    assert opened.page.locator(".timing dt").all_inner_texts() == [
        "queue",
        "tokenize",
        "inference",
        "in all, from this page",
    ]


@pytest.mark.parametrize(
    ("operation", "body", "field", "changed", "shown"),
    [
        ("translate", {"text": "Guten Morgen!"}, "N best", {"n_best": 2}, "Good morning!"),
        ("next-word", {"context": "we had a very"}, "Top k", {"top_k": 2}, "good"),
        ("classify", {"text": "book a table for two"}, "Top k", {"top_k": 2}, "restaurant_reservation"),
    ],
)
def test_an_operation_without_a_view_has_a_form(playground, server, operation, body, field, changed, shown):
    opened = playground("#score")
    opened.settle()
    page = opened.page

    def without_views(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace("!covered.includes(each)", "true"))

    page.route("**/app.js", without_views)
    page.goto(f"{server.address}/#other?operation={operation}")
    page.reload()
    opened.settle("Answered.")
    model = opened.posts[-1].pop("model")
    assert opened.posts[-1] == body
    assert operation in server.get(f"/v1/models/{model}").json()["models"][0]["operations"]
    page.get_by_label(field).fill("2")
    page.get_by_label(field).press("Tab")
    page.wait_for_url("**params=*")
    opened.settle("Answered.")
    expect(page.locator("table.plain table.plain tbody tr")).to_have_count(2)
    expect(page.get_by_role("cell", name=shown, exact=True)).to_be_visible()
    assert opened.posts[-1] == {**body, **changed, "model": model}
    assert Axe().run(page).response["violations"] == []
