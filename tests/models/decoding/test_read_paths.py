"""Paths of tokens that a causal model has read, their cache, and runs over several of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.decoding.read_paths import Path, PathCache
from models.decoding.token_tree import TokenTree, TreeReader, layer_inputs

LAYERS, HEADS, SIZE, MOST, PRIME = 2, 3, 2, 8, 1_000_003
TOKEN_BYTES = 4 * 2 * LAYERS * HEADS * SIZE


class Network:
    """A graph `read` whose hidden states say which tokens they saw at which places."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int, int]] = []
        """Texts of each run, tokens of each, and tokens before them."""

    def run(self, graph, inputs, outputs):
        assert (graph, outputs) == ("read", ["hidden_states", "keys_values"])
        tokens, positions, visible = inputs["tokens"], inputs["positions"], inputs["visible"]
        layers = [inputs[name] for layer in range(LAYERS) for name in layer_inputs(layer)]
        prefix = np.stack(layers).reshape(LAYERS, 2, *layers[0].shape)
        texts, count = tokens.shape
        assert prefix.shape[2:] == (texts, HEADS, visible.shape[2] - count, SIZE)
        self.runs.append((texts, count, prefix.shape[4]))
        own = np.zeros((LAYERS, 2, texts, HEADS, count, SIZE), np.float32)
        own[..., 0], own[..., 1] = tokens[:, None], positions[:, None]
        keys = np.concatenate([prefix, own], axis=4)
        hidden = np.zeros((texts, count, 2))
        for text, row in np.ndindex(texts, count):
            seen = keys[:, :, text][..., visible[text, row], :]
            assert (seen == seen[:1, :1, :1]).all()
            tokens_seen, places = seen[0, 0, 0].T
            assert sorted(places.tolist()) == list(range(int(positions[text, row]) + 1))
            hidden[text, row] = text_hash(tokens_seen[np.argsort(places)]), len(places)
        return hidden, own[..., inputs["kept"], :]


def text_hash(tokens):
    found = 0
    for token in tokens:
        found = (31 * found + int(token) + 1) % PRIME
    return found


def reader(sliding_window=None):
    network = Network()
    return network, TreeReader(network, (LAYERS, HEADS, SIZE), MOST, sliding_window=sliding_window)


def read(tree_reader, cache, texts):
    """Read texts from what the cache has; return how many tokens it had of each."""
    known = [cache.longest(text, salt) for text, salt in texts]
    rest = [text[len(path) :] for path, (text, _) in zip(known, texts, strict=True)]
    found = tree_reader.follow(list(zip(known, rest, strict=True)), cache.extended)
    for (path, hidden), (text, _) in zip(found, texts, strict=True):
        assert hidden.tolist() == [text_hash(text), len(text)]
        assert path.tokens == list(text)
    return [len(path) for path in known]


TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=24).map(tuple)


@settings(deadline=None)
@given(
    steps=st.lists(st.lists(st.tuples(TEXTS, st.sampled_from(["", "a"])), min_size=1, max_size=5), max_size=6),
    max_bytes=st.sampled_from([0, 3000, 20_000, 1 << 20]),
    window=st.sampled_from([None, 4]),
)
def test_texts_are_read_after_their_own_beginnings(steps, max_bytes, window):
    _, tree_reader = reader(window)
    cache = PathCache(max_bytes)
    for texts in steps:
        read(tree_reader, cache, list(dict.fromkeys(texts)))
        assert cache.bytes <= max_bytes
        assert cache.bytes == sum(segment.bytes for segment in cache._used)
        assert set(cache._roots) == set(cache._used.values())
        for segment in cache._used:
            assert segment.parent.children[segment.after, segment.tokens[0]] is segment


def test_texts_that_are_written_together_share_runs_and_what_they_begin_with():
    network, tree_reader = reader()
    cache = PathCache(1 << 20)
    texts = [((1, 2, 3, number), "") for number in range(4)]
    assert read(tree_reader, cache, texts[:1]) == [0]
    assert read(tree_reader, cache, texts[1:]) == [3, 3, 3]
    for step in range(20):
        network.runs.clear()
        texts = [((*text, step % 3), salt) for text, salt in texts]
        assert read(tree_reader, cache, texts) == [step + 4] * 4
        assert network.runs == [(4, 1, 32)]
    # Of the first text four tokens and twenty, of the others twenty-one each, in segments of sixteen.
    assert len(cache) == 1 + 2 + 3 * 2


def test_a_text_that_begins_like_another_goes_on_from_the_middle_of_it():
    _, tree_reader = reader()
    cache = PathCache(1 << 20)
    assert read(tree_reader, cache, [((1, 2, 3, 4, 5), "")]) == [0]
    assert read(tree_reader, cache, [((1, 2, 7), "")]) == [2]
    assert read(tree_reader, cache, [((1, 2, 3, 4, 5), ""), ((1, 2, 7, 8), ""), ((1, 2, 3), "a")]) == [4, 3, 0]


def test_texts_of_one_run_that_begin_alike_are_kept():
    _, tree_reader = reader()
    cache = PathCache(1 << 20)
    texts = [((1, 2, 3), ""), ((1, 2, 4), ""), ((1, 2), ""), ((1, 2, 3, 5, 6), ""), ((1, 2, 3), "a")]
    assert read(tree_reader, cache, texts) == [0] * 5
    assert read(tree_reader, cache, [((*text, 7), salt) for text, salt in texts]) == [3, 3, 2, 5, 3]


def test_what_was_used_last_is_kept():
    _, tree_reader = reader()
    texts = [((first, 1, 2), "") for first in range(3)]
    whole = PathCache(1 << 20)
    read(tree_reader, whole, texts[:1])
    cache = PathCache(2 * whole.bytes)
    for text in (texts[0], texts[1], texts[0], texts[2]):
        read(tree_reader, cache, [text])
    assert [len(cache.longest(text, salt)) for text, salt in texts] == [2, 0, 2]


def test_what_follows_dropped_tokens_is_not_kept():
    _, tree_reader = reader()
    cache = PathCache(1 << 20)
    [(path, _)] = tree_reader.follow([(Path(), (1, 2))], cache.extended)
    cache.max_bytes = 0
    tree_reader.follow([(Path(), (5,))], cache.extended)
    assert (len(cache), cache.bytes) == (0, 0)
    cache.max_bytes = 1 << 20
    [(longer, hidden)] = tree_reader.follow([(path, (3,))], cache.extended)
    assert longer.tokens == [1, 2, 3]
    assert hidden[0] == text_hash((1, 2, 3))
    assert len(cache) == 0


def test_tokens_that_were_read_twice_at_the_same_time_are_kept_once():
    _, tree_reader = reader()
    cache = PathCache(1 << 20)
    twice = [tree_reader.follow([(Path(), (1, 2, 3))], cache.extended)[0][0] for _ in range(2)]
    assert len(cache) == 1
    found = tree_reader.follow([(path, (number,)) for number, path in enumerate(twice)], cache.extended)
    assert [path.tokens for path, _ in found] == [[1, 2, 3, 0], [1, 2, 3, 1]]


def test_long_texts_are_read_in_parts_and_short_ones_with_others():
    network, tree_reader = reader()
    long, short = tuple(range(2 * MOST + 3)), (1, 2)
    found = tree_reader.follow([(Path(), long), (Path(), short), (Path(), short)])
    assert [path.tokens for path, _ in found] == [list(long), list(short), list(short)]
    assert network.runs == [(1, MOST, 0), (1, 4, 0), (1, MOST, MOST), (1, 3, 2 * MOST)]


def test_a_text_that_is_longer_than_a_window_is_read_alone():
    """The graph takes the place of a token before for its position there."""
    network, tree_reader = reader(sliding_window=4)
    paths = [path for path, _ in tree_reader.follow([(Path(), (1, 2, 3)), (Path(), (4, 5)), (Path(), (6, 7))])]
    network.runs.clear()
    tree_reader.follow([(path, (8, 9)) for path in paths])
    assert network.runs == [(1, 2, 3), (1, 4, 4)]


def test_a_tree_goes_on_from_a_path():
    _, tree_reader = reader()
    [(path, _)] = tree_reader.follow([(tree_reader.follow([(Path(), (1, 2))])[0][0], (3,))])
    tree = TokenTree([(4, 5), (4, 6)], begins_at=len(path))
    rows = np.concatenate([hidden for _, hidden in tree_reader.read(tree, np.arange(len(tree)), path.joined())])
    assert rows[:, 0].tolist() == [text_hash((1, 2, 3, *more)) for more in ((4,), (4, 5), (4, 6))]


def test_a_text_without_tokens_is_an_error():
    with pytest.raises(ValueError, match="no token"):
        reader()[1].follow([(Path(), ())])


def test_texts_that_go_on_by_a_token_have_rows_with_their_own_paths():
    """A row is as long as the longest path; texts of several lengths join and leave."""
    network, tree_reader = reader(sliding_window=4)
    cache = PathCache(1 << 20)
    generator = np.random.default_rng(0)
    texts = [tuple(generator.integers(0, 9, length).tolist()) for length in (1, 2, 5, 40, 7)]
    read(tree_reader, cache, [(text, "") for text in texts])
    for step in range(40):
        network.runs.clear()
        texts = [(*text, int(generator.integers(0, 9))) for text in texts]
        read(tree_reader, cache, [(text, "") for text in texts])
        assert [run[:2] for run in network.runs] == [(len(texts), 1)]
        if step % 7 == 6:
            texts = texts[1:] + texts[: step % 2]  # the first one leaves, or the order changes


def test_texts_that_share_most_of_their_paths_are_read_with_these_once():
    network = Network()
    tree_reader = TreeReader(network, (LAYERS, HEADS, SIZE), 100)
    cache, context, count = PathCache(1 << 20), tuple(range(60)), 40
    read(tree_reader, cache, [((*context, number, 0), "") for number in range(count)])
    network.runs.clear()
    read(tree_reader, cache, [((*context, number, 0, 1), "") for number in range(count)])
    assert network.runs == [(1, count, 60 + 2 * count)]


@pytest.mark.parametrize(
    ("tokens", "runs"), [(27, [(3, 1, 9), (1, 1, 20)]), (3, [(1, 1, 3), (1, 1, 2), (1, 1, 9), (1, 1, 20)])]
)
def test_rows_have_a_bound(tokens, runs):
    """Rows are as long as the longest path; those that do not fit are read together, as far as they fit there."""
    network = Network()
    tree_reader = TreeReader(network, (LAYERS, HEADS, SIZE), MOST, paths_bytes=tokens * TOKEN_BYTES)
    lengths = (1, 2, 9, 20)
    paths = [path for path, _ in tree_reader.follow([(Path(), tuple(range(length))) for length in lengths])]
    network.runs.clear()
    tree_reader.follow([(path, (3,)) for path in paths])
    assert network.runs == runs


def test_runs_have_a_bound_for_what_their_texts_see():
    network = Network()
    tree_reader = TreeReader(network, (LAYERS, HEADS, SIZE), MOST, paths_bytes=7 * TOKEN_BYTES)
    paths = [path for path, _ in tree_reader.follow([(Path(), (number, 1, 2)) for number in range(5)])]
    network.runs.clear()
    found = tree_reader.follow([(path, (3,)) for path in paths])
    assert [hidden[0] for _, hidden in found] == [text_hash((number, 1, 2, 3)) for number in range(5)]
    assert network.runs == [(2, 1, 3), (1, 2, 6), (1, 1, 3)]
