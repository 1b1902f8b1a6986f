import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from models import BundleError
from models.text.config import load_tokenizer
from models.text.tokenization import END, UNKNOWN, WORDS, EncoderTokenizer, WordTokenizer

WHITE_SPACE = "\t\n\v\f\r \x85\xa0"
MARKS = " \t\n\x85\xa0\u2003\u3000\u200d\ufe0f'.\u2019\u0301\u0308\u0345\u1161\u11a8\u0bd7ΣσςİıéAa9_"
"""What joins, divides, composes and changes with its neighbours."""
ANY_TEXT = st.text(st.sampled_from(MARKS) | st.characters(exclude_categories=["Cs"]), max_size=20)
LATIN = st.text(st.characters(max_codepoint=0x17F), max_size=40)


def without_spaces(text):
    return "".join(character for character in text if character not in WHITE_SPACE)


# ---- eight words, split at white space: <unk> </s> a b c very thank you ----


def test_ids_of_known_and_unknown_words(tiny_tokenizer):
    assert tiny_tokenizer.encode("thank you very much") == [6, 7, 5, 0]


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_nothing_is_no_word(tiny_tokenizer, text):
    assert tiny_tokenizer.encode(text) == []
    assert tiny_tokenizer.split(text) == ([], [])


def test_a_spelled_sentence_end_is_an_unknown_word(tiny_tokenizer):
    assert tiny_tokenizer.encode("a </s> b") == [2, 0, 3]
    assert tiny_tokenizer.split("a </s> b") == ([2, 0, 3], ["a", "</s>", "b"])
    assert tiny_tokenizer.encode_batch(["</s>", "a </s>"]) == [[0], [2, 0]]


def test_unknown_words_keep_their_spelling(tiny_tokenizer):
    assert tiny_tokenizer.split("a  Zwölf 😀 b") == ([2, 0, 0, 3], ["a", "Zwölf", "😀", "b"])


def test_special_words(tiny_tokenizer):
    assert (tiny_tokenizer.unknown_id, tiny_tokenizer.end_id, tiny_tokenizer.vocab_size) == (0, 1, 8)
    assert (tiny_tokenizer.word(0), tiny_tokenizer.word(1)) == (UNKNOWN, END)


@pytest.mark.parametrize("token", [8, 10**6])
def test_ids_outside_the_vocabulary_have_no_spelling(tiny_tokenizer, token):
    with pytest.raises(ValueError, match=f"token id {token} is outside the vocabulary of 8"):
        tiny_tokenizer.word(token)


@pytest.mark.parametrize("vocabulary", [{"a": 0}, {UNKNOWN: 0}, {END: 0, "a": 1}])
def test_the_vocabulary_needs_both_special_words(vocabulary):
    with pytest.raises(ValueError, match="vocabulary lacks"):
        WordTokenizer(Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN)))


def test_a_saved_tokenizer_encodes_as_before(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save(tmp_path / "tokenizer.json")
    loaded = WordTokenizer.from_file(tmp_path / "tokenizer.json")
    assert loaded.encode("thank </s> you much") == [6, 0, 7, 0]


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"[]", b"null", b"\xff\xfe", b'{"model": 5}', b"[" * 10_000])
def test_rubbish_is_no_tokenizer_file(tmp_path, data):
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer file"):
        WordTokenizer.from_file(tmp_path / "tokenizer.json")


def test_a_missing_file_is_no_tokenizer_file(tmp_path):
    with pytest.raises(ValueError, match=r"nothing\.json is not a tokenizer file"):
        WordTokenizer.from_file(tmp_path / "nothing.json")


# ---- the bundled tokenizer ----


def test_words_and_punctuation_are_pieces(tokenizer):
    assert tokenizer.split("It's 9.5, isn’t it?")[1] == ["It's", "9.5", ",", "isn’t", "it", "?"]


@pytest.mark.parametrize(("one", "other"), [("thank you", "THANK You"), ("don't", "don’t"), ("a  b", " a\nb ")])
def test_case_apostrophes_and_spaces_do_not_matter(tokenizer, one, other):
    assert tokenizer.encode(one) == tokenizer.encode(other)


@pytest.mark.parametrize("word", ["café", "Ångström", "xyzé", "각"])
def test_decomposed_words_keep_their_spelling(tokenizer, word):
    decomposed = unicodedata.normalize("NFD", word)
    tokens, (piece, end) = tokenizer.split(f"{decomposed} .")
    assert tokens == tokenizer.encode(f"{word} .")
    assert (unicodedata.normalize("NFC", piece), end) == (word, ".")


def test_every_word_of_the_vocabulary_is_one_piece(tokenizer):
    ids = [index for index in range(tokenizer.vocab_size) if index not in (tokenizer.unknown_id, tokenizer.end_id)]
    assert tokenizer.encode_batch([tokenizer.word(index) for index in ids]) == [[index] for index in ids]


@settings(deadline=None)
@given(st.text())
def test_ids_are_in_the_vocabulary_and_never_the_end(tokenizer, text):
    ids = tokenizer.encode(text)
    assert all(0 <= token < tokenizer.vocab_size and token != tokenizer.end_id for token in ids)


@settings(deadline=None)
@given(st.lists(st.text(), max_size=4))
def test_all_ways_to_encode_agree(tokenizer, texts):
    ids = tokenizer.encode_batch(texts)
    assert ids == [tokenizer.encode(text) for text in texts] == [tokenizer.split(text)[0] for text in texts]


@settings(deadline=None)
@given(LATIN.map(lambda text: unicodedata.normalize("NFC", text)))
def test_pieces_cover_all_that_is_no_space(tokenizer, text):
    assert "".join(tokenizer.split(text)[1]) == without_spaces(text)


@settings(deadline=None)
@given(LATIN)
def test_encoding_its_own_pieces_changes_nothing(tokenizer, text):
    ids, pieces = tokenizer.split(text)
    assert tokenizer.encode(" ".join(pieces)) == ids


# ---- parts of texts ----


def word_tokenizer(normalizer=None, pre_tokenizer=None):
    vocabulary = {word: index for index, word in enumerate([UNKNOWN, END, "a", "b", "'", "9", "ς", "é"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.WhitespaceSplit()
    return tokenizer


def in_words():
    return pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True)


IN_PARTS = [
    word_tokenizer(),
    word_tokenizer(None, in_words()),
    *(
        word_tokenizer(normalizers.Sequence([form, normalizers.Replace("’", "'"), normalizers.Lowercase()]), split)
        for form in (normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD())
        for split in (None, in_words())
    ),
]


@settings(deadline=None, max_examples=500)
@given(ANY_TEXT, ANY_TEXT)
def test_a_text_has_the_ids_of_its_parts(tokenizer, before, after):
    for each in (tokenizer, *map(WordTokenizer, IN_PARTS)):
        assert each.parts_at_spaces
        parts = [part for text in (before, f" {after}") for part in each.split(text)[0]]
        assert each.split(f"{before} {after}")[0] == parts
        assert each.split(f"{before}  ")[0] == each.split(before)[0]


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (normalizers.Replace("a b", "c"), None),
        (normalizers.Replace(Regex(r"\s+"), ""), None),
        (normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("_")]), None),
        (normalizers.Strip(), None),
        (None, pre_tokenizers.Split(Regex(r"\w+ \w+"), behavior="removed", invert=True)),
        (None, pre_tokenizers.Split(Regex(WORDS), behavior="isolated")),
        (None, pre_tokenizers.Metaspace()),
    ],
)
def test_a_tokenizer_that_may_look_across_spaces_is_not_trusted(normalizer, pre_tokenizer):
    assert not WordTokenizer(word_tokenizer(normalizer, pre_tokenizer)).parts_at_spaces


def test_neither_is_one_that_adds_tokens_or_cuts():
    added, framed, cut, padded, other, bare = (word_tokenizer() for _ in range(6))
    added.add_tokens(["a b"])
    framed.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[(END, 1)])
    cut.enable_truncation(3)
    padded.enable_padding()
    other.model = models.WordPiece({UNKNOWN: 0, END: 1}, unk_token=UNKNOWN)
    bare.pre_tokenizer = None
    assert not any(WordTokenizer(each).parts_at_spaces for each in (added, framed, cut, padded, other, bare))


# ---- an encoder's tokenizer -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder_tokenizer():
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##c", "[", "]", "sep"]
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(vocabulary[:4])
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=128)
    return EncoderTokenizer(tokenizer)


def test_texts_are_framed_whatever_the_file_was_used_with(encoder_tokenizer):
    assert encoder_tokenizer.encode_batch(["A bc a b", ""]) == [[2, 4, 5, 6, 4, 5, 3], [2, 3]]


def test_a_spelled_special_token_is_text(encoder_tokenizer):
    assert encoder_tokenizer.encode_batch(["[SEP]"]) == [[2, 7, 9, 8, 3]]


@pytest.mark.parametrize(("limit", "kept"), [(12, range(10)), (10, [0, 1, 4, 5, 6, 7, 8, 9]), (6, [0, 7, 8, 9])])
def test_head_and_tail_are_kept(encoder_tokenizer, limit, kept):
    assert encoder_tokenizer.framed(list(range(10)), limit) == [2, *kept, 3]


@pytest.mark.parametrize(
    ("spelling", "special", "expected"),
    [("[MASK]", True, 10), ("<mask>", True, 10), ("<mask>", False, None), ("[mask]", True, None)],
)
def test_the_mask_token_is_a_special_one(encoder_tokenizer, tmp_path, spelling, special, expected):
    assert encoder_tokenizer.mask_id is None
    encoder_tokenizer.save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(spelling, special=special)])
    assert EncoderTokenizer(tokenizer).mask_id == expected


def test_a_tokenizer_without_its_special_tokens_is_refused():
    with pytest.raises(ValueError, match=r"lacks '\[UNK\]' or '\[SEP\]'"):
        EncoderTokenizer(Tokenizer(models.WordPiece({"a": 0}, unk_token="a")))
    with pytest.raises(ValueError, match=r"lacks '\[CLS\]'"):
        EncoderTokenizer(Tokenizer(models.WordPiece({"[UNK]": 0, "[SEP]": 1}, unk_token="[UNK]")))


def test_a_tokenizer_is_the_one_that_the_manifest_describes(bundled, model):
    assert load_tokenizer(WordTokenizer, bundled, model.config).vocab_size == model.vocab_size
    other = model.config.model_copy(update={"vocab_size": 5})
    with pytest.raises(BundleError, match="vocab_size is 7729, the manifest's 5"):
        load_tokenizer(WordTokenizer, bundled, other)


def test_a_summary_has_what_clients_see(model):
    assert model.config.summary() == {
        "vocab_size": 7729,
        "limits": {"max_tokens": 1000},
        "calibration_examples": None,
    }
