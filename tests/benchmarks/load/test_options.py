"""Tests of the options of a load test."""

import pytest

from benchmarks.load.options import KEY_VARIABLE, LoadOptions, UsageError


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("seconds", 0.0, "--seconds must be more than 0, not 0"),
        ("seconds", float("nan"), "--seconds must be more than 0, not nan"),
        ("seconds", float("inf"), "--seconds must be more than 0, not inf"),
        ("warm_up", -1.0, "--warm-up must be 0 or more, not -1"),
        ("connections", 0, "--connections must be 1 or more, not 0"),
        ("rate", 0.0, "--rate must be more than 0, not 0"),
        ("rate", 1e9, "--rate is 100000 at most"),
        ("texts_per_request", 0, "--texts-per-request must be 1 or more, not 0"),
        ("beam_size", 0, "--beam-size must be 1 or more"),
        ("timeout_ms", 0, "--timeout-ms must be 1 or more"),
        ("timeout_ms", 3_600_001, "--timeout-ms is 3600000 at most"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_its_flag(field, value, text):
    with pytest.raises(UsageError) as caught:
        LoadOptions(**{field: value})
    assert str(caught.value).startswith(text)


def test_the_least_and_largest_are_taken():
    load = LoadOptions(seconds=1e-3, warm_up=0, connections=1, rate=100_000, texts_per_request=1, timeout_ms=3_600_000)
    assert load.most_connections() == 1


def test_an_open_loop_has_more_connections():
    assert LoadOptions().most_connections() == 16
    assert LoadOptions(rate=5).most_connections() == 1024


def test_the_key_comes_from_a_file_before_the_environment(tmp_path, monkeypatch):
    assert LoadOptions().key() is None
    monkeypatch.setenv(KEY_VARIABLE, "from-the-environment")
    assert LoadOptions().key() == "from-the-environment"
    path = tmp_path / "keys"
    path.write_text("# mine\n\nfrom-the-first-line\nfrom-the-second-line\n")
    assert LoadOptions(api_key_file=path).key() == "from-the-first-line"
    monkeypatch.setenv(KEY_VARIABLE, "")
    assert LoadOptions().key() is None


@pytest.mark.parametrize("key", ["with space", "line\nX-Other: 1", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_not_shown(key, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, key)
    with pytest.raises(UsageError) as caught:
        LoadOptions().key()
    assert str(caught.value) == f"{KEY_VARIABLE} must consist of visible ASCII characters"


@pytest.mark.parametrize(("content", "text"), [(None, "does not exist"), ("", "holds no key"), ("short", "line 1")])
def test_a_file_without_a_key_is_named(content, text, tmp_path):
    path = tmp_path / "keys"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=text) as caught:
        LoadOptions(api_key_file=path).key()
    assert str(path) in str(caught.value)
