"""Tests of the cache of text prefixes."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.prefix_cache import PrefixCache, count, packed, unpacked

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)
TEXTS = st.text("ab \n", max_size=6)


@pytest.fixture
def cache():
    return PrefixCache(10_000)


def test_what_is_packed_is_unpacked():
    tokens = packed([3, 70_000, 1])
    assert (unpacked(tokens), unpacked(tokens, 2), unpacked(tokens, 3)) == ((3, 70_000, 1), (1,), ())
    assert count(tokens) == 3
    assert packed([3]) + packed([70_000, 1]) == tokens


def test_what_was_put_is_found_again(cache):
    cache.put(packed([1, 2]), "a", 10)
    assert cache.get(packed([1, 2])) == "a"
    assert cache.get(packed([1])) is cache.get(packed([1, 2, 3])) is cache.get(packed([2, 1])) is None


def test_the_longest_proper_prefix_is_found(cache):
    cache.put(packed([1]), "a", 10)
    cache.put(packed([1, 2, 3]), "b", 10)
    cache.put(packed([1, 2, 3, 4]), "c", 10)
    assert cache.longest(packed([1, 2, 3, 4])) == (3, "b")
    assert cache.longest(packed([1, 2, 9])) == (1, "a")
    assert cache.longest(packed([1, 2, 3, 4, 5, 6])) == (4, "c")
    assert cache.longest(packed([1])) is cache.longest(packed([9, 1])) is cache.longest(packed([])) is None


def test_ids_are_not_mixed_up_with_their_bytes(cache):
    cache.put(packed([256]), "a", 10)
    assert cache.get(packed([1])) is cache.get(packed([0, 1])) is None
    assert cache.get(packed([256])) == "a"


def test_the_least_recently_used_goes_first():
    cache = PrefixCache(3 * 1200)
    for token in (1, 2, 3):
        cache.put(packed([token]), token, 400)
    cache.get(packed([1]))
    assert cache.longest(packed([2, 0])) == (1, 2)
    cache.put(packed([4]), 4, 400)
    assert [cache.get(packed([token])) for token in (1, 2, 3, 4)] == [1, 2, None, 4]
    assert cache.bytes <= cache.max_bytes


def test_what_is_larger_than_the_cache_is_not_kept(cache):
    cache.put(packed([1]), "a", 10, "a")
    cache.put(packed([1]), "b", 20_000, "a")
    assert cache.get(packed([1])) is cache.beginning("a") is None
    assert (len(cache), cache.bytes) == (0, 0)


def test_what_is_put_again_replaces(cache):
    cache.put(packed([1]), "a", 10, "an")
    before = cache.bytes
    cache.put(packed([1]), "b", 10, "my")
    assert (cache.get(packed([1])), len(cache), cache.bytes) == ("b", 1, before)
    assert (cache.beginning("an"), cache.beginning("my")) == (None, (2, packed([1]), ()))


def test_a_text_is_found_at_the_beginning_of_longer_ones(cache):
    cache.put(packed([1]), "", 10, "")
    cache.put(packed([1, 2]), "", 10, "we  ")
    cache.put(packed([1, 2, 3]), "", 10, "we had")
    assert cache.beginning("we had a very") == cache.beginning("we had") == (6, packed([1, 2, 3]), ())
    assert cache.beginning("we hadn't") == cache.beginning("we   ") == cache.beginning("we") == (2, packed([1, 2]), ())
    assert cache.beginning("") == cache.beginning("  ") == cache.beginning("  we had") == (0, packed([1]), ())
    assert cache.beginning("wehad") is cache.beginning("we\nhad") is None


@pytest.mark.parametrize(("text", "size"), [("x" * 1000, 1000), ("é" * 1000, 8000)])
def test_texts_count(text, size):
    with_text, without = PrefixCache(100_000), PrefixCache(100_000)
    with_text.put(packed([1]), "", 10, text)
    without.put(packed([1]), "", 10)
    assert with_text.bytes - without.bytes == size


def test_unknown_words_are_those_of_the_text():
    """Texts of the same tokens may have different unknown words."""
    cache = PrefixCache(100_000)
    cache.put(packed([1, 0]), "", 10, "a zzyzx", ("zzyzx",))
    known = cache.bytes
    assert cache.beginning("a zzyzx is") == (7, packed([1, 0]), ("zzyzx",))
    cache.put(packed([1, 0]), "", 10, "a qwrt", ("qwrt",))
    assert cache.beginning("a zzyzx is") is None
    assert cache.beginning("a qwrt is") == (6, packed([1, 0]), ("qwrt",))
    assert cache.bytes <= known
    cache.put(packed([1, 0]), "", 10, "a qwrt", ("q" * 10_000,))
    assert cache.bytes > known + 10_000


@given(st.lists(st.tuples(TOKENS, st.integers(0, 900), st.none() | TEXTS), max_size=30), TOKENS, TEXTS)
def test_it_is_a_bounded_dictionary(puts, asked, asked_text):
    cache, plain = PrefixCache(1 << 30), {}
    small = PrefixCache(4000)
    for tokens, size, text in puts:
        cache.put(packed(tokens), (tokens, size), size, text)
        small.put(packed(tokens), tokens, size, text)
        text = None if text is None else text.rstrip(" ")
        same = [known for known, (_, spelling) in plain.items() if spelling is not None and spelling == text]
        for old in {tokens, *same}:
            plain.pop(old, None)
        plain[tokens] = ((tokens, size), text)
        assert small.bytes <= 4000
        assert sum(small._lengths.values()) == len(small) == len(small._entries)
        assert all(small._entries["", key][2] == text for (_, text), (key, _) in small._texts.items())
    texts = {text: tokens for tokens, (_, text) in plain.items() if text is not None}
    assert cache.get(packed(asked)) == plain.get(asked, (None,))[0]
    prefixes = [length for length in range(len(asked) - 1, 0, -1) if asked[:length] in plain]
    expected = (prefixes[0], plain[asked[: prefixes[0]]][0]) if prefixes else None
    assert cache.longest(packed(asked)) == expected
    known = [text for text in texts if f"{asked_text} ".startswith(f"{text} ")]
    best = max(known, key=len, default=None)
    assert cache.beginning(asked_text) == (None if best is None else (len(best), packed(texts[best]), ()))
    assert small.get(packed(asked)) in (None, asked)


def test_threads_share_it():
    cache = PrefixCache(50_000)

    def work(seed):
        for index in range(300):
            cache.put(packed([seed, index % 7]), (seed, index), 50, f"{seed} {index % 7}")
            found = cache.longest(packed([seed, index % 7, 1]))
            assert found is None or found[1][0] == seed
            text = cache.beginning(f"{seed} {index % 7} on")
            assert text is None or text[1] == packed([seed, index % 7])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.bytes <= cache.max_bytes


def test_entries_are_found_with_their_salt_only():
    cache = PrefixCache(100_000)
    tokens = packed([1, 2, 3])
    cache.put(tokens, "a", 10, "one two", salt="a")
    for salt in ("", "b"):
        assert cache.get(tokens, salt=salt) is None
        assert cache.longest(packed([1, 2, 3, 4]), salt=salt) is None
        assert cache.beginning("one two three", salt=salt) is None
    assert cache.get(tokens, salt="a") == "a"
    assert cache.longest(packed([1, 2, 3, 4]), salt="a") == (3, "a")
    assert cache.beginning("one two three", salt="a") == (7, tokens, ())


def test_an_entry_replaces_none_of_another_salt():
    cache = PrefixCache(100_000)
    tokens = packed([1, 2])
    for salt in ("a", "b"):
        cache.put(tokens, salt, 10, "one", salt=salt)
    assert [cache.get(tokens, salt=salt) for salt in ("a", "b")] == ["a", "b"]
    assert len(cache) == 2


def test_all_salts_share_the_bytes():
    cache = PrefixCache(5000)
    for number in range(1000):
        cache.put(packed([number]), number, 100, salt=str(number))
        assert cache.bytes <= 5000
    assert 0 < len(cache) < 6
    assert len(cache._lengths) == len(cache)
    assert cache.get(packed([999]), salt="999") == 999
