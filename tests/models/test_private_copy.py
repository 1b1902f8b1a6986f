"""Models are loaded from private copies, which nothing that happens to the bundle changes."""

import errno
import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from models import BundleError, ModelStore
from models.private_copy import private_directory, verified, verified_copy
from models.reading import sha256_of
from models.store import load_bundle


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The temporary directory of the test."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def truncated(bundle):
    os.truncate(bundle / "weights.bin", 1000)


def written_over(bundle):
    with (bundle / "weights.bin").open("r+b") as file:
        file.write(b"\x11" * file.seek(0, os.SEEK_END))


def rewritten(bundle):
    for path in bundle.iterdir():
        path.write_bytes(b"{}")


def answers(model):
    words = [(each.word, each.probability) for each in model.next_words(["thank you very"], 5)[0].words]
    return words, [each.log_probability for each in model.score(["books can be outdated"])[0].tokens]


@pytest.mark.parametrize("change", [truncated, written_over, rewritten, shutil.rmtree])
def test_a_change_of_the_files_changes_no_answer(bundle, change):
    model = load_bundle(bundle, threads=1, parallel=2)
    expected = answers(model)
    change(bundle)
    assert answers(model) == expected
    with model.backend.concurrently():
        assert answers(model) == expected


def mapped(name):
    return name in Path("/proc/self/maps").read_text()


def test_weights_are_mapped_in_place_where_that_is_wanted(bundle, temporary):
    model = load_bundle(bundle, threads=1, map_weights=True)
    assert mapped(str(bundle / "weights.bin"))
    assert list(temporary.iterdir()) == []
    del model


def test_nothing_is_left_in_the_temporary_directory(bundle, temporary):
    model = ModelStore(bundle.parent.parent).load("next-word:4", threads=1)
    assert list(temporary.iterdir()) == []
    assert not mapped(str(bundle))
    (bundle / "labels.txt").touch()
    with pytest.raises(BundleError):
        load_bundle(bundle)
    assert list(temporary.iterdir()) == []
    del model


def test_the_checked_bytes_are_those_of_the_copy(bundle, temporary):
    with verified(bundle) as found:
        assert found.origin == bundle
        assert found.path.is_relative_to(temporary)
        assert found.digest == sha256_of(bundle / "manifest.json")
        rewritten(bundle)
        for name, expected in found.manifest.files.items():
            assert sha256_of(found.path / name) == expected
        assert found.path.stat().st_mode & 0o7777 == 0o755
        assert next(temporary.iterdir()).stat().st_mode & 0o7777 == 0o700


def test_a_file_that_leads_elsewhere_is_copied(bundle, tmp_path):
    """onnxruntime refuses weights outside the directory of the graph."""
    (bundle / "weights.bin").rename(tmp_path / "blob")
    (bundle / "weights.bin").symlink_to(tmp_path / "blob")
    assert load_bundle(bundle, threads=1).next_words(["thank you very"], 1)[0].words[0].word == "much"


def test_files_that_the_backend_does_not_read_are_not_copied(tiny_bundle, temporary):
    with verified(tiny_bundle) as found:
        scripts = {graph.torchscript for graph in found.manifest.graphs.values()}
        assert not scripts & {path.name for path in found.path.iterdir()}
    with verified(tiny_bundle, backend="torchscript") as found:
        assert scripts <= {path.name for path in found.path.iterdir()}


def test_errors_name_the_bundle_and_not_the_copy(bundle, temporary, content):
    (bundle / "score.onnx").write_bytes(b"no graph")
    content["files"]["score.onnx"] = sha256_of(bundle / "score.onnx")
    (bundle / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(BundleError, match=r"score\.onnx does not load") as caught:
        load_bundle(bundle)
    assert str(temporary) not in str(caught.value)
    assert str(caught.value).startswith(f"{bundle}: ")


# ---- no room ----


def test_without_room_the_files_are_used_where_they_are(bundle, temporary, monkeypatch, caplog):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=5_000_000))
    model = load_bundle(bundle, threads=1)
    assert mapped(str(bundle / "weights.bin"))
    assert f"{temporary} has no room for a private copy" in caplog.text
    del model


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_room_may_be_gone_when_it_is_needed(bundle, temporary, monkeypatch, caplog, number):
    def full(path, data):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("models.files._write", full)
    with private_directory() as directory:
        assert verified_copy(bundle, directory).path == bundle
        assert list(directory.iterdir()) == []
    assert "no room" in caplog.text


def test_without_a_temporary_directory_the_files_are_used_where_they_are(bundle, monkeypatch, caplog):
    def nowhere():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    with verified(bundle) as found:
        assert found.path == bundle
    assert "the temporary directory has no room" in caplog.text


@pytest.mark.parametrize("function", ["shutil.disk_usage", "models.files._write"])
def test_a_temporary_directory_on_a_broken_disk_says_nothing_against_the_bundle(
    bundle, temporary, monkeypatch, caplog, function
):
    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(function, broken)
    with private_directory() as directory:
        assert verified_copy(bundle, directory).path == bundle
        assert list(directory.iterdir()) == []
    assert f"{temporary} takes no private copy (Input/output error)" in caplog.text


def test_a_directory_that_cannot_be_locked_is_not_used(temporary, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    with private_directory() as directory:
        assert directory is None
    assert list(temporary.iterdir()) == []


def test_a_copy_takes_no_more_than_it_may(bundle, temporary, caplog):
    size = sum(path.stat().st_size for path in bundle.iterdir())
    with private_directory() as directory:
        assert verified_copy(bundle, directory, max_bytes=size // 2).path == bundle
        assert verified_copy(bundle, directory, max_bytes=size).path.is_relative_to(directory)
    assert len(caplog.records) == 1


# ---- directories of killed processes ----


def aged(directory, seconds):
    os.utime(directory, (time.time() - seconds,) * 2)


def test_directories_of_killed_processes_are_deleted(temporary):
    for name in ("softserve-bundle-old", "softserve-bundle-locked", "softserve-bundle-new", "other"):
        (temporary / name).mkdir()
        (temporary / name / "weights.bin").touch()
        aged(temporary / name, 0 if "new" in name else 3600)
    lock = os.open(temporary / "softserve-bundle-locked", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with private_directory() as directory:
        assert {path.name for path in temporary.iterdir()} == {
            "softserve-bundle-locked",
            "softserve-bundle-new",
            "other",
            directory.name,
        }
    os.close(lock)


def test_a_link_is_not_followed(temporary, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    aged(tmp_path / "precious", 3600)
    (temporary / "softserve-bundle-link").symlink_to(tmp_path / "precious")
    with private_directory():
        assert (tmp_path / "precious" / "file").exists()


def test_a_directory_in_use_is_locked(temporary):
    with private_directory() as directory:
        aged(directory, 3600)
        with private_directory():
            assert directory.exists()
    assert not directory.exists()
