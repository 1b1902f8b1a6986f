import contextlib
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import BundleError
from models.bundle.manifest import BundleManifest
from models.reading import load_manifest, parse_manifest, read_manifest, sha256_of, validate

KEYS = ["format_version", "task", "name", "version", "softmax", "config", "graphs", "files"]
CONFIG_KEYS = ["network", "tokenizer", "vocab_size", "special_tokens", "limits"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
rubbish = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def problems_of(path):
    with pytest.raises(BundleError) as caught:
        read_manifest(path)
    assert str(path) in str(caught.value)
    return caught.value.problems


# ---- literal cases ----


def test_sha256_of_a_file(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_of(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_unknown_key_at_the_top_is_refused(rewrite, content):
    assert problems_of(rewrite(content | {"licens": "MIT"})) == ("licens: Extra inputs are not permitted",)


def test_unknown_nested_key_is_refused(rewrite, content):
    content["config"]["network"]["hidden_sise"] = 1
    content["graphs"]["score"]["inputs"][0]["type"] = "int64"
    assert problems_of(rewrite(content)) == (
        "config.network.hidden_sise: Extra inputs are not permitted",
        "graphs.score.inputs.0.type: Extra inputs are not permitted",
    )


@pytest.mark.parametrize("version", [3, 10**30])
def test_newer_format_is_named_before_anything_else(rewrite, version):
    content = {"format_version": version, "whatever": "the future holds"}
    assert problems_of(rewrite(content)) == (
        f"format_version {version} is newer than 2, the newest that this release reads",
    )


@pytest.mark.parametrize("version", [0, -1, 2.5, "1", None, [1], {}])
def test_rubbish_format_version_is_refused(rewrite, content, version):
    (problem,) = problems_of(rewrite(content | {"format_version": version}))
    assert problem.startswith("format_version: ")


def test_several_problems_are_named_at_once(rewrite, content):
    del content["licence"]
    content |= {"version": 0, "extra": 1}
    content["config"]["vocab_size"] = "many"
    assert {problem.partition(":")[0] for problem in problems_of(rewrite(content))} == {
        "version",
        "config.vocab_size",
        "licence",
        "extra",
    }


@pytest.mark.parametrize(
    "name", ["../tokenizer.json", "a/b", "a\\b", "/etc/passwd", "..", ".hidden", "", "a\n", "a\0b", "ä"]
)
def test_file_names_are_plain(rewrite, content, name):
    content["config"]["tokenizer"] = name
    content["files"][name] = "0" * 64
    problems = problems_of(rewrite(content))
    assert [problem for problem in problems if problem.startswith("config.tokenizer: ")]
    assert [problem for problem in problems if problem.startswith("files.")]


@pytest.mark.parametrize("name", ["../x", "a/b", "", "A", "-a", "a b", "a\n", "a" * 65, "a:1"])
def test_model_names_are_plain(rewrite, content, name):
    (problem,) = problems_of(rewrite(content | {"name": name}))
    assert problem.startswith("name: ")


@pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n"])
def test_checksums_are_64_hex_digits(rewrite, content, digest):
    content["files"]["tokenizer.json"] = digest
    (problem,) = problems_of(rewrite(content))
    assert problem.startswith("files.tokenizer.json: ")


def test_a_file_without_checksum_is_refused(rewrite, content):
    content["config"]["tokenizer"] = "other.json"
    (problem,) = problems_of(rewrite(content))
    assert "no checksum in files for other.json" in problem


def test_a_graph_without_file_is_refused(rewrite, content):
    content["graphs"]["score"] |= {"onnx": None, "torchscript": None}
    (problem,) = problems_of(rewrite(content))
    assert "graphs.score names no file" in problem


def test_a_mixture_needs_a_kernel(rewrite, content):
    content["softmax"]["kernels"] = []
    (problem,) = problems_of(rewrite(content))
    assert problem.startswith("softmax.kernels: ")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not readable JSON"),
        (b"{", "not readable JSON"),
        (b"\xff\xfe{}", "not readable JSON"),
        (b"\xef\xbb\xbf{}", "not readable JSON"),
        (b"[" * 100_000, "not readable JSON"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "recursion"),
        (b"9" * 5000, "not readable JSON"),
        (b'{"name": "\\ud800"}', "manifest.json"),
        (b"[]", "manifest.json: Input should be an object"),
        (b"null", "manifest.json: Input should be an object"),
        (b'"manifest"', "manifest.json: Input should be an object"),
        (b"{}", "format_version: Field required"),
    ],
)
def test_what_is_no_manifest_is_a_bundle_error(rewrite, data, text):
    assert text in "; ".join(problems_of(rewrite(data)))


def test_missing_manifest(bundle):
    (bundle / "manifest.json").unlink()
    assert problems_of(bundle) == ("manifest.json is missing",)


def test_a_directory_in_place_of_the_manifest(bundle):
    (bundle / "manifest.json").unlink()
    (bundle / "manifest.json").mkdir()
    (problem,) = problems_of(bundle)
    assert problem == "manifest.json cannot be read: it is a directory, not a file"


# ---- the directory against the manifest ----


def test_the_bundled_model_is_flawless(bundled):
    assert validate(bundled) == []
    assert load_manifest(bundled) == read_manifest(bundled)


def test_wrong_checksum(bundle):
    with (bundle / "tokenizer.json").open("ab") as file:
        file.write(b" ")
    assert validate(bundle) == ["tokenizer.json does not match its checksum"]


def test_missing_file(bundle):
    (bundle / "weights.bin").unlink()
    assert validate(bundle) == ["weights.bin is missing"]


def test_a_directory_in_place_of_a_file(bundle):
    (bundle / "weights.bin").unlink()
    (bundle / "weights.bin").mkdir()
    assert validate(bundle) == ["weights.bin cannot be used: it is a directory, not a file"]


def test_a_file_that_is_not_listed(bundle, content):
    """Its weights would be used unchecked: a graph names them, not the manifest."""
    del content["files"]["weights.bin"]
    (bundle / "manifest.json").write_text(json.dumps(content))
    weights = (bundle / "weights.bin").read_bytes()
    half = len(weights) // 2
    (bundle / "weights.bin").write_bytes(weights[:half] + bytes(len(weights) - half))
    assert validate(bundle) == ["weights.bin has no checksum in files"]
    with pytest.raises(BundleError, match=r"weights\.bin has no checksum in files"):
        load_manifest(bundle)


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "manifest.json.bak"])
def test_every_other_file_is_named(bundle, name):
    (bundle / name).touch()
    assert validate(bundle) == [f"{name} has no checksum in files"]


def test_a_sub_directory_is_refused(bundle):
    """`files` cannot list its content."""
    (bundle / "more").mkdir()
    assert validate(bundle) == ["more is a directory, which a bundle must not have"]


def test_a_link_counts_as_the_file_that_it_leads_to(bundle, tmp_path):
    (bundle / "weights.bin").rename(tmp_path / "blob")
    (bundle / "weights.bin").symlink_to(tmp_path / "blob")
    assert validate(bundle) == []
    (tmp_path / "blob").write_bytes(b"other")
    assert validate(bundle) == ["weights.bin does not match its checksum"]
    (tmp_path / "blob").unlink()
    assert validate(bundle) == ["weights.bin is missing"]


def test_a_link_that_is_not_listed(bundle, tmp_path):
    (bundle / "more.bin").symlink_to(bundle / "weights.bin")
    (bundle / "nowhere.bin").symlink_to(tmp_path / "nowhere")
    (bundle / "outside").symlink_to(tmp_path)
    assert validate(bundle) == [
        "more.bin has no checksum in files",
        "nowhere.bin has no checksum in files",
        "outside is a directory, which a bundle must not have",
    ]


def test_a_file_that_cannot_be_read_is_named(bundle, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("models.reading.sha256_of_regular", refuse)
    assert "weights.bin cannot be read: Permission denied" in validate(bundle)


def test_version_and_directory_differ(bundle, content):
    moved = bundle.rename(bundle.with_name("99"))
    assert validate(moved) == [f"version {content['version']} lies in a directory named '99'"]


def test_name_and_directory_differ(bundle):
    moved = bundle.parent.rename(bundle.parent.with_name("other")) / bundle.name
    assert validate(moved) == ["model 'next-word' lies in a directory named 'other'"]


def test_validate_returns_every_problem_and_load_raises_them(bundle):
    (bundle / "weights.bin").unlink()
    (bundle / "score.onnx").write_bytes(b"")
    moved = bundle.rename(bundle.with_name("99"))
    problems = validate(moved)
    assert len(problems) == 3
    with pytest.raises(BundleError, match=re.escape("; ".join(problems))) as caught:
        load_manifest(moved)
    assert list(caught.value.problems) == problems


def test_validate_returns_the_problems_of_an_unreadable_manifest(rewrite):
    assert validate(rewrite({"format_version": 9})) == [
        "format_version 9 is newer than 2, the newest that this release reads"
    ]


def test_reading_leaves_the_files_alone(bundle):
    (bundle / "weights.bin").unlink()
    assert read_manifest(bundle).name == "next-word"


# ---- properties ----


def test_a_manifest_survives_a_round_trip(bundled):
    manifest = read_manifest(bundled)
    assert parse_manifest(json.loads(manifest.model_dump_json())) == manifest


def test_format_1_is_read(bundled, content, rewrite):
    """The fields of the task stood at the top, and those that a task does not have could be null."""
    old = {**content, **content["config"], "format_version": 1}
    del old["config"]
    old |= {"languages": None, "classes": None, "limits": {**old["limits"], "max_pixels": None}}
    assert read_manifest(rewrite(old)) == read_manifest(rewrite(content)) == read_manifest(bundled)


def test_fields_of_format_1_are_refused_in_format_2(rewrite, content):
    assert problems_of(rewrite(content | {"tokenizer": "tokenizer.json"})) == (
        "tokenizer: Extra inputs are not permitted",
    )


def test_an_unknown_task_is_named_with_the_known_ones(rewrite, content):
    (problem,) = problems_of(rewrite(content | {"task": "clairvoyance"}))
    assert problem.startswith("unknown task 'clairvoyance'; known: causal-language-model, image-classification, ")
    assert "softserve.models.tasks" in problem


def test_a_graph_for_a_kind_of_device_needs_its_checksum(rewrite, content):
    content["graphs"]["score"]["devices"] = {"cuda": "score.cuda.onnx"}
    (problem,) = problems_of(rewrite(content))
    assert "no checksum in files for score.cuda.onnx" in problem
    content["files"]["score.cuda.onnx"] = "0" * 64
    assert read_manifest(rewrite(content)).graphs["score"].devices == {"cuda": "score.cuda.onnx"}


def test_a_manifest_without_untied_is_tied(rewrite, content):
    """Manifests of older bundles lack the field."""
    del content["softmax"]["untied"]
    assert read_manifest(rewrite(content)).softmax.untied is None


@pytest.mark.parametrize("untied", ["full", 3])
def test_untied_is_read(rewrite, content, untied):
    content["softmax"]["untied"] = untied
    assert read_manifest(rewrite(content)).softmax.untied == untied


@pytest.mark.parametrize("untied", ["half", 0, True, 1.5])
def test_wrong_untied_is_named(rewrite, content, untied):
    content["softmax"]["untied"] = untied
    with pytest.raises(BundleError, match=r"softmax\.untied"):
        read_manifest(rewrite(content))


def test_a_manifest_is_frozen(bundled):
    manifest = read_manifest(bundled)
    with pytest.raises(ValueError, match="frozen"):
        manifest.version = 2
    with pytest.raises(ValueError, match="frozen"):
        manifest.config.limits.max_tokens = 2


@rubbish
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_bundle_error(rewrite, data):
    assert problems_of(rewrite(data))


@rubbish
@given(key=st.sampled_from(KEYS), value=JSON)
def test_any_value_in_place_of_a_key_is_accepted_or_a_bundle_error(rewrite, content, key, value):
    path = rewrite(content | {key: value})
    with contextlib.suppress(BundleError):
        assert isinstance(read_manifest(path), BundleManifest)


@pytest.mark.parametrize("key", [key for key in KEYS if key != "softmax"])
def test_no_key_may_be_left_out(rewrite, content, key):
    del content[key]
    assert problems_of(rewrite(content)) == (f"{key}: Field required",)


def test_a_model_of_words_has_an_output_layer(rewrite, content):
    del content["softmax"]
    assert problems_of(rewrite(content)) == ("manifest.json: Value error, softmax is missing",)


@pytest.mark.parametrize("key", CONFIG_KEYS)
def test_no_key_of_the_section_may_be_left_out(rewrite, content, key):
    del content["config"][key]
    assert problems_of(rewrite(content)) == (f"config.{key}: Field required",)
