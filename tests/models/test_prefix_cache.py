"""What is kept of recent texts."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.prefix_cache import PrefixCache

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)


@pytest.fixture
def cache():
    return PrefixCache(10_000)


def test_what_was_put_is_found_again(cache):
    cache.put([1, 2], "a", 10)
    assert cache.get([1, 2]) == "a"
    assert cache.get([1]) is cache.get([1, 2, 3]) is cache.get([2, 1]) is None


def test_the_longest_proper_prefix_is_found(cache):
    cache.put([1], "a", 10)
    cache.put([1, 2, 3], "b", 10)
    cache.put([1, 2, 3, 4], "c", 10)
    assert cache.longest([1, 2, 3, 4]) == (3, "b")
    assert cache.longest([1, 2, 9]) == (1, "a")
    assert cache.longest([1, 2, 3, 4, 5, 6]) == (4, "c")
    assert cache.longest([1]) is cache.longest([9, 1]) is cache.longest([]) is None


def test_ids_are_not_mixed_up_with_their_bytes(cache):
    cache.put([256], "a", 10)
    assert cache.get([1]) is cache.get([0, 1]) is None
    assert cache.get([256]) == "a"


def test_the_least_recently_used_goes_first():
    cache = PrefixCache(3 * 1000)
    for token in (1, 2, 3):
        cache.put([token], token, 400)
    cache.get([1])
    assert cache.longest([2, 0]) == (1, 2)
    cache.put([4], 4, 400)
    assert [cache.get([token]) for token in (1, 2, 3, 4)] == [1, 2, None, 4]
    assert cache.bytes <= cache.max_bytes


def test_what_is_larger_than_the_cache_is_not_kept(cache):
    cache.put([1], "a", 10)
    cache.put([1], "b", 20_000)
    assert cache.get([1]) is None
    assert (len(cache), cache.bytes) == (0, 0)


def test_what_is_put_again_replaces(cache):
    cache.put([1], "a", 10)
    before = cache.bytes
    cache.put([1], "b", 10)
    assert (cache.get([1]), len(cache), cache.bytes) == ("b", 1, before)


@given(st.lists(st.tuples(TOKENS, st.integers(0, 900)), max_size=30), TOKENS)
def test_it_is_a_bounded_dictionary(puts, asked):
    cache, plain = PrefixCache(1 << 30), {}
    small = PrefixCache(4000)
    for tokens, size in puts:
        cache.put(tokens, (tokens, size), size)
        small.put(tokens, tokens, size)
        plain[tokens] = (tokens, size)
        assert small.bytes <= 4000
        assert sum(small._lengths.values()) == len(small)
    assert cache.get(asked) == plain.get(asked)
    prefixes = [length for length in range(len(asked) - 1, 0, -1) if asked[:length] in plain]
    assert cache.longest(asked) == ((prefixes[0], plain[asked[: prefixes[0]]]) if prefixes else None)
    assert small.get(asked) in (None, asked)


def test_threads_share_it():
    cache = PrefixCache(50_000)

    def work(seed):
        for index in range(300):
            cache.put([seed, index % 7], (seed, index), 50)
            found = cache.longest([seed, index % 7, 1])
            assert found is None or found[1][0] == seed

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.bytes <= cache.max_bytes
