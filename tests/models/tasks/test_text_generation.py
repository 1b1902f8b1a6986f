"""Text generators as the library offers them."""

import dataclasses
import shutil

import pytest

from models import BundleError, Generator, QueryError, TextTooLongError
from models.decoding.beam_search import SearchOptions
from models.store import load_bundle

TEXTS = ["so we saw old fox then", "there was red gnu", "we saw big ape and now then there", "shy bat"]
ODD = ["", " ", "\n\t", "🙂", "你好。再见！", "\0\x01\x1b[31m", "[SEP]", "e\u0301 ß"]


@pytest.fixture(scope="module")
def generator(notes_export):
    model = load_bundle(notes_export.path, threads=1)
    assert isinstance(model, Generator)
    return model


def test_it_writes_of_each_text(generator):
    written = [result.outputs[0].text for result in generator.generate(TEXTS)]
    assert written == ["the fox is old.", "the gnu is red.", "the ape is big.", "the bat is shy."]


def test_n_best_come_best_first(generator):
    (result,) = generator.generate(TEXTS[:1], 4, options=SearchOptions(n_best=4))
    scores = [each.score for each in result.outputs]
    assert 1 <= len(scores) <= 4  # a sparse-softmax leaves fewer possible
    assert scores == sorted(scores, reverse=True)
    assert len({each.text for each in result.outputs}) == len(scores)


def test_neighbours_change_nothing(generator):
    texts = TEXTS * 12 + ODD
    ours, *others = (generator.generate(texts, 3, batch_size=size) for size in (32, 7, 1))
    for theirs in others:
        for one, other in zip(ours, theirs, strict=True):
            assert [each.text for each in one.outputs] == [each.text for each in other.outputs]
            scores = [each.score for each in other.outputs]
            assert [each.score for each in one.outputs] == pytest.approx(scores, abs=1e-4)


def test_the_sparse_mask_renormalizes_the_best(generator):
    plain, sparse = (generator.generate(TEXTS, 2, options=SearchOptions(sparse=sparse)) for sparse in (False, True))
    assert [each.outputs[0].text for each in sparse] == [each.outputs[0].text for each in plain]
    gains = [other.outputs[0].score - one.outputs[0].score for one, other in zip(plain, sparse, strict=True)]
    assert min(gains) >= -1e-6
    assert max(gains) > 1e-4


@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_odd_texts_are_answered(generator, text):
    (result,) = generator.generate([text])
    assert result.text == text
    assert isinstance(result.outputs[0].text, str)


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("the dogs' tails", "the dogs ' tails"),
        ("don't! levi's 'hello'", "don't! levi's ' hello '"),
        ("A state-of-the-art (new) method", "a state-of-the-art (new) method"),
        ("3.5 of 1,000 at 10:30 [x]: 5%", "3.5 of 1,000 at 10:30 [x]: 5%"),
    ],
)
def test_punctuation_stands_where_people_write_it(store, text, spelt):
    tokenizer = store.load("intents", threads=1)._texts.tokenizer
    assert tokenizer.decode_batch(tokenizer.encode_batch([text])) == [spelt]


def test_outputs_end_where_they_must(generator):
    (whole,), (cut,) = (generator.generate(TEXTS[:1], 1, max_output_tokens=most) for most in (8, 2))
    assert whole.outputs[0].text == "the fox is old."
    assert cut.outputs[0].text == "the fox"


@pytest.mark.parametrize("most", [0, -1, 9])
def test_a_length_out_of_range_is_an_error(generator, most):
    with pytest.raises(QueryError, match=f"max_output_tokens must be between 1 and 8, not {most}"):
        generator.query("a", max_output_tokens=most)


def test_too_long_a_text_is_refused_or_its_head_read(generator):
    text = "we saw red gnu " + "then " * 20
    with pytest.raises(TextTooLongError, match=r"the text has 26 tokens; the model's limit is 16"):
        generator.query(text)
    query = generator.query(text, truncate=True)
    assert query.length == 16
    (found,) = generator.generate([text], truncate=True)
    assert (found.outputs[0].text, found.truncated) == ("the gnu is red.", 10)
    assert generator.generate(["we saw red gnu"], truncate=True)[0].truncated is None


def test_ten_thousand_words_are_refused_before_they_are_tokenized(generator):
    with pytest.raises(TextTooLongError, match="characters"):
        generator.query("word " * 10_000)
    assert generator.query("word " * 10_000, truncate=True).length == 16


def test_one_string_is_not_a_list_of_texts(generator):
    with pytest.raises(TypeError, match="a list of texts"):
        generator.generate("a text")


def test_a_tokenizer_of_another_kind_is_an_error(notes_export, babbler_bundle, tmp_path):
    path = tmp_path / "notes" / "1"
    shutil.copytree(notes_export.path, path)
    tokenizer = babbler_bundle / "tokenizer.json"
    shutil.copy(tokenizer, path / "tokenizer.json")
    with pytest.raises(BundleError, match=r"lacks '\[UNK\]' or '\[SEP\]'"):
        Generator.from_bundle(path, notes_export.manifest, None)


def test_what_was_searched_elsewhere_is_spelt(generator):
    query = generator.query(TEXTS[0])
    (found,) = generator.decoder.search([query])
    assert generator.result(query, [found]) == generator.generate(TEXTS[:1])[0]
    assert generator.result(query, [[dataclasses.replace(found[0], tokens=())]]).outputs[0].text == ""
