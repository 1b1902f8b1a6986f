"""Tests of padding."""

from models.text.padding import padded


def test_sequences_are_padded_on_the_right():
    batch = padded([(5, 6, 7), (8,)])
    assert batch["tokens"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["lengths"].tolist() == [3, 1]
