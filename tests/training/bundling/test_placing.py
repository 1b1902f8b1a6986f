"""Tests of where a new bundle goes."""

from pathlib import Path

import pytest

from models.bundle.manifest import MANIFEST
from training.bundling.bundle import check_target, place


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_bundle_is_never_replaced(force: bool, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "thesis.txt").touch()
    (tmp_path / "2").touch()
    for name in ("1", "2"):
        with pytest.raises(FileExistsError, match=rf"{name} exists and is no bundle: manifest\.json is missing"):
            check_target(tmp_path / name, force=force, advice="")


def test_a_bundle_is_replaced_on_request(tmp_path: Path) -> None:
    check_target(tmp_path / "1", force=False, advice="")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / MANIFEST).touch()
    with pytest.raises(FileExistsError, match=r"1 exists; use --force$"):
        check_target(tmp_path / "1", force=False, advice="use --force")
    check_target(tmp_path / "1", force=True, advice="")


def _bundles(tmp_path: Path) -> tuple[Path, Path]:
    new, target = tmp_path / "work" / "new", tmp_path / "toy" / "1"
    for directory in (new, target):
        directory.mkdir(parents=True)
        (directory / directory.name).touch()
    return new, target


def test_the_new_one_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    new, target = _bundles(tmp_path)
    place(new, target)
    assert [file.name for file in target.iterdir()] == ["new"]
    assert [file.name for file in target.parent.iterdir()] == ["1"]


def test_an_interrupted_replacement_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (new, target), rename = _bundles(tmp_path), Path.rename

    def interrupted(self: Path, to: Path) -> Path:
        if self == new:
            raise KeyboardInterrupt
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        place(new, target)
    assert [file.name for file in target.iterdir()] == ["1"]
