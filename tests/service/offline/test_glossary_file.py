"""Glossaries as files."""

import pytest

from service.offline.glossary_file import read_glossary
from service.offline.options import UsageError


def test_tabs_and_commas(tmp_path) -> None:
    (tmp_path / "terms.tsv").write_text('Vertrag\tagreement\n\n"Haus"\tresidence, house\n', encoding="utf-8-sig")
    (tmp_path / "terms.csv").write_text('Vertrag,agreement\n"Haus, neu","residence, new"\n', encoding="utf-8")
    assert read_glossary(tmp_path / "terms.tsv") == {"Vertrag": "agreement", '"Haus"': "residence, house"}
    assert read_glossary(tmp_path / "terms.csv") == {"Vertrag": "agreement", "Haus, neu": "residence, new"}


@pytest.mark.parametrize("content", ["Vertrag\n", "a\tb\tc\n", "a\t\n", "a\tb\na\tc\n", b"\xff\xfe\xff"])
def test_wrong_files_are_refused(tmp_path, content) -> None:
    file = tmp_path / "terms.tsv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=r"terms\.tsv"):
        read_glossary(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_glossary(tmp_path / "none.tsv")
