"""Tests of reading model directories, and of downloads with the Hub replaced by local files."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.training.importing.conftest import Source, set_config
from training.importing.errors import ImportRefused
from training.importing.source import SourceDirectory, open_source
from training.importing.weights import NamedWeights

WEIGHTS = "model.safetensors"


def test_what_was_read_is_known_with_its_checksum(source: Source) -> None:
    directory = source()
    opened = open_source(str(directory))
    assert opened.architecture == "BertForSequenceClassification"
    opened.weights()
    assert opened.licence() == "mit"
    checksums = opened.checksums()
    assert sorted(checksums) == ["README.md", "config.json", WEIGHTS]
    assert checksums[WEIGHTS] == hashlib.sha256((directory / WEIGHTS).read_bytes()).hexdigest()


def test_weights_in_several_files(source: Source) -> None:
    directory = source()
    expected = load_file(directory / WEIGHTS)
    names = sorted(expected)
    parts = {"a.safetensors": names[:3], "b.safetensors": names[3:]}
    for file, some in parts.items():
        save_file({name: expected[name] for name in some}, directory / file)
    (directory / WEIGHTS).unlink()
    index = {"weight_map": {name: file for file, some in parts.items() for name in some}}
    (directory / f"{WEIGHTS}.index.json").write_text(json.dumps(index), encoding="utf-8")
    found = open_source(str(directory)).weights()
    assert sorted(found) == names
    assert all(torch.equal(found[name], expected[name]) for name in names)


@pytest.mark.parametrize("file", ["../a.safetensors", "/etc/passwd", "a.bin", "", 3])
def test_an_index_cannot_name_other_files(file: object, source: Source) -> None:
    directory = source()
    (directory / WEIGHTS).unlink()
    (directory / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": {"x": file}}), encoding="utf-8")
    with pytest.raises(ImportRefused, match="does not name files of the directory"):
        open_source(str(directory)).weights()


@pytest.mark.parametrize("name", ["model.bin", "model.pt", "weights.pkl", "tf_model.h5"])
def test_pickles_are_refused_unread(name: str, source: Source) -> None:
    directory = source()
    (directory / WEIGHTS).rename(directory / name)
    with pytest.raises(ImportRefused, match=f"has its weights in {name} only, which may run code.*save_pretrained"):
        open_source(str(directory)).weights()


def test_torch_weights_are_read_as_tensors_alone(source: Source) -> None:
    directory = source()
    expected = load_file(directory / WEIGHTS)
    (directory / WEIGHTS).unlink()
    torch.save({**expected, "epoch": 3}, directory / "pytorch_model.bin")
    found = open_source(str(directory)).weights()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)

    names = sorted(expected)
    for part in (1, 2):
        some = {name: expected[name] for name in names[part - 1 :: 2]}
        torch.save(some, directory / f"pytorch_model-0000{part}-of-00002.bin")
    index = {
        "weight_map": {name: f"pytorch_model-0000{place % 2 + 1}-of-00002.bin" for place, name in enumerate(names)}
    }
    (directory / "pytorch_model.bin").unlink()
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert open_source(str(directory)).weights().keys() == expected.keys()


def test_torch_weights_run_no_code(source: Source, tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    directory = source()
    (directory / WEIGHTS).unlink()
    torch.save({"weight": Code()}, directory / "pytorch_model.bin")
    with pytest.raises(ImportRefused, match=r"^pytorch_model.bin is not a file of weights: "):
        open_source(str(directory)).weights()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("path", "stated", "name"),
    [
        ("My Mails", None, "my-mails"),
        ("mails/checkpoint-500", None, "mails"),
        ("a" * 40, "someone/Intent-Model", "intent-model"),
        ("mails/onnx/model_quantized.onnx", None, "mails"),
        ("mails/tickets.onnx", None, "tickets"),
    ],
)
def test_default_names_say_which_model_it_is(path: str, stated: str | None, name: str, tmp_path: Path) -> None:
    place = tmp_path / path
    (place.parent if place.suffix else place).mkdir(parents=True)
    if place.suffix:
        place.touch()
    if stated is not None:
        (place / "config.json").write_text(json.dumps({"_name_or_path": stated}), encoding="utf-8")
    assert open_source(str(place)).default_name() == name


def test_missing_and_damaged_weights(source: Source) -> None:
    directory = source()
    content = (directory / WEIGHTS).read_bytes()
    for damaged in (content[:1000], b"", b"\xff" * 100, (1 << 62).to_bytes(8, "little") + content):
        (directory / WEIGHTS).write_bytes(damaged)
        with pytest.raises(ImportRefused, match="is not a safetensors file"):
            open_source(str(directory)).weights()
    (directory / WEIGHTS).unlink()
    with pytest.raises(ImportRefused, match=f"has no {WEIGHTS}"):
        open_source(str(directory)).weights()


@pytest.mark.parametrize("content", ["{", "[1]", "", "[" * 100_000, '{"a": 1}\x00'])
def test_a_configuration_must_be_an_object(content: str, source: Source) -> None:
    directory = source()
    (directory / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ImportRefused, match=r"config.json (is not JSON|holds no JSON object)"):
        _ = open_source(str(directory)).config


def test_a_huge_configuration_is_not_read(source: Source) -> None:
    directory = source()
    with (directory / "config.json").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ImportRefused, match=r"config\.json has more than 64 MiB"):
        _ = open_source(str(directory)).config


@pytest.mark.parametrize("value", [None, [], ["A", "B"], "A", [3]])
def test_an_architecture_must_be_named(value: object, source: Source) -> None:
    with pytest.raises(ImportRefused, match="must name one class"):
        _ = open_source(str(set_config(source(), architectures=value))).architecture


@pytest.mark.parametrize(
    "text",
    [
        "# No front matter",
        "---\nlicense: [mit]\n---\n",
        "---\nlicense: {\n---\n",
        "---\n- mit\n---\n",
        "---\nlicense: mit\n",
        '---\nlicense: "a\\nb"\n---\n',
    ],
)
def test_a_licence_that_is_not_stated(text: str, source: Source) -> None:
    directory = source()
    (directory / "README.md").write_text(text, encoding="utf-8")
    assert open_source(str(directory)).licence() is None
    (directory / "README.md").unlink()
    assert open_source(str(directory)).licence() is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("owner/My_Model v2", "my_model-v2"), ("Ünï", "n"), ("...", "imported"), ("x" * 100, "x" * 64)],
)
def test_names_of_bundles(name: str, expected: str) -> None:
    assert SourceDirectory(Path(), name).default_name() == expected


def test_what_is_no_source(tmp_path: Path) -> None:
    for where in ("nowhere", str(tmp_path / "file.txt")):
        with pytest.raises(ImportRefused, match="is neither a directory, nor an ONNX file, nor hf:owner/name"):
            open_source(where)


# ---- the Hub ----


@pytest.fixture
def hub(source: Source, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the functions that reach for the Hub; what they were asked is noted."""
    directory = source()
    checksum = hashlib.sha256((directory / WEIGHTS).read_bytes()).hexdigest()
    state = SimpleNamespace(directory=directory, checksum=checksum, asked={}, error=None, files=None)

    def model_info(self: object, name: str, **options: Any) -> Any:
        if state.error is not None:
            raise state.error
        files = [
            SimpleNamespace(rfilename=WEIGHTS, lfs=SimpleNamespace(sha256=state.checksum)),
            SimpleNamespace(rfilename="pytorch_model.bin", lfs=SimpleNamespace(sha256="0")),
            SimpleNamespace(rfilename="config.json", lfs=None),
        ]
        files = files if state.files is None else [SimpleNamespace(rfilename=each, lfs=None) for each in state.files]
        state.asked = {"name": name, "revision": options["revision"]}
        return SimpleNamespace(sha="c0ffee", siblings=files)

    def snapshot_download(name: str, *, revision: str, allow_patterns: list[str]) -> str:
        state.asked |= {"downloaded": revision, "patterns": allow_patterns}
        return str(directory)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return state


def test_a_download_is_pinned_and_leaves_pickles_out(hub: SimpleNamespace) -> None:
    opened = open_source("hf:owner/name@v1.0")
    assert (opened.name, opened.revision, opened.default_name()) == ("owner/name", "c0ffee", "name")
    assert hub.asked["revision"] == "v1.0"
    assert hub.asked["downloaded"] == "c0ffee"
    assert "*.safetensors" in hub.asked["patterns"]
    others = set(hub.asked["patterns"]) - {"model_head.pkl"}  # of which numbers alone are read
    assert not any(pattern.endswith(("bin", "pt", "pkl", "py", "*", "h5")) for pattern in others)
    open_source("hf:owner/name")
    assert hub.asked["revision"] is None


def test_an_onnx_file_of_the_hub(hub: SimpleNamespace) -> None:
    (hub.directory / "onnx").mkdir()
    (hub.directory / "onnx" / "model.onnx").touch()
    for tokenizer, place, graph in (
        ("tokenizer.json", ".", "onnx/model.onnx"),
        ("onnx/tokenizer.json", "onnx", "model.onnx"),
    ):
        (hub.directory / tokenizer).touch()
        opened = open_source("hf:owner/some-name@v1.0:onnx/model.onnx")
        assert (opened.path, opened.onnx) == (hub.directory / place, graph)
        assert (opened.name, opened.revision, opened.default_name()) == ("owner/some-name", "c0ffee", "some-name")
        patterns = hub.asked["patterns"]
        assert {"onnx/model.onnx", "onnx/model.onnx_data*", "onnx/*.json", "tokenizer.json"} <= set(patterns)
        assert not any(pattern.endswith(("bin", "safetensors")) for pattern in patterns)
    with pytest.raises(ImportRefused, match=r"owner/name has no other\.onnx"):
        open_source("hf:owner/name:other.onnx")


def test_the_only_weights_of_a_model_of_the_hub_are_an_onnx_file(hub: SimpleNamespace) -> None:
    (hub.directory / "onnx").mkdir()
    (hub.directory / "onnx" / "model.onnx").touch()
    hub.files = ["config.json", "onnx/model.onnx"]
    assert open_source("hf:owner/name").onnx == "onnx/model.onnx"
    hub.files = ["model.onnx", "onnx/model_int8.onnx"]
    with pytest.raises(
        ImportRefused, match=r"name the one to import: hf:owner/name:model.onnx, hf:owner/name:onnx/mod"
    ):
        open_source("hf:owner/name")
    hub.files = ["pytorch_model.bin", "onnx/model.onnx"]
    assert open_source("hf:owner/name").onnx is None


def test_another_file_than_the_hub_describes_is_refused(hub: SimpleNamespace) -> None:
    hub.checksum = "0" * 64
    with pytest.raises(ImportRefused, match=f"{WEIGHTS} of owner/name is not the file that the Hub describes"):
        open_source("hf:owner/name")


def test_a_hub_out_of_reach(hub: SimpleNamespace) -> None:
    hub.error = OSError("no route to host")
    with pytest.raises(ImportRefused, match="hf:owner/name cannot be downloaded: no route to host"):
        open_source("hf:owner/name")


@pytest.mark.parametrize(
    "where", ["hf:", "hf:name", "hf:a/b/c", "hf:a/b@", "hf:../b c", "hf:a/b:c.bin", "hf:a/b:../c.onnx"]
)
def test_addresses(where: str) -> None:
    with pytest.raises(ImportRefused, match="is not of the form hf:owner/name"):
        open_source(where)


def test_weights_of_safetensors_become_parameters_without_a_copy(tmp_path):
    save_file({"layer.weight": torch.ones(4, 8), "layer.bias": torch.ones(4)}, tmp_path / "model.safetensors")
    weights = NamedWeights(SourceDirectory(tmp_path, "tiny").weights())
    stored, layer = weights.tensors["layer.weight"].data_ptr(), torch.nn.Linear(8, 4, device="meta")
    weights.copy_to("layer", layer)
    assert layer.weight.data_ptr() == stored
    assert weights.tensors == {}
    assert layer(torch.ones(8)).tolist() == [9.0] * 4


@pytest.mark.parametrize("entry", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(entry):
    weights = NamedWeights({"a": torch.tensor([1.0, entry, 2.0])})
    with pytest.raises(ImportRefused, match="a has entries that are not finite"):
        weights.take("a", shape=(3,))
