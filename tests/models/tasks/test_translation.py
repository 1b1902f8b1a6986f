"""Translators as the library offers them, on a model that babbles."""

import numpy as np
import pytest

from models import BundleError, QueryError, TextTooLongError
from models.decoding.beam_search import Hypothesis, SearchOptions
from models.decoding.sequence_to_sequence import MAX_BEAM_SIZE
from models.reading import parse_manifest
from models.store import load_bundle
from models.tasks.translation import Translator

ODD = [
    "",
    " ",
    " \n\t ",
    "🙂",
    "👨‍👩‍👧 e\u0301",
    "你好。再见！",
    "\0\x01\x1b[31m\x7f",
    "</s>",
    "<unk> </s> und",
    "a </s>b",
    "\xa0A.\xa0B\u3000",
    "Ünïcödé ß",
    ".",
    "...!?",
]
WORDS = ["der", "die", "das", "und", "in", "zu", "den", "Hund", "Katze", "beißt", "Öl", "🙂"]


def some_texts(count, seed=0, longest=7):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(1, longest + 1))) for _ in range(count)]


@pytest.fixture(scope="module")
def translator(babblers):
    return babblers["onnx"]


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert one.text == other.text
        assert [each.text for each in one.translations] == [each.text for each in other.translations]
        scores = [each.score for each in other.translations]
        assert [each.score for each in one.translations] == pytest.approx(scores, abs=1e-4, rel=1e-4)


# ---- translations ----


def test_torchscript_translates_as_onnx_does(babblers):
    texts, options = some_texts(20) + ODD, SearchOptions(n_best=3)
    ours, theirs = (each.translate(texts, 3, options=options) for each in babblers.values())
    assert_same(ours, theirs)
    assert len({each.translations[0].text for each in ours}) > 15


def test_the_size_of_batches_changes_nothing(translator):
    texts = some_texts(200, longest=3)
    ours, *others = (translator.translate(texts, 2, batch_sentences=size) for size in (32, 7, 1))
    for theirs in others:
        assert_same(ours, theirs)


def test_no_texts_have_no_translations(translator):
    assert translator.translate([]) == []


@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_odd_texts_are_translated_as_among_others(translator, text):
    (alone,) = translator.translate([text], 2)
    among = translator.translate([*some_texts(3), text], 2)[3]
    assert alone.text == text
    assert_same([alone], [among])
    if not text.strip():
        assert [(each.text, each.score) for each in alone.translations] == [(text, 0.0)]


def test_special_tokens_as_text_are_text(translator):
    special = translator.manifest.config.special_tokens
    for text in ("</s", "unk>", "a</ s>", "das <s/>k"):
        for part in translator.query(text).parts():
            assert not {special.end, special.unknown} & set(part.tokens)
    for text in ("</s>", "<unk>", "a</s>", "<unk></s>"):
        (ids,) = translator._tokenizer.encode_batch([text])
        assert not {special.end, special.unknown} & set(ids)
        assert translator._tokenizer.decode_batch([ids]) == [text]
        (found,) = translator.translate([text])
        assert found.translations[0].text == text, "markup, and letters that are no words"


def test_sentences_of_a_document_are_translated_on_their_own(translator):
    text = "\n Der Hund.  Die Katze!\n\n\tUnd zu den?\r\n"
    (document,) = translator.translate([text], 2)
    alone = [each.translations[0] for each in translator.translate(["Der Hund.", "Die Katze!", "Und zu den?"], 2)]
    first, second, third = (each.text for each in alone)
    assert document.translations[0].text == f"\n {first}  {second}\n\n\t{third}\r\n"
    assert document.translations[0].score == pytest.approx(sum(each.score for each in alone), abs=1e-4)


def test_the_nth_best_of_a_document_joins_the_nth_best_of_its_sentences(translator):
    query = translator.query("Der Hund. Die Katze. Und zu.", options=SearchOptions(n_best=3))
    one, two, three = (Hypothesis((token,), -1.0, -float(token)) for token in (70, 71, 72))
    result = translator.result(query, [[one, two, three], [one], [two, three]])
    texts = translator._tokenizer.decode_batch([[70], [71], [72]])
    expected = [(0, 0, 1), (1, 0, 2), (2, 0, 2)]
    assert [each.text for each in result.translations] == [" ".join(texts[i] for i in row) for row in expected]
    assert [each.score for each in result.translations] == [-211.0, -213.0, -214.0]


def test_translations_with_all_numbers_of_a_sentence_go_before_others(translator):
    texts = ["room 1", "rooms 12 and 70", "70 in 12", "in 12", "12 or 70"]
    ids = [tuple(each) for each in translator._tokenizer.encode_batch(texts)]
    assert list(translator._tokenizer.decode_batch(ids)) == texts
    hypotheses = [Hypothesis(tokens, -1.0, -float(rank)) for rank, tokens in enumerate(ids)]
    query = translator.query("Um 12 in den 70", 5, options=SearchOptions(n_best=3))
    assert query.parts()[0].options.n_best == 5, "the whole beam, of which three are returned"
    found = translator.result(query, [hypotheses]).translations
    assert [each.text for each in found] == ["rooms 12 and 70", "70 in 12", "12 or 70"]
    assert [each.score for each in found] == [-1.0, -2.0, -4.0]
    assert query.result_items == 3 * query.parts()[0].max_tokens
    sampled = translator.query("Um 12", 5, options=SearchOptions(temperature=1.0))
    assert sampled.parts()[0].options.n_best == 1, "samples are not chosen from"


def with_threshold(translator, log_probability):
    content = translator.manifest.model_dump(mode="json")
    found = {"log_probability": log_probability, "poor_chrf": 30.0, "precision": 0.5, "recall": 0.2}
    content["config"]["low_confidence"] = found
    return Translator(parse_manifest(content), translator._tokenizer, translator.backend)


@pytest.mark.parametrize(
    ("log_probability", "length", "threshold", "low"),
    [
        (-2.0, 3, None, False),
        (-2.0, 3, -0.51, False),
        (-2.0, 3, -0.49, True),
        (-0.1, 10**6, -5.0, True),  # cut off by the length limit
        (-0.1, 10**6, None, True),
    ],
)
def test_confidence_is_low_below_the_threshold_or_where_the_limit_cut(
    log_probability, length, threshold, low, translator
):
    model = translator if threshold is None else with_threshold(translator, threshold)
    query = model.query("der Hund")
    length = min(length, query.parts()[0].max_tokens)
    hypothesis = Hypothesis((68,) * length, log_probability, log_probability)
    assert model.result(query, [[hypothesis]]).low_confidence == low


def test_a_text_has_low_confidence_where_one_of_its_sentences_has(translator):
    model = with_threshold(translator, -1.0)
    query = model.query("Der Hund. Die Katze.")
    sure, unsure = Hypothesis((68,), -0.1, -0.1), Hypothesis((68,), -4.0, -4.0)
    assert not model.result(query, [[sure, unsure], [sure]]).low_confidence
    assert model.result(query, [[sure], [unsure, sure]]).low_confidence


def test_another_language_is_detected(translator):
    english, german, space = translator.translate(["How are you today, my friend?", "der Hund und die Katze", " \n"])
    assert (english.low_confidence, english.detected_language) == (True, "en")
    assert german.detected_language is None
    assert (space.low_confidence, space.detected_language) == (False, None)


def test_options_reach_the_search(translator):
    (text,) = some_texts(1, seed=5)
    by_n = [translator.translate([text], 4, options=SearchOptions(n_best=n))[0].translations for n in (1, 4)]
    assert [len(each) for each in by_n] == [1, 4]
    assert by_n[0][0].score == pytest.approx(by_n[1][0].score)
    samples = [
        translator.translate([text], 2, options=SearchOptions(temperature=2.0, seed=seed))[0].translations[0].text
        for seed in (1, 1, 2)
    ]
    assert samples[0] == samples[1] != samples[2]


# ---- limits ----


def test_five_thousand_words_in_a_sentence_are_refused_or_cut(translator):
    limit = translator.manifest.config.limits.max_tokens
    text = "und " * 5000
    with pytest.raises(TextTooLongError, match=f"tokens in a sentence; the model's limit is {limit}") as caught:
        translator.translate(["a", text])
    assert caught.value.length >= 5000
    query = translator.query(text, truncate=True)
    (part,) = query.parts()
    assert part.length == limit + 1
    assert query.truncated == caught.value.length - limit
    assert translator.query("und", truncate=True).truncated is None


def test_the_longest_translation_fits_into_the_model(translator):
    """A loop that never ends is cut off at the model's last position, though twice the source were more."""
    (part,) = translator.query("und " * 5000, 1, truncate=True).parts()
    assert part.max_tokens == translator.manifest.config.network.positions == 1024
    decoding = translator.start_decoding(1)
    decoding.add([part.tokens], [("loop", SearchOptions(prefix=(70,) * 1020), part.max_tokens)])
    found = []
    while len(decoding):
        found += decoding.step()
    assert len(found[0][1][0].tokens) >= 1020


def test_a_text_of_many_short_sentences_is_not_too_long(translator):
    text = "Der Hund. Die Katze. " * 400
    assert len(translator.query(text).parts()) == 800


def test_the_limit_of_a_translation_follows_from_its_source(translator):
    (part,) = translator.query("und").parts()
    assert part.max_tokens == 2 * len(part.tokens) + 10
    for text in some_texts(10):
        for part in translator.query(text).parts():
            assert part.length == len(part.tokens) + 1


def test_an_empty_translation_is_the_sentence_itself_and_doubtful(translator):
    query = translator.query("Der Hund.\nDie Katze.")
    empty, other = Hypothesis((), -0.1, -0.1), Hypothesis((68,), -0.1, -0.1)
    found = translator.result(query, [[empty], [other]])
    (text,) = translator._tokenizer.decode_batch([(68,)])
    assert found.translations[0].text == f"Der Hund.\n{text}"
    assert found.low_confidence


def test_what_is_copied_counts_among_the_results(translator):
    query = translator.query("*" * 8000, options=SearchOptions(n_best=2))
    assert (query.parts(), query.result_items) == ([], 2000)


def test_babble_is_text(translator):
    for found in translator.translate(some_texts(30), 3, options=SearchOptions(n_best=3)):
        assert not any("\ufffd" in each.text for each in found.translations)


# ---- errors ----


@pytest.mark.parametrize("beam_size", [0, -1, MAX_BEAM_SIZE + 1, 100])
def test_beam_sizes_out_of_range_are_named(translator, beam_size):
    with pytest.raises(QueryError, match=f"beam_size must be between 1 and {MAX_BEAM_SIZE}, not {beam_size}"):
        translator.translate(["a"], beam_size)


def test_more_translations_than_the_beam_holds_are_refused(translator):
    with pytest.raises(QueryError, match="n_best must be at most beam_size, which is 2, not 3"):
        translator.translate(["a"], 2, options=SearchOptions(n_best=3))


@pytest.mark.parametrize("text", ["\ud83d", "a\udc80"])
def test_half_a_surrogate_pair_is_refused(translator, text):
    with pytest.raises(QueryError, match="surrogate"):
        translator.translate(["a", text])


def test_one_string_is_not_a_list(translator):
    with pytest.raises(TypeError, match="a list of texts"):
        translator.translate("Guten Morgen")


def test_another_tokenizer_is_a_bundle_error(babbler_bundle, translator):
    config = translator.config.model_copy(update={"vocab_size": 271})
    wrong = translator.manifest.model_copy(update={"config": config})
    with pytest.raises(BundleError, match="vocab_size is 270, the manifest's 271"):
        Translator.from_bundle(babbler_bundle, wrong, translator.backend)


def test_a_tokenizer_that_is_none_is_a_bundle_error(tmp_path, translator):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BundleError, match=r"tokenizer\.json is not a tokenizer file"):
        Translator.from_bundle(tmp_path, translator.manifest, translator.backend)


def test_limits_beyond_the_positions_are_refused(translator):
    content = translator.manifest.model_dump(mode="json")
    content["config"]["limits"]["max_tokens"] = 1023
    parse_manifest(content)
    content["config"]["limits"]["max_tokens"] = 1024
    with pytest.raises(ValueError, match=r"limits\.max_tokens must be below network\.positions, which is 1024"):
        parse_manifest(content)


def test_a_store_loads_it(babbler_bundle, translator):
    assert load_bundle(babbler_bundle, threads=1).manifest == translator.manifest


# ---- protected parts ----


@pytest.mark.parametrize("text", ["der {a} und {b} beißt", "{a}", "a.txt, der Hund: {a}", "%d%d zu %d"])
def test_parts_are_there_once_whatever_a_model_without_alignment_writes(babblers, text):
    for model in babblers.values():
        (found,) = model.translate([text], 3, options=SearchOptions(n_best=3))
        for each in found.translations:
            for part in ("{a}", "{b}", "a.txt", "%d"):
                assert each.text.count(part) == text.count(part)
