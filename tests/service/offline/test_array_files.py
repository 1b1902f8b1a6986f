"""Results as files of NumPy and Parquet: rows in the order of the texts, errors, interruption and resumption."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from models.store import load_bundle
from models.tasks.language_model import SCORE
from models.tasks.text_classification import CLASSIFY
from models.tasks.text_embedding import EMBED, Embedder
from service.offline import array_files, running
from service.offline.asked import Asked
from service.offline.options import FileOptions, ModelOptions, UsageError
from service.offline.running import run_file, run_texts

TEXTS = [f"{'one two ' * (number % 5)}three {number}" for number in range(50)]
TOO_LONG = "one two " * 60


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(running, "WINDOW", 16)


@pytest.fixture(scope="module")
def embedder(encoder_models) -> Embedder:
    return load_bundle(encoder_models / "vectors" / "1")


@pytest.fixture
def options(encoder_models):
    return ModelOptions(model="vectors", model_dirs=(encoder_models,), threads=1)


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def test_a_numpy_file_has_the_vectors_in_order(tmp_path, texts, options, embedder):
    output = tmp_path / "out.npy"
    assert run_file(Asked.of(EMBED, {}), texts, options, FileOptions(output=output)) == 0
    found = np.load(output)
    assert (found.shape, found.dtype) == ((50, 16), np.float32)
    np.testing.assert_allclose(found, embedder.embed(TEXTS), atol=1e-6)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.txt", "out.npy"]
    chosen = {"dimensions": 4, "normalize": False}
    run_texts(Asked.of(EMBED, chosen), TEXTS[:3], options, FileOptions(output=tmp_path / "x", format="npy"))
    np.testing.assert_allclose(np.load(tmp_path / "x"), embedder.embed(TEXTS[:3], **chosen), atol=1e-6)


def test_no_texts_make_an_empty_array(tmp_path, options):
    (tmp_path / "in.txt").write_text("")
    for name in ("out.npy", "out.parquet"):
        assert run_file(Asked.of(EMBED, {}), tmp_path / "in.txt", options, FileOptions(output=tmp_path / name)) == 0
    assert np.load(tmp_path / "out.npy").shape == (0, 16)
    assert parquet.read_table(tmp_path / "out.parquet").num_rows == 0


def test_a_text_without_a_result_is_nan_or_null(tmp_path, options, capsys):
    (tmp_path / "in.jsonl").write_text(json.dumps("one") + "\n{\n" + json.dumps(TOO_LONG) + '\n"\\ud800"\n"two"\n')
    asked = Asked.of(EMBED, {})
    assert run_file(asked, tmp_path / "in.jsonl", options, FileOptions(output=tmp_path / "out.npy")) == 1
    assert np.isnan(np.load(tmp_path / "out.npy")).all(1).tolist() == [False, True, True, True, False]
    assert "3 of 5 lines failed; they are NaN, or 0 in integers, in the output" in capsys.readouterr().err
    assert run_file(asked, tmp_path / "in.jsonl", options, FileOptions(output=tmp_path / "out.parquet")) == 1
    rows = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [each["embedding"] is None for each in rows] == [False, True, True, True, False]
    assert [each["text"] for each in rows] == ["one", None, TOO_LONG, "?", "two"]
    assert [(each["error"] or "")[:16] for each in rows] == [
        "",
        "this is not JSON",
        "the text has 302",
        "the text holds h",
        "",
    ]


def test_a_parquet_file_has_the_columns_of_json_lines(tmp_path, texts, options, embedder, monkeypatch):
    monkeypatch.setattr(array_files, "_GROUP_ROWS", 20)
    output = tmp_path / "out.parquet"
    assert run_file(Asked.of(EMBED, {"dimensions": 8}), texts, options, FileOptions(output=output)) == 0
    table = parquet.read_table(output)
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 8)
    assert table.column_names[:2] == ["text", "embedding"]
    assert table.column("text").to_pylist() == TEXTS
    vectors = table.column("embedding").combine_chunks().flatten().to_numpy().reshape(50, 8)
    np.testing.assert_allclose(vectors, embedder.embed(TEXTS, dimensions=8), atol=1e-6)
    metadata = parquet.ParquetFile(output).metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [20, 20, 10]
    cut = FileOptions(output=tmp_path / "cut.parquet", truncate=True)
    run_texts(Asked.of(EMBED, {"truncate": True}), [TOO_LONG], options, cut)
    assert parquet.read_table(cut.output).column("truncated").to_pylist() == [262]


@pytest.mark.parametrize(
    ("precision", "dtype", "size"),
    [("float16", "f2", 16), ("int8", "i1", 16), ("binary", "i1", 2), ("ubinary", "u1", 2)],
)
def test_the_precision_is_the_type_of_the_numbers(tmp_path, options, embedder, precision, dtype, size):
    expected = embedder.embed(TEXTS[:3], precision=precision)
    assert (expected.shape, expected.dtype) == ((3, size), np.dtype(dtype))
    asked = Asked.of(EMBED, {"precision": precision})
    assert run_texts(asked, TEXTS[:3], options, FileOptions(output=tmp_path / "out.npy")) == 0
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()
    assert run_texts(asked, TEXTS[:3], options, FileOptions(output=tmp_path / "out.parquet")) == 0
    column = parquet.read_table(tmp_path / "out.parquet").column("embedding")
    assert column.type == pa.list_(pa.from_numpy_dtype(expected.dtype), size)
    assert column.to_pylist() == expected.tolist()
    if precision == "int8":
        run_texts(asked, ["one", TOO_LONG], options, FileOptions(output=tmp_path / "wrong.npy"))
        assert np.load(tmp_path / "wrong.npy").any(1).tolist() == [True, False]


def test_long_texts_are_read_in_windows(tmp_path, options, embedder):
    asked = Asked.of(EMBED, {"windows": "mean", "overlap": 3})
    assert run_texts(asked, ["one", TOO_LONG], options, FileOptions(output=tmp_path / "out.parquet")) == 0
    table = parquet.read_table(tmp_path / "out.parquet")
    counts = table.column("windows").to_pylist()
    assert counts[0] == 1 < counts[1]
    assert run_texts(asked, ["one", TOO_LONG], options, FileOptions(output=tmp_path / "out.npy")) == 0
    expected = embedder.embed(["one", TOO_LONG], windows="mean", overlap=3)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-6)


def test_parquet_of_other_operations(tmp_path, capsys):
    files = FileOptions(output=tmp_path / "out.parquet")
    texts = ["play some music", "book a table for two"]
    assert run_texts(Asked.of(CLASSIFY, {"top_k": 2}), texts, ModelOptions(threads=1), files) == 0
    run_texts(Asked.of(CLASSIFY, {"top_k": 2}), texts, ModelOptions(threads=1), FileOptions(format="jsonl"))
    expected = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for row, wanted in zip(parquet.read_table(files.output).to_pylist(), expected, strict=True):
        assert (row["text"], row["out_of_scope"], row["error"]) == (wanted["text"], wanted["out_of_scope"], None)
        assert [each["label"] for each in row["labels"]] == [each["label"] for each in wanted["labels"]]
        assert row["labels"][0]["probability"] == pytest.approx(wanted["labels"][0]["probability"], abs=1e-6)
    explained = FileOptions(output=tmp_path / "scores.parquet")
    model = ModelOptions(model="next-word:4", threads=1)
    with pytest.raises(UsageError, match="score has no output in Parquet, which cannot have words"):
        run_texts(Asked.of(SCORE, {}), ["we had"], model, explained)


class Interrupted(Exception):
    pass


def interrupted(monkeypatch, asked, texts, options, files, after):
    """Run until so many groups of texts are computed."""
    real, left = running.compute, [after]

    def computed(*arguments):
        for group in real(*arguments):
            if left[0] == 0:
                raise Interrupted
            left[0] -= 1
            yield group

    with monkeypatch.context() as changed:
        changed.setattr(running, "compute", computed)
        with pytest.raises(Interrupted):
            run_file(asked, texts, options, files)


def test_an_interrupted_numpy_file_is_gone_on_with(tmp_path, texts, options, embedder, monkeypatch):
    output, partial, asked = tmp_path / "out.npy", tmp_path / "out.npy.partial", Asked.of(EMBED, {})
    interrupted(monkeypatch, asked, texts, options, FileOptions(output=output), 8)
    assert not output.exists()
    assert 128 < partial.stat().st_size < 128 + 50 * 64
    with partial.open("ab") as file:
        file.write(b"part")  # of a row
    with pytest.raises(UsageError, match=r"out\.npy\.partial is there already: --resume"):
        run_file(asked, texts, options, FileOptions(output=output))
    with pytest.raises(UsageError, match=r"has vectors of 16 numbers \(float32\), not of 8"):
        run_file(Asked.of(EMBED, {"dimensions": 8}), texts, options, FileOptions(output=output, resume=True))
    assert run_file(asked, texts, options, FileOptions(output=output, resume=True)) == 0
    np.testing.assert_allclose(np.load(output), embedder.embed(TEXTS), atol=1e-6)
    assert not partial.exists()
    with pytest.raises(UsageError, match=r"out\.npy is there already"):
        run_file(asked, texts, options, FileOptions(output=output))


def test_a_whole_numpy_file_grows_with_its_input(tmp_path, texts, options, embedder):
    output, asked = tmp_path / "out.npy", Asked.of(EMBED, {})
    resumed = FileOptions(output=output, resume=True)
    assert run_file(asked, texts, options, resumed) == 0
    first = output.read_bytes()
    assert run_file(asked, texts, options, resumed) == 0
    assert output.read_bytes() == first
    texts.write_text("\n".join([*TEXTS, "four", "five"]))
    assert run_file(asked, texts, options, resumed) == 0
    np.testing.assert_allclose(np.load(output), embedder.embed([*TEXTS, "four", "five"]), atol=1e-6)
    texts.write_text("one\n")
    with pytest.raises(UsageError, match="has 52 lines, more than the 1 of"):
        run_file(asked, texts, options, resumed)
    assert np.load(output).shape == (52, 16)
    output.write_bytes(b"no array")
    with pytest.raises(UsageError, match=r"out\.npy is no NumPy file"):
        run_file(asked, texts, options, resumed)
    assert output.read_bytes() == b"no array"
    np.save(output, np.zeros(3))
    with pytest.raises(UsageError, match="is no array of vectors"):
        run_file(asked, texts, options, resumed)


def test_an_interrupted_parquet_file_leaves_none(tmp_path, texts, options, monkeypatch):
    output = tmp_path / "out.parquet"
    interrupted(monkeypatch, Asked.of(EMBED, {}), texts, options, FileOptions(output=output), 8)
    assert [each.name for each in tmp_path.iterdir()] == ["in.txt"]
    output.write_bytes(b"other")
    with pytest.raises(UsageError, match=r"out\.parquet is there already$"):
        run_file(Asked.of(EMBED, {}), texts, options, FileOptions(output=output))
    assert output.read_bytes() == b"other"


def test_what_is_refused_leaves_no_file(tmp_path, texts, options, monkeypatch):
    embed, classify = Asked.of(EMBED, {}), Asked.of(CLASSIFY, {})
    with pytest.raises(UsageError, match="--format npy needs --output"):
        run_file(embed, texts, options, FileOptions(format="npy"))
    with pytest.raises(UsageError, match="classify has no output in NumPy's format"):
        run_texts(classify, ["a"], ModelOptions(), FileOptions(output=tmp_path / "out.npy"))
    with pytest.raises(UsageError, match="--resume needs an output that can be gone on with"):
        run_file(embed, texts, options, FileOptions(output=tmp_path / "out.parquet", resume=True))
    with pytest.raises(Exception, match="dimensions must be from 1 to 16, not 17"):
        run_file(Asked.of(EMBED, {"dimensions": 17}), texts, options, FileOptions(output=tmp_path / "out.npy"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"pip install 'softserve\[parquet\]'"):
        run_file(embed, texts, options, FileOptions(output=tmp_path / "out.parquet"))
    assert [each.name for each in tmp_path.iterdir()] == ["in.txt"]
