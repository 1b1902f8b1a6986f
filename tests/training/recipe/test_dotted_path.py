"""Tests of dotted paths."""

from typing import Any

import pytest

from training.recipe.dotted_path import copy_at, differences, part_at, set_at, short_names


@pytest.fixture
def content() -> dict[str, Any]:
    return {"seed": 1, "layer": {"kernels": [{"name": "lin"}, {"name": "log", "p": 2}], "rho": 0.1}}


def test_items_of_mappings_and_lists_are_set(content: dict[str, Any]) -> None:
    set_at(content, "seed", 2)
    set_at(content, "layer.rho", None)
    set_at(content, "layer.kernels.1.p", 3)
    set_at(content, "layer.kernels.0", "pow")
    assert content == {"seed": 2, "layer": {"kernels": ["pow", {"name": "log", "p": 3}], "rho": None}}


def test_a_mapping_gets_a_new_key_only_where_it_may(content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"there is no layer[.]kernels[.]0[.]p: instead of 'p' there is name"):
        set_at(content, "layer.kernels.0.p", 1)
    set_at(content, "layer.kernels.0.p", 1, may_add=True)
    assert content["layer"]["kernels"][0] == {"name": "lin", "p": 1}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("sed", "there is no sed: instead of 'sed' there is seed, layer"),
        ("layer.kernels.2.p", "instead of '2' there is 0, 1"),
        ("layer.kernels.-1.p", "instead of '-1' there is 0, 1"),
        ("layer.kernels.first.p", "instead of 'first' there is 0, 1"),
        ("seed.more", "instead of 'more' there is nothing"),
        ("", "instead of '' there is seed, layer"),
    ],
)
def test_a_path_to_nowhere_is_explained(content: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        set_at(content, path, 1, may_add="kernels" in path)


def test_a_part_holds_whole_lists(content: dict[str, Any]) -> None:
    assert part_at(content, ["seed", "layer.kernels.1.p"]) == {
        "seed": 1,
        "layer": {"kernels": [{"name": "lin"}, {"name": "log", "p": 2}]},
    }
    assert part_at(content, []) == {}


def test_an_item_is_copied_with_the_mappings_it_needs(content: dict[str, Any]) -> None:
    other: dict[str, Any] = {"layer": None}
    copy_at(other, content, "layer.rho")
    assert other == {"layer": {"rho": 0.1}}
    copy_at(other, content, "layer.kernels.1.p")
    assert other == {"layer": content["layer"]}
    assert other["layer"]["kernels"] is not content["layer"]["kernels"]


def test_differences_have_paths_and_both_values() -> None:
    first = {"a": {"b": 1, "c": [1, 2]}, "d": 3, "same": {"x": 1}}
    second = {"a": {"b": 2, "c": [1, 3]}, "e": None, "f": 4, "same": {"x": 1}}
    assert list(differences(first, second)) == [("a.b", 1, 2), ("a.c", [1, 2], [1, 3]), ("d", 3, None), ("f", None, 4)]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["seed"], ["seed"]),
        (["loop.epochs", "network.dropout"], ["epochs", "dropout"]),
        (["output_layer.kernels.0.p", "output_layer.kernels.1.p"], ["0.p", "1.p"]),
        (["a.b", "b"], ["a.b", "b"]),
    ],
    ids=str,
)
def test_names_are_as_short_as_can_be(paths: list[str], names: list[str]) -> None:
    assert short_names(paths) == dict(zip(paths, names, strict=True))
