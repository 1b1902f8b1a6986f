"""Warm-up runs what requests will run."""

from types import SimpleNamespace

import pytest

from models import LanguageModel, Translator
from service.engine.warm_up import warm_up


def language_model(calls, max_tokens=1000):
    model = object.__new__(LanguageModel)
    model.manifest = SimpleNamespace(text=SimpleNamespace(max_tokens=max_tokens))
    for name in ("next_words", "score"):
        setattr(model, name, lambda texts, name=name: calls.append((name, len(texts), len(texts[0].split()))))
    return model


def test_a_language_model_runs_all_lengths_alone_and_as_a_batch():
    calls = []
    warm_up(language_model(calls), max_batch_items=32, parallel_batches=1)
    expected = [
        (name, count, words) for count in (1, 8) for words in (1, 8, 32, 128) for name in ("next_words", "score")
    ]
    assert calls == expected


@pytest.mark.parametrize(("parallel_batches", "runs"), [(1, 1), (2, 3), (3, 3)])
def test_batches_that_will_run_concurrently_are_tried_so(parallel_batches, runs):
    calls = []
    warm_up(language_model(calls, max_tokens=1), max_batch_items=1, parallel_batches=parallel_batches)
    assert sorted(calls) == sorted([("next_words", 1, 1), ("score", 1, 1)] * runs * 2)


def test_a_translator_takes_steps_for_all_at_once_so_that_it_is_never_run_concurrently():
    calls, model = [], object.__new__(Translator)
    model.manifest = SimpleNamespace(text=SimpleNamespace(max_tokens=1000))
    model.translate = lambda texts, truncate: calls.append((len(texts), len(texts[0].split())))
    warm_up(model, max_batch_items=4, parallel_batches=3)
    assert calls == [(1, 1), (1, 32), (4, 1), (4, 32)]


def test_what_a_model_raises_is_raised():
    model = language_model([])
    model.score = lambda texts: 1 / 0
    with pytest.raises(ZeroDivisionError):
        warm_up(model, max_batch_items=1, parallel_batches=1)
