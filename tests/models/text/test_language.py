"""Tests of the detection of texts in another language."""

import lzma
import resource
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from models.text.language import _BLOCK, UNDETERMINED, LanguageDetector, _read_arrays, _SharedBlocks, detected_languages


@pytest.fixture(scope="module")
def german() -> LanguageDetector:
    return LanguageDetector("de")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How are you today, my friend?", "en"),
        ("¿Dónde está la estación?", "es"),
        ("Dziękuję bardzo", "pl"),
        ("こんにちは", "ja"),
        ("안녕하세요", "ko"),
        ("Привет", UNDETERMINED),
        ("谢谢", UNDETERMINED),
    ],
)
def test_other_languages_and_scripts_are_named(text: str, language: str, german: LanguageDetector) -> None:
    assert german.detect(text).other == language


@pytest.mark.parametrize(
    "text", ["Guten Morgen!", "hallo", "Ja", "ok", "ICH HEISSE ANNA", "14:35", "😀", "", " \n", "\ud7ff\x00", "Tom"]
)
def test_the_expected_language_and_texts_of_none_are_not_reported(text: str, german: LanguageDetector) -> None:
    assert german.detect(text).other is None


def test_a_long_text_is_judged_by_its_start(german: LanguageDetector) -> None:
    assert german.detect("How are you today, my friend? " * 40 + "Guten Morgen! " * 100_000).other == "en"


def test_an_unknown_language_is_never_ruled_out() -> None:
    assert LanguageDetector("xx").detect("How are you today, my friend?") == ("xx", None, 1.0)


def test_probabilities_are_those_of_the_package() -> None:
    package = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    for text in ("Guten Morgen!", "How are you today?", "Привет", "ok"):
        assert detected_languages(text) == package.rank(text)


def test_it_is_loaded_without_a_temporary_file() -> None:
    """In containers the directory of temporary files is in memory and bounded, and several processes load at once."""
    done = subprocess.run(
        [sys.executable, "-Bc", "from models.text.language import LanguageDetector; LanguageDetector('de')"],
        cwd=Path(__file__).parents[3],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "model.npz.xz", "wb") as stream:
        np.savez_compressed(stream, counts=np.arange(3))
    with pytest.raises(ValueError, match=r"counts\.npy is compressed by method 8"):
        _read_arrays(tmp_path / "model.npz.xz")


def test_entries_are_those_of_the_sequence():
    blocks = np.random.default_rng(0).integers(0, 1 << 32, (5, _BLOCK), dtype=np.uint32)
    values = array("I", blocks[[0, 3, 3, 1, 0, 4, 2, 3]].tobytes())
    shared = _SharedBlocks(values)
    assert [shared[index] for index in range(len(values))] == list(values)
    assert len(shared._blocks) == 5 * _BLOCK


def test_blocks_of_one_hash_are_not_mixed_up(monkeypatch):
    monkeypatch.setattr("models.text.language._HASH_MULTIPLIER", 1)  # the hash is the sum of the entries
    values = array("I", [*range(_BLOCK), *range(_BLOCK)[::-1]])
    with pytest.raises(ValueError, match="different blocks have the same hash"):
        _SharedBlocks(values)
