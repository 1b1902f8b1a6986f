import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import BundleError, LanguageModel, ModelStore, UnknownModelError, UnsupportedDeviceError
from models.store import load_bundle
from tests.fixtures.bundled import NEXT_WORD_SIZE


@pytest.fixture
def put(tmp_path):
    """Makes directories that look like bundles from outside."""

    def make(*bundles, root="models"):
        (tmp_path / root).mkdir(exist_ok=True)
        for bundle in bundles:
            (tmp_path / root / bundle).mkdir(parents=True)
            (tmp_path / root / bundle / "manifest.json").touch()
        return tmp_path / root

    return make


def rechecked(bundle):
    """Corrects the checksums of a bundle that was changed."""
    path = bundle / "manifest.json"
    content = json.loads(path.read_text())
    content["files"] = {name: hashlib.sha256((bundle / name).read_bytes()).hexdigest() for name in content["files"]}
    path.write_text(json.dumps(content))
    return bundle


# ---- finding ----


def test_versions_are_sorted_as_numbers(put):
    assert ModelStore(put("b/10", "b/9", "a/1")).versions() == {"a": [1], "b": [9, 10]}


def test_the_newest_version_wins(put):
    root = put("a/9", "a/10")
    assert ModelStore(root).path("a") == root / "a/10"


def test_a_version_can_be_named(put):
    root = put("a/9", "a/10")
    store = ModelStore(root)
    assert store.path("a:9") == store.path("a", 9) == root / "a/9"


def test_the_first_directory_wins(put):
    first, second = put("a/1"), put("a/1", "a/2", "b/1", root="more")
    store = ModelStore(first, second)
    assert store.path("a", 1) == first / "a/1"
    assert store.path("a") == second / "a/2"
    assert ModelStore(second, first).path("a", 1) == second / "a/1"
    assert store.versions() == {"a": [1, 2], "b": [1]}


def test_what_is_no_bundle_is_ignored(put):
    root = put("a/1", "a/0", "a/-1", "a/1.5", "a/v2", "a/²", "a/٣", "a/1234567890", "deep/er/1")
    (root / "a/7").mkdir()
    (root / "8").mkdir()
    (root / "manifest.json").touch()
    (root / "file").touch()
    assert ModelStore(root).versions() == {"a": [1]}


def test_bundles_are_found_as_they_come_and_go(put):
    root = put("a/1")
    store = ModelStore(root)
    put("a/2")
    assert store.versions() == {"a": [1, 2]}
    shutil.rmtree(root / "a")
    assert store.versions() == {}


@pytest.mark.parametrize("name", ["b", "a:3", "a:0", "a:x", "a:-1", "a:1:1", ":1", "", ":", "A", "a ", "a\0", "²:1"])
def test_unknown_names_name_the_known_ones(put, name):
    with pytest.raises(UnknownModelError) as caught:
        ModelStore(put("a/9", "a/10", "z/1")).path(name)
    assert caught.value.known == ("a:9", "a:10", "z:1")
    assert repr(name) in str(caught.value)


def test_unknown_versions_are_named(put):
    with pytest.raises(UnknownModelError, match="unknown model 'a:3'; known models: a:1"):
        ModelStore(put("a/1")).path("a", 3)


def test_a_store_may_be_empty(put):
    with pytest.raises(UnknownModelError, match="known models: none"):
        ModelStore(put()).path("a")


@pytest.mark.parametrize("name", ["../outside", "../outside:1", "a/../../outside", "{root}/../outside", "a/1", "."])
def test_names_never_reach_the_file_system(put, name):
    put("outside/1", root=".")
    root = put("a/1")
    assert (root / "../outside/1/manifest.json").exists()
    with pytest.raises(UnknownModelError):
        ModelStore(root).path(name.format(root=root))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text() | st.text(alphabet="a:/.109-", max_size=6))
def test_any_text_is_a_known_name_or_unknown(put, tmp_path, name):
    root = tmp_path / "models"
    if not root.exists():
        put("a/1", "a/9")
    with contextlib.suppress(UnknownModelError):
        assert ModelStore(root).path(name) in (root / "a/1", root / "a/9")


def test_missing_directory(put, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        ModelStore(put(), tmp_path / "nowhere")


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError):
        ModelStore(tmp_path / "file")


def test_directories_may_be_text(put):
    assert ModelStore(str(put("a/1"))).versions() == {"a": [1]}


# ---- entries that hold no bundle ----


def test_entries_that_look_like_bundles_and_are_none_are_named(put, tmp_path):
    root = put("a/1", "b/1")
    (root / "a/2").mkdir()
    (root / "a/3").touch()
    (root / "a/4").symlink_to(tmp_path / "nothing")
    (root / "a/5").symlink_to("5")
    (root / "c").symlink_to(tmp_path / "nothing")
    (root / "d").touch()
    (root / "b/1/manifest.json").unlink()
    (root / "b/1/manifest.json").symlink_to(tmp_path / "nothing")
    store = ModelStore(root)
    assert store.versions() == {"a": [1]}
    loop = os.strerror(errno.ELOOP)
    assert store.problems() == {
        root / "a/2": "it has no manifest.json",
        root / "a/3": "it is no directory",
        root / "a/4": "it is a link to nothing",
        root / "a/5": f"it cannot be read: {loop}",
        root / "b/1": "it has no manifest.json",
        root / "c": "it is a link to nothing",
        root / "d": "it is no directory",
    }


def test_entries_that_stand_for_no_model_are_no_problem(put, tmp_path):
    root = put("a/1", "a/v2", "a/draft")
    (root / "readme.txt").touch()
    (root / "LICENSE").touch()
    (root / ".git").symlink_to(tmp_path / "nothing")
    (root / "a/notes").symlink_to(tmp_path / "nothing")
    assert ModelStore(root).problems() == {}


def test_a_link_to_a_bundle_is_a_bundle(put, tmp_path):
    root, elsewhere = put("a/1"), put("x/2", root="elsewhere")
    (root / "a/2").symlink_to(elsewhere / "x/2")
    (root / "b").symlink_to(elsewhere / "x")
    store = ModelStore(root)
    assert (store.versions(), store.problems()) == ({"a": [1, 2], "b": [2]}, {})


@pytest.mark.parametrize("entry", ["", "a", "a/2"])
def test_an_entry_that_may_not_be_read_is_named(put, monkeypatch, entry):
    root = put("a/1", "a/2", "lost+found/1")
    store, denied = ModelStore(root), [str(root / entry), str(root / "lost+found")]
    refuse_to_read(monkeypatch, denied)
    assert store.problems() == {root / entry: "it cannot be read: Permission denied"}
    assert store.versions() == ({"a": [1]} if entry == "a/2" else {})


def refuse_to_read(monkeypatch, directories):
    """Tests may run as root, who may read everything."""

    def refusing(function):
        def refuse(path, **options):
            if str(path).removesuffix("/manifest.json") in directories:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return function(path, **options)

        return refuse

    monkeypatch.setattr("models.store.os.listdir", refusing(os.listdir))
    monkeypatch.setattr("models.store.os.stat", refusing(os.stat))


def test_a_model_directory_that_disappears_is_named(put):
    root = put("a/1")
    store = ModelStore(root)
    shutil.rmtree(root)
    assert (store.versions(), store.problems()) == ({}, {root: "it does not exist"})


# ---- loading ----


def test_the_manifest_is_read_without_the_files(bundle):
    (bundle / "weights.bin").unlink()
    assert ModelStore(bundle.parent.parent).manifest("next-word").name == "next-word"


def test_a_loaded_model_knows_its_manifest_and_backend(store, model):
    assert model.manifest == store.manifest("next-word:4")
    assert (model.backend.name, model.backend.device) == ("onnx", "cpu")


def test_loading_a_changed_bundle_names_the_file(bundle):
    data = bytearray((bundle / "weights.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (bundle / "weights.bin").write_bytes(data)
    with pytest.raises(BundleError, match=r"weights\.bin does not match its checksum"):
        ModelStore(bundle.parent.parent).load("next-word:4")


def test_a_copy_answers_as_the_original(bundle, model):
    copy = load_bundle(str(bundle), threads=1)
    assert [word.word for word in copy.next_words(["thank you very"], 3)[0].words] == [
        word.word for word in model.next_words(["thank you very"], 3)[0].words
    ]


@pytest.mark.parametrize("data", [b"", b"{}"])
def test_a_tokenizer_that_is_none_is_a_bundle_error(bundle, data):
    (bundle / "tokenizer.json").write_bytes(data)
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        load_bundle(rechecked(bundle), threads=1)


def test_a_graph_that_is_none_is_a_bundle_error(bundle):
    (bundle / "score.onnx").write_bytes(b"rubbish")
    with pytest.raises(BundleError, match=r"score\.onnx does not load"):
        load_bundle(rechecked(bundle), threads=1)


@pytest.mark.parametrize("graph", ["score", "next_words"])
def test_a_language_model_needs_both_graphs(bundle, content, graph):
    del content["graphs"][graph]
    (bundle / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(BundleError, match=graph):
        load_bundle(bundle, threads=1)


@pytest.mark.parametrize("change", [{"vocab_size": 5}, {"special_tokens": {"unknown": 0, "end": 10**6}}])
def test_manifest_and_tokenizer_must_agree(bundle, content, change):
    (bundle / "manifest.json").write_text(json.dumps(content | change))
    with pytest.raises(BundleError):
        load_bundle(bundle, threads=1)


def test_unknown_backend(bundled):
    with pytest.raises(UnsupportedDeviceError, match="unknown backend 'tpu'; known backends: onnx, torchscript"):
        load_bundle(bundled, backend="tpu")


def test_torchscript_without_torch_says_what_to_install(bundled, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "models.backend.torchscript", raising=False)
    with pytest.raises(UnsupportedDeviceError, match=r"install softserve\[torchscript\]"):
        load_bundle(bundled, backend="torchscript")


def test_unknown_device(bundled):
    with pytest.raises(UnsupportedDeviceError, match="unknown device 'abacus'"):
        load_bundle(bundled, device="abacus")


def test_loading_a_missing_directory():
    with pytest.raises(BundleError, match=r"manifest\.json is missing"):
        load_bundle(Path("nowhere"))


# ---- the graphs against the manifest ----


def changed(bundle, content, change):
    change(content["graphs"])
    (bundle / "manifest.json").write_text(json.dumps(content))
    return bundle


def tensor(graphs, graph, side, name):
    (found,) = [spec for spec in graphs[graph][side] if spec["name"] == name]
    return found


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda graphs: tensor(graphs, "score", "inputs", "tokens").update(dtype="float32"),
            "graphs.score.inputs.tokens is float32, in the graph int64",
        ),
        (
            lambda graphs: tensor(graphs, "score", "inputs", "hidden").update(shape=[2, "batch"]),
            "graphs.score.inputs.hidden has 2 dimensions, in the graph 3",
        ),
        (
            lambda graphs: tensor(graphs, "score", "inputs", "hidden").update(shape=[2, "batch", 191]),
            f"graphs.score.inputs.hidden has 191 in dimension 2, in the graph {NEXT_WORD_SIZE}",
        ),
        (
            lambda graphs: tensor(graphs, "score", "outputs", "next_cell").update(
                shape=["layers", "batch", NEXT_WORD_SIZE]
            ),
            "graphs.score.outputs.next_cell has layers in dimension 0, in the graph 2",
        ),
        (
            lambda graphs: graphs["next_words"]["outputs"].remove(tensor(graphs, "next_words", "outputs", "entropy")),
            "graphs.next_words.outputs lacks entropy, which the graph has",
        ),
    ],
)
def test_a_graph_with_another_signature_is_a_bundle_error(bundle, content, change, problem):
    with pytest.raises(BundleError) as caught:
        load_bundle(changed(bundle, content, change), threads=1)
    assert caught.value.problems == (problem,)


def test_all_differences_of_all_graphs_are_named_at_once(bundle, content):
    def change(graphs):
        tensor(graphs, "score", "inputs", "tokens").update(name="texts")
        tensor(graphs, "next_words", "inputs", "k").update(dtype="float32")
        tensor(graphs, "next_words", "outputs", "words").update(dtype="float32", shape=["batch"])

    with pytest.raises(BundleError) as caught:
        load_bundle(changed(bundle, content, change), threads=1)
    assert set(caught.value.problems) == {
        "graphs.score.inputs.texts is not in the graph",
        "graphs.score.inputs lacks tokens, which the graph has",
        "graphs.next_words.inputs.k is float32, in the graph int64",
        "graphs.next_words.outputs.words is float32, in the graph int64",
        "graphs.next_words.outputs.words has 1 dimensions, in the graph 2",
    }


def test_a_dimension_that_only_the_graph_lets_vary_is_no_difference(bundle, content):
    path = changed(
        bundle, content, lambda graphs: tensor(graphs, "score", "inputs", "tokens").update(shape=[1, "steps"])
    )
    load_bundle(path, threads=1)


def test_whatever_loading_raises_is_a_bundle_error(bundled, monkeypatch):
    def fail(*_):
        raise KeyError("surprise")

    monkeypatch.setattr(LanguageModel, "from_bundle", fail)
    with pytest.raises(BundleError, match="it does not load: KeyError: 'surprise'"):
        load_bundle(bundled, threads=1)
