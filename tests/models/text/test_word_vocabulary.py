"""Words of bytes, and vocabularies of real subword tokenizers."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from models.decoding.next_words import next_words
from models.decoding.word_probabilities import score_words, word_probabilities
from models.text.word_vocabulary import PUNCTUATION, SEPARATORS, State, WordBoundaries, WordVocabulary
from tests.support.toy_subwords import ToyModel, continuations, first_word

MARKED = WordBoundaries(punctuation=PUNCTUATION)
TEXTS = ["a café, a naïve café", "“a café” — a naïve one…", "日本語。日本", "a cafe 🙂 a café"]


@pytest.fixture(scope="module")
def tokenizer():
    """A byte-level BPE in which "é" may be one token, two, or a part of a longer one; 0 ends a text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=275, special_tokens=["</s>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    return made


@pytest.fixture(scope="module")
def vocabulary(tokenizer):
    spellings = [None, *map(tokenizer.id_to_token, range(1, tokenizer.get_vocab_size()))]
    return WordVocabulary.of_byte_level(spellings, MARKED)


class FewTokens(ToyModel):
    """A model of a few tokens of a larger vocabulary; all others have probability 0."""

    def __init__(self, tokens, vocab_size, **options):
        super().__init__(vocab_size, 0, **options)
        self.others = np.setdiff1d(np.arange(vocab_size), [0, *tokens])

    def row(self, prefix):
        row = super().row(prefix)
        row[self.others] = -np.inf
        return row - np.log(np.exp(row).sum())


def test_pieces_are_the_bytes_of_texts(tokenizer, vocabulary):
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert vocabulary.text(ids) == text.encode()
    assert vocabulary.ends_text.nonzero()[0].tolist() == [0]
    assert any(piece[-1] >= 0x80 and len(piece) == 1 for piece in vocabulary.pieces if piece)


def test_characters_split_over_tokens(tokenizer, vocabulary):
    """The words of a real tokenizer's tokens are those of the enumeration of all texts."""
    bytes_of = {piece: token for token, piece in reversed(list(enumerate(vocabulary.pieces)))}
    parts = [b"\xc3", b"\xa9", b" ", b"f", b",", b"\xe2", b"\x80", b"\x9d"]
    longer = [token for token in tokenizer.encode(" café").ids if len(vocabulary.pieces[token]) > 1]
    assert longer
    tokens = [*(bytes_of[part] for part in parts), *longer]
    context = tuple(tokenizer.encode("a").ids)
    model = FewTokens(tokens, len(vocabulary), seed=1, max_tokens=3, context=context)
    expected = {}
    for text, mass in continuations(model, vocabulary.pieces, context):
        word = first_word(b"a", text, SEPARATORS, PUNCTUATION)  # E2 80 A9 is U+2029
        expected[word] = expected.get(word, 0.0) + mass
    begins = 1 - expected.pop(None)
    end = expected.pop(b"") / begins
    found = next_words(model, vocabulary, context, 10_000, negligible=0, max_prefixes=10_000)
    assert found.certain
    assert found.end == pytest.approx(end, abs=1e-12)
    ours = {each.text: each.probability for each in found.words}
    assert ours == pytest.approx({word: mass / begins for word, mass in expected.items()}, abs=1e-12)
    chosen = [each.text for each in found.words[:20]]
    exact = np.exp([each.log_probability for each in word_probabilities(model, vocabulary, context, chosen)])
    np.testing.assert_allclose(exact, [ours[text] for text in chosen], rtol=0, atol=1e-12)
    assert " é".encode() in ours
    assert "”".encode() in ours


@pytest.mark.parametrize("text", TEXTS)
def test_spans_are_those_of_characters(tokenizer, vocabulary, text):
    ids = tokenizer.encode(text).ids
    model = ToyModel(len(vocabulary), 0, seed=2)
    scored = score_words(model, vocabulary, (), ids)
    assert scored.text == text
    assert all(text[slice(*word.span)] == word.text for word in scored.words)
    own = sum(model.row(tuple(ids[:place]))[token] for place, token in enumerate([*ids, 0]))
    assert math.fsum(word.log_probability for word in scored.words) + scored.end == pytest.approx(own, abs=1e-9)


def test_sentence_pieces():
    vocabulary = WordVocabulary.of_sentence_pieces([None, "<unk>", "▁the", "▁", "t", "<0xE2>", "▁▁a"])
    assert vocabulary.pieces == [b"", b"<unk>", b" the", b" ", b"t", b"\xe2", b"  a"]
    then = vocabulary.continuation(State.AFTER_LETTERS)
    assert then.excluded.tolist() == [False, True, False, False, True, False, False]
    assert then.undecided == (5,)  # E2 may become U+2028
    then = vocabulary.continuation(State.LETTERS)
    assert then.over.tolist() == [False, False, True, True, False, False, True]
    assert then.going_on.tolist() == [False, True, False, False, True, True, False]


def test_words_of_a_text():
    def words(boundaries, text):
        return [text.encode()[slice(*span)].decode() for span in boundaries.words(text.encode())]

    assert words(WordBoundaries(), ' It\'s "new",\n isn’t it? ') == ["It's", '"new",', "isn’t", "it?"]
    assert words(MARKED, ' It\'s "new",\n isn’t it? ') == ["It's", '"', "new", '",', "isn’t", "it", "?"]
    assert words(MARKED, "日本。「語」") == ["日本", "。「", "語", "」"]
    assert words(MARKED, "") == words(MARKED, " \n") == []


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(alphabet="ab.,“ é\n日。"))
def test_words_are_runs_of_one_class(text):
    expected = re.findall(r"[.,“。]+|[abé日]+", text)
    spans = list(MARKED.words(text.encode()))
    assert [text.encode()[slice(*span)].decode() for span in spans] == expected


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([b"a", b" ", b".", b"\xe2", b"\x80", b"\x9c", b"\xc2", b"\xa0"]), max_size=8))
def test_bytes_that_follow_do_not_change_what_is_decided(parts):
    text = b"".join(parts)
    whole = MARKED.read(State.LEADING, text, final=True)
    for size in range(len(text) + 1):
        reading = MARKED.read(State.LEADING, text[:size])
        if reading.over:
            assert (reading.state, reading.end) == (whole.state, whole.end)
        else:
            assert reading.end <= whole.end
