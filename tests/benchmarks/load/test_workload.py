"""Tests of the requests of a load test."""

import base64
import io
import json

import pytest
from PIL import Image

from benchmarks.load.model_list import ListedModel
from benchmarks.load.options import LoadOptions, UsageError
from benchmarks.load.workload import _TEXTS, Workload, texts_of

ENGLISH, GERMAN = (texts_of(_TEXTS / name) for name in ("en.txt", "de.txt"))

LANGUAGE_MODEL = ("next-word", "score")


def listed_model(*operations, reads="text", **more):
    return ListedModel(name="some", version=2, task="any", operations=operations, reads=reads, **{"limits": {}, **more})


def bodies(operations, options=None, count=50, **more):
    workload = Workload(listed_model(*operations, **more), options or LoadOptions())
    return workload.path, [json.loads(workload.body()) for _ in range(count)]


def test_next_words_are_asked_after_contexts_that_do_not_come_again():
    path, found = bodies(LANGUAGE_MODEL, count=200)
    assert path == "/v1/next-word"
    assert all(set(body) == {"context", "model", "truncate"} and body["model"] == "some:2" for body in found)
    contexts = [body["context"][0] for body in found]
    assert len(set(contexts)) > 190
    lengths = {len(context.split()) for context in contexts}
    assert min(lengths) >= 1
    assert 20 < max(lengths) <= 40


@pytest.mark.parametrize(
    ("operations", "options", "path"),
    [
        (LANGUAGE_MODEL, LoadOptions(endpoint="score"), "/v1/score"),
        (["translate"], LoadOptions(), "/v1/translate"),
        (["generate"], LoadOptions(), "/v1/generate-text"),
        (["classify"], LoadOptions(), "/v1/classify"),
        (["novelty", "classify"], LoadOptions(), "/v1/classify"),
    ],
)
def test_the_endpoint_of_each_operation(operations, options, path):
    found, (body,) = bodies(operations, options, count=1)
    assert found == path
    assert set(body) == {"text", "model", "truncate"}
    assert len(body["text"]) == 1


def test_a_translator_gets_texts_of_its_language():
    german = bodies(("translate",), languages={"source": "de"})[1]
    assert {body["text"][0] for body in german} <= set(GERMAN)
    other = bodies(("translate",), languages={"source": "en"})[1]
    assert {body["text"][0] for body in other} <= set(ENGLISH)
    assert len({body["text"][0] for body in german}) > 10


def test_two_runs_send_the_same_texts_unless_the_server_would_reuse_results():
    assert bodies(("translate",)) == bodies(("translate",))
    assert bodies(LANGUAGE_MODEL) != bodies(LANGUAGE_MODEL)


def test_a_file_is_sent_in_turn_and_again(tmp_path):
    path = tmp_path / "texts"
    path.write_bytes("\ufeffone\r\n\n  zwei Wörter\x0b\u2028drei\n".encode())
    options = LoadOptions(file=path, texts_per_request=3, model="some:2", beam_size=4)
    _, (body,) = bodies(("translate",), options, count=1)
    assert body == {"text": ["one", "zwei Wörter\x0b\u2028drei", "one"], "model": "some:2", "beam_size": 4}


@pytest.mark.parametrize(
    ("content", "text"), [(b"\xff\xfe", "not UTF-8"), (b"\n \n", "holds no text"), (None, "No such file")]
)
def test_a_bad_file_is_named(content, text, tmp_path):
    path = tmp_path / "texts"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=text) as caught:
        Workload(listed_model("translate"), LoadOptions(file=path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        (listed_model("translate"), LoadOptions(endpoint="score"), "--endpoint score: some offers translate"),
        (listed_model("next-word"), LoadOptions(beam_size=2), "--beam-size has no effect on next-word"),
        (listed_model("classify", reads="image"), LoadOptions(file="x"), "--file is for texts; some reads images"),
        (listed_model("transcribe"), LoadOptions(), "some offers transcribe, which this version cannot request"),
    ],
)
def test_options_that_do_not_fit_the_model_are_refused(model, options, text):
    with pytest.raises(UsageError, match=text):
        Workload(model, options)


@pytest.mark.parametrize(("most", "side"), [(None, 256), (400, 20), (1, 1), (10**9, 256)])
def test_images_differ_and_are_no_larger_than_the_model_takes(most, side):
    _, found = bodies(("classify",), reads="image", count=9, limits={"max_pixels": most})
    assert all(set(body) == {"image", "model"} for body in found)
    files = [base64.b64decode(body["image"][0], validate=True) for body in found]
    assert len(set(files)) == 8
    assert files[0] == files[8]
    assert {Image.open(io.BytesIO(file)).size for file in files} == {(side, side)}


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"results": [1, 2]}', None),
        (b'{"results": [1]}', "1 results for 2 texts"),
        (b'{"results": 2}', "the response has no results"),
        (b"[1, 2]", "the response has no results"),
        (b"<html>", "the response is not JSON"),
        (b"\xff", "the response is not JSON"),
    ],
)
def test_an_answer_needs_a_result_for_each_text(content, error):
    assert Workload(listed_model("translate"), LoadOptions(texts_per_request=2)).error_in(content) == error


@pytest.mark.parametrize("sentences", [ENGLISH, GERMAN])
def test_the_built_in_sentences_have_1_to_40_words_and_differ(sentences):
    lengths = [len(sentence.split()) for sentence in sentences]
    assert min(lengths) == 1
    assert 25 <= max(lengths) <= 40
    assert len(set(lengths)) > 8
    assert len(set(sentences)) == len(sentences)
    assert all(sentence.isprintable() and sentence == " ".join(sentence.split()) for sentence in sentences)
