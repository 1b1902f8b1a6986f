"""The bundled classifier of intents: its results, and that other texts of the batch do not change them."""

import pytest

from models import Classifier, TextTooLongError

BUDGET = 25_000_000
"""Bytes; history keeps every version."""
INTENTS = {
    "can you book a table for two at that italian place tonight": "restaurant_reservation",
    "what will the weather be like tomorrow": "weather",
    "how do i say good morning in french": "translate",
    "set an alarm for 7 am": "alarm",
    "i need to transfer 100 dollars from checking to savings": "transfer",
    "tell me a joke": "tell_joke",
    "my card was stolen, please freeze my account": "freeze_account",
    "roll a dice": "roll_dice",
}


@pytest.fixture(scope="module")
def classifier(store):
    model = store.load("intents", threads=1)
    assert isinstance(model, Classifier)
    return model


def test_it_is_small(store):
    assert sum(file.stat().st_size for file in store.path("intents").iterdir()) <= BUDGET


def test_it_says_how_good_it_is(classifier):
    quality = {(each.dataset, each.split, each.metric): each.value for each in classifier.manifest.quality}
    assert quality["clinc150", "test", "accuracy"] >= 0.9604
    assert quality["clinc150", "test", "out-of-scope AUROC"] >= 0.9657
    lossy = classifier.manifest.quantization
    assert lossy is not None
    assert lossy.float32_value >= 0.960


def test_it_knows_what_is_wanted(classifier):
    found = classifier.classify(list(INTENTS), 3)
    assert [each.labels[0].label for each in found] == list(INTENTS.values())
    assert all(len(each.labels) == 3 for each in found)


def test_what_it_knows_is_in_scope(classifier):
    assert not any(each.out_of_scope for each in classifier.classify([*INTENTS, "no", "hi"], 1))


LETTERS = ("asdfghjkl", "qwrt zxcv", "", " \n", "🙂", "🎉🎉🎉", ".", "42")
LANGUAGES = (
    "wie wird das Wetter morgen",
    "Hallo",
    "ja",
    "quel temps fera-t-il demain",
    "明日の天気は",
    "какая завтра погода",
)
TOPICS = ("who painted the mona lisa", "the cat sat on the mat")


@pytest.mark.parametrize("text", [*LETTERS, *LANGUAGES, *TOPICS])
def test_what_means_nothing_to_it_is_out_of_scope(classifier, text):
    (found,) = classifier.classify([text], 3)
    assert found.out_of_scope is True
    assert "oos" not in [each.label for each in found.labels]


def test_typing_errors_do_not_hide_what_is_wanted(classifier):
    texts = ["set an alarm fro seven", "wat is my account balnce", "tell me a jok"]
    assert [each.labels[0].label for each in classifier.classify(texts, 1)] == ["alarm", "balance", "tell_joke"]


def test_no_more_than_twenty_classes_have_a_probability(classifier):
    (found,) = classifier.classify(["what is my balance"], 150)
    assert 1 <= len(found.labels) <= 20
    assert 0.9 < sum(each.probability for each in found.labels) <= 1 + 1e-5, "the rest is that of no class"


def test_neighbours_do_not_change_an_answer(classifier):
    texts = [*INTENTS, ".", "🙂", "please " * 60, "a"]
    among = classifier.classify(texts, 20)
    for text, theirs in zip(texts, among, strict=True):
        (alone,) = classifier.classify([text], 20)
        ours = {each.label: each.probability for each in alone.labels}
        assert {each.label: each.probability for each in theirs.labels} == pytest.approx(ours, abs=1e-5)


def test_a_very_long_text_is_refused_or_cut(classifier):
    text = "set an alarm " * 3000
    with pytest.raises(TextTooLongError, match="39000 characters"):
        classifier.classify([text])
    with pytest.raises(TextTooLongError, match="152 tokens; the model's limit is 128"):
        classifier.classify(["book a flight " * 50])
    assert classifier.classify([text], 1, truncate=True)[0].labels[0].label == "alarm"
