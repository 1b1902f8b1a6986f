"""Tests of a language model whose output layer is sparse: words of probability 0."""

import math

import numpy as np
import pytest

from models import LanguageModel
from models.store import load_bundle
from training.bundling.bundle import WrittenBundle

KEPT = 2 * 4  # of each of two components
CONTEXTS = ["", "One", "Two cats", "One dog draws", "Two cats bite one", "zzz", "One ape bites two bats now."]
# torch deprecates TorchScript; it stays a backend because users asked for it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")


@pytest.fixture(scope="module", params=["onnx", "torchscript"])
def sparse(sparse_export: WrittenBundle, request: pytest.FixtureRequest) -> LanguageModel:
    return load_bundle(sparse_export.path, backend=request.param, threads=1)


def test_next_words_leave_out_what_is_impossible(sparse: LanguageModel) -> None:
    assert sparse.vocab_size > 2 * KEPT
    for result in sparse.next_words(CONTEXTS, sparse.vocab_size):
        assert 4 <= len(result.words) <= KEPT
        assert all(word.probability > 0 for word in result.words)
        assert sum(word.probability for word in result.words) == pytest.approx(1, abs=1e-5)
        log_probabilities = [word.log_probability for word in result.words]
        assert log_probabilities == sorted(log_probabilities, reverse=True)
        entropy = -sum(word.probability * word.log_probability for word in result.words)
        assert result.entropy == pytest.approx(entropy, abs=1e-5)


def test_fewer_words_may_be_asked_for(sparse: LanguageModel) -> None:
    """This holds in a batch with others, too."""
    queries = [sparse.next_words_query("One", 3), sparse.next_words_query("Two", sparse.vocab_size)]
    few, all_of_them = sparse.run_next_words(queries)
    assert len(few.words) == 3
    assert 4 <= len(all_of_them.words) <= KEPT


def test_the_distribution_holds_minus_infinity(sparse: LanguageModel) -> None:
    table = sparse.distribution(CONTEXTS)
    results = sparse.next_words(CONTEXTS, sparse.vocab_size)
    assert np.isfinite(table).sum(-1).tolist() == [len(result.words) for result in results]
    np.testing.assert_allclose(np.exp(table).sum(-1), 1, atol=1e-5)


def test_a_score_is_what_the_distribution_says(sparse: LanguageModel) -> None:
    """Word by word, for a sentence that follows the grammar and one that does not."""
    words = ["One", "bites", "cats"]
    (score,) = sparse.score([" ".join(words)])
    contexts = [" ".join(words[:count]) for count in range(len(words) + 1)]
    for token, table in zip(score.tokens, sparse.distribution(contexts), strict=True):
        (index,) = [i for i in range(sparse.vocab_size) if sparse._tokenizer.word(i) == token.word.lower()]
        assert token.log_probability == pytest.approx(float(table[index]), abs=1e-4)


def test_a_sentence_with_an_impossible_word_is_impossible(sparse: LanguageModel, sparse_sentence: str) -> None:
    """Whatever the model says itself is possible; a sentence that starts with `now` and has no verb is not."""
    likely, unlikely = sparse.score([sparse_sentence, "now now . two One"])
    assert -math.inf < likely.log_probability < 0
    assert 1 <= likely.perplexity < math.inf
    assert any(token.log_probability == -math.inf for token in unlikely.tokens)
    assert unlikely.log_probability == -math.inf
    assert unlikely.perplexity == math.inf


def test_impossible_words_are_so_after_a_shared_beginning_too(sparse: LanguageModel) -> None:
    same = "One dog bites two cats . " * 3
    texts = [same + rest for rest in ("", "One", "now now", "two One now", "cats", "zzz", "One dog draws", "cats")]
    impossible = 0
    for score, text in zip(sparse.score(texts), texts, strict=True):
        got = [token.log_probability for token in score.tokens]
        assert got == pytest.approx([token.log_probability for token in sparse.score([text])[0].tokens], abs=1e-4)
        impossible += got.count(-math.inf)
    assert impossible


def test_a_result_does_not_depend_on_what_it_was_batched_with(sparse: LanguageModel) -> None:
    together = sparse.next_words(CONTEXTS, sparse.vocab_size)
    for context, expected in zip(CONTEXTS, together, strict=True):
        (alone,) = sparse.next_words([context], sparse.vocab_size)
        assert {word.word for word in alone.words} == {word.word for word in expected.words}
        got = [word.log_probability for word in alone.words]
        assert got == pytest.approx([word.log_probability for word in expected.words], abs=1e-4)


def test_both_backends_answer_alike(sparse_export: WrittenBundle) -> None:
    tables = [
        load_bundle(sparse_export.path, backend=backend, threads=1).distribution(CONTEXTS)
        for backend in ("onnx", "torchscript")
    ]
    np.testing.assert_array_equal(np.isneginf(tables[0]), np.isneginf(tables[1]))
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-4)
