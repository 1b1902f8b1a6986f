"""Tests of the command `softserve-train tune`, of values it skips and directories it deletes."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.training.search import test_tune
from tests.training.search.test_tune import (
    RATE,
    MakeRecipe,
    OpenSearch,
    P,
    Scripted,
    _rate,
    _silent,
)
from training.cli import commands
from training.recipe.loading import parse_recipe
from training.search.tune import Search, clear_search

make_recipe, open_search, script = test_tune.make_recipe, test_tune.open_search, test_tune.script  # fixtures


def test_the_command_says_what_to_paste(
    make_recipe: MakeRecipe,
    script: Callable[..., type[Scripted]],
    tiny_data_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script(_rate)
    recipe = make_recipe({RATE: [0.1, 0.2], P: [1, 3], "output_layer.variance_penalty": [0.5]}, kernels="2*log")
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe.model_dump()))
    assert commands.tune(file, tiny_data_dir, tmp_path / "runs", "cpu") == 0
    said = capsys.readouterr().out
    pasted = yaml.safe_load(said[said.index("\n\n") : said.index("wrote")])
    assert list(pasted) == ["loop", "output_layer"]
    assert pasted["loop"] == {"learning_rate": 0.1}
    best = parse_recipe(recipe.model_dump() | {"tune": None} | {"output_layer": pasted["output_layer"]})
    assert isinstance(best.output_layer.kernels, list)
    assert best.output_layer.kernels[1] == {"name": "log"}

    directory = tmp_path / "runs" / "toy-tune"
    header, *lines = (directory / "trials.csv").read_text().splitlines()
    assert header == f"trial,dev perplexity,{RATE},{P},output_layer.variance_penalty,epochs,minutes,state"
    assert len(lines) == 4
    assert lines[0].split(",")[1:3] == ["1.1", "0.1"]
    assert (directory / "trials.png").read_bytes().startswith(b"\x89PNG")

    script(lambda recipe: [math.nan])
    assert commands.tune(file, tiny_data_dir, tmp_path / "runs", "cpu", restart=True) == 1
    assert "no trial came to its end" in capsys.readouterr().out


def test_wrong_data_end_a_search_and_are_no_result(
    make_recipe: MakeRecipe,
    open_search: OpenSearch,
    script: Callable[..., type[Scripted]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once the data are right, the same search trains the trial."""
    trained = script(_rate).trained

    def damaged(*arguments: object) -> None:
        raise ValueError("train.tsv is not the registered file of corpus 'toy' (checksum)")

    search = open_search({RATE: [0.1, 0.2]})
    with monkeypatch.context() as patch:
        patch.setattr("training.search.tune.start_run", damaged)
        with pytest.raises(ValueError, match=r"train[.]tsv is not the registered file"):
            search.run(_silent)
    assert search.results() == []
    search.run(_silent)
    assert [recipe.loop.learning_rate for recipe in trained] in ([0.1, 0.2], [0.2, 0.1])


def test_a_search_goes_on_after_recipes_got_a_new_field(
    open_search: OpenSearch, script: Callable[..., type[Scripted]]
) -> None:
    script(_rate)
    search = open_search({RATE: [0.1]})
    stored = json.loads(search.study.user_attrs["recipe"])
    del stored["data"]["files"]
    search.study.set_user_attr("recipe", json.dumps(stored))
    open_search({RATE: [0.1]}).run(_silent)


def test_values_that_cannot_be_trained_here_are_skipped(open_search: OpenSearch) -> None:
    search = open_search({"loop.precision": ["float16", "float32"]})
    search.run(_silent)
    assert [result.failed for result in search.results()] == [False, True]
    assert search.num_running() == 0


def test_only_a_search_is_deleted(open_search: OpenSearch, tmp_path: Path) -> None:
    (tmp_path / "x-tune").mkdir()
    (tmp_path / "x-tune" / "best.pt").touch()
    with pytest.raises(FileExistsError, match="x-tune is there and holds no search"):
        clear_search(tmp_path / "x-tune")
    assert (tmp_path / "x-tune" / "best.pt").is_file()
    search = open_search({RATE: [0.1]})
    assert Search.exists(search.directory)
    clear_search(search.directory)
    assert not search.directory.exists()
