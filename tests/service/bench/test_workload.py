"""Tests of what a load test asks for."""

import base64
import io
import json

import pytest
from PIL import Image

from service.bench.options import Load, UsageError
from service.bench.sentences import ENGLISH, GERMAN
from service.bench.served import Served
from service.bench.workload import Workload


def served(task, **more):
    return Served(name="some", version=2, task=task, **{"limits": {}, **more})


def bodies(task, options=None, count=50, **more):
    workload = Workload(served(task, **more), options or Load())
    return workload.path, [json.loads(workload.body()) for _ in range(count)]


def test_next_words_are_asked_after_contexts_that_do_not_come_again():
    path, found = bodies("language-model", count=200)
    assert path == "/v1/next-word"
    assert all(set(body) == {"context", "model", "truncate"} and body["model"] == "some:2" for body in found)
    contexts = [body["context"][0] for body in found]
    assert len(set(contexts)) > 190
    lengths = {len(context.split()) for context in contexts}
    assert min(lengths) >= 1
    assert 20 < max(lengths) <= 40


@pytest.mark.parametrize(
    ("task", "options", "path"),
    [
        ("language-model", Load(endpoint="score"), "/v1/score"),
        ("translation", Load(), "/v1/translate"),
        ("text-generation", Load(), "/v1/generate-text"),
        ("text-classification", Load(), "/v1/classify"),
    ],
)
def test_the_endpoint_of_each_task(task, options, path):
    found, (body,) = bodies(task, options, count=1)
    assert found == path
    assert set(body) == {"text", "model", "truncate"}
    assert len(body["text"]) == 1


def test_a_translator_gets_texts_of_its_language():
    german = bodies("translation", languages={"source": "de"})[1]
    assert {body["text"][0] for body in german} <= set(GERMAN)
    other = bodies("translation", languages={"source": "en"})[1]
    assert {body["text"][0] for body in other} <= set(ENGLISH)
    assert len({body["text"][0] for body in german}) > 10


def test_two_runs_ask_the_same_but_of_what_caches_its_answers():
    assert bodies("translation") == bodies("translation")
    assert bodies("language-model") != bodies("language-model")


def test_a_file_is_sent_in_turn_and_again(tmp_path):
    path = tmp_path / "texts"
    path.write_bytes("one\r\n\n  zwei Wörter\x0b\u2028drei\n".encode())
    options = Load(file=path, texts_per_request=3, model="some:2", beam_size=4)
    _, (body,) = bodies("translation", options, count=1)
    assert body == {"text": ["one", "zwei Wörter\x0b\u2028drei", "one"], "model": "some:2", "beam_size": 4}


@pytest.mark.parametrize(
    ("content", "text"), [(b"\xff\xfe", "not of UTF-8"), (b"\n \n", "holds no text"), (None, "No such file")]
)
def test_a_bad_file_is_named(content, text, tmp_path):
    path = tmp_path / "texts"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=text) as caught:
        Workload(served("translation"), Load(file=path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("task", "options", "text"),
    [
        ("translation", Load(endpoint="score"), "--endpoint is for language models; some is for translation"),
        ("language-model", Load(beam_size=2), "--beam-size is for models that write texts"),
        ("image-classification", Load(file="x"), "--file is for texts; some reads images"),
        ("speech", Load(), "some is for speech, which this version cannot ask for"),
    ],
)
def test_what_does_not_fit_the_task_is_refused(task, options, text):
    with pytest.raises(UsageError, match=text):
        Workload(served(task), options)


@pytest.mark.parametrize(("most", "side"), [(None, 256), (400, 20), (1, 1), (10**9, 256)])
def test_images_differ_and_are_no_larger_than_the_model_takes(most, side):
    _, found = bodies("image-classification", count=9, limits={"max_pixels": most})
    assert all(set(body) == {"image", "model"} for body in found)
    files = [base64.b64decode(body["image"][0], validate=True) for body in found]
    assert len(set(files)) == 8
    assert files[0] == files[8]
    assert {Image.open(io.BytesIO(file)).size for file in files} == {(side, side)}


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b'{"results": [1, 2]}', None),
        (b'{"results": [1]}', "1 results for 2 texts"),
        (b'{"results": 2}', "the answer has no results"),
        (b"[1, 2]", "the answer has no results"),
        (b"<html>", "the answer is no JSON"),
        (b"\xff", "the answer is no JSON"),
    ],
)
def test_an_answer_needs_a_result_for_each_text(content, wrong):
    assert Workload(served("translation"), Load(texts_per_request=2)).wrong(content) == wrong
