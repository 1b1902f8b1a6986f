"""Tests of the conversions of corpora: small files in the formats of their addresses, as these were read there."""

import bz2
import gzip
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from training.data.conversions import CONVERSIONS
from training.data.corpora import CORPORA, download
from training.data.corpus import Corpus, CorpusFile, Source, read_tsv


def _zip(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text.encode("latin-1"))
    return buffer.getvalue()


SWDA = {
    "Switchboard-Corpus-master/swda_data/test/2131.txt": "A|Uh-huh.|b\n",
    "Switchboard-Corpus-master/swda_data/test/2121.txt": 'A|Okay, uh,|fo_o_fw_"_by_bc\nB|a | bar|%\n',
    "Switchboard-Corpus-master/swda_data/test/2121_text.txt": "Okay, uh,\n",
    "Switchboard-Corpus-master/swda_data/train/2005.txt": "B|Yes.|aa\n",
    "Switchboard-Corpus-master/swda_data/val/2347.txt": "B|No.|nn\n",
    "Switchboard-Corpus-master/swda_data/train_split.txt": "sw2005\n",
}
REUTERS = {
    "reuters/cats.txt": "test/14826 trade\ntraining/5 cocoa grain\ntraining/10 acq\n",
    "reuters/test/14826": "ASIAN EXPORTERS FEAR\n  Mounting   trade &lt;X>\n\n",
    "reuters/training/5": "BAHIA\n  Showers \xa3",
    "reuters/training/10": "SALE",
    "reuters/README": "",
}
AESLC = {
    "AESLC-master/README.md": "",
    "AESLC-master/enron_subject_line/train/b-p_sent_2.subject": "Hi  Al,\tsee\n above.\n\n@subject\nTwo  words \n",
    "AESLC-master/enron_subject_line/train/b-p_sent_10.subject": "Me@ann0\n\n@subject\nAgreement",
    "AESLC-master/enron_subject_line/dev/a-p_inbox_29.subject": (
        "Thanks,\n\n@subject\nMeeting\n\n@ann0\nmeeting\n\n@ann1\nlet's meet\n\n@ann2\nmeet"
    ),
}


def _article(context: str, *answers: tuple[str, str]) -> dict[str, object]:
    """An article of one paragraph: pairs of an answer and its question."""
    entries = [
        {"question": question, "answers": [{"text": text, "answer_start": context.index(text)}, {"text": "none"}]}
        for text, question in answers
    ]
    return {"title": "", "paragraphs": [{"context": context, "qas": entries}]}


WORDS = "w " * 98
SQUAD = {
    "train-v1.1.json": [
        _article("It cost $5\tin\n1898.", ("5", " How\tmuch? "), ("1898", "When?")),
        *[_article(f"a{number}", (f"a{number}", "?")) for number in range(2, 21)],
        _article(f"x y {WORDS}$5 here", ("5", "Which?"), ("here", "Where?")),
        _article(f"x y {WORDS}and $5 here", ("here", "There?")),
    ],
    "dev-v1.1.json": [_article("The end.", ("end", "What?"))],
}
BANKING = 'text,category\n"I ordered, it  has\nnot ""arrived"".",card_arrival\nHow?,exchange_rate\n'
CASES: Mapping[str, tuple[dict[str, bytes], dict[str, str]]] = {
    "gzip": ({"val.de.gz": gzip.compress(b"ja\n")}, {"val.de": "ja\n"}),
    "clinc150": (
        {"data_full.json": json.dumps({"val": [["say hi", "hi"], ["é", "oos"]], "oos_val": []}).encode()},
        {"data_full.val.tsv": "hi\tsay hi\noos\té\n", "data_full.oos_val.tsv": ""},
    ),
    "banking77": (
        {"test.csv": BANKING.encode()},
        {"test.tsv": 'card_arrival\tI ordered, it has not "arrived".\nexchange_rate\tHow?\n'},
    ),
    "squad-questions": (
        {
            "src-dev.txt": "a b . \nc\x85d . \n".encode(),
            "tgt-dev.txt": b"what ?\nwho ?\n",
            "src-test.txt": b"e . \n",
            "tgt-test.txt": b"why ?\n",
        },
        {"dev.tsv": "a b . \twhat ?\nc\x85d . \twho ?\n", "test.tsv": "e . \twhy ?\n"},
    ),
    "squad-answers": (
        {file: json.dumps({"data": articles}).encode() for file, articles in SQUAD.items()},
        {
            "train.tsv": "5 | It cost $5 in 1898.\tHow much?\n1898 | It cost $5 in 1898.\tWhen?\n"
            + "".join(f"a{number} | a{number}\t?\n" for number in range(2, 20))
            + f"5 | y {WORDS}$5 here\tWhich?\nhere | y {WORDS}$5 here\tWhere?\nhere | {WORDS}and $5 here\tThere?\n",
            "dev.tsv": "a20 | a20\t?\n",
            "test.tsv": "end | The end.\tWhat?\n",
        },
    ),
    "reuters90": (
        {"reuters.zip": _zip(REUTERS)},
        {
            "training.tsv": "acq\tSALE\ncocoa,grain\tBAHIA Showers £\n",
            "test.tsv": "trade\tASIAN EXPORTERS FEAR Mounting trade &lt;X>\n",
        },
    ),
    "aeslc": (
        {"master.zip": _zip(AESLC)},
        {
            "train.jsonl": '{"id": "b-p_sent_10.subject", "body": "Me@ann0", "subject": "Agreement"}\n'
            '{"id": "b-p_sent_2.subject", "body": "Hi Al, see\\nabove.", "subject": "Two  words"}\n',
            "dev.jsonl": '{"id": "a-p_inbox_29.subject", "body": "Thanks,", "subject": "Meeting", "ann0": "meeting", '
            '"ann1": "let\'s meet", "ann2": "meet"}\n',
            "test.jsonl": "",
        },
    ),
    "tatoeba": (
        {
            "deu_sentences.tsv.bz2": bz2.compress(
                b"1\tdeu\tJa.\n2\tdeu\tNa\xe2\x80\xa8ja.\n3\tdeu\tWas?\n4\tdeu\tHm.\n"
            ),
            "eng_sentences.tsv.bz2": bz2.compress(b"5\teng\tYes.\n6\teng\tWell.\n7\teng\tWhat?\n"),
            "deu-eng_links.tsv.bz2": bz2.compress(b"1\t5\n2\t5\n2\t6\n3\t7\n4\t99\n98\t5\n"),
        },
        {"train.tsv": "Ja.\tYes.\nNa ja.\tWell.\nNa ja.\tYes.\nWas?\tWhat?\n", "dev.tsv": "", "test.tsv": ""},
    ),
    "swda": (
        {"master.zip": _zip(SWDA)},
        {
            "train.tsv": "2005\tB\tYes.\taa\n",
            "val.tsv": "2347\tB\tNo.\tnn\n",
            "test.tsv": '2121\tA\tOkay, uh,\tfo_o_fw_"_by_bc\n2121\tB\ta | bar\t%\n2131\tA\tUh-huh.\tb\n',
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_files_become_those_of_the_corpus(name: str) -> None:
    given, expected = CASES[name]
    assert {file: content.decode() for file, content in CONVERSIONS[name](given).items()} == expected


def test_every_conversion_is_tested() -> None:
    assert CONVERSIONS.keys() - CASES.keys() == {"cifar100"}, "tested in test_image_corpora.py"


def test_connected_sentences_are_in_one_split() -> None:
    """A chain of pairs, each of which shares a sentence with the next, and 3,000 single ones."""
    chain = [(f"c{number // 2}", f"c{(number + 1) // 2}") for number in range(40)]
    pairs = [*chain, *((f"s{number}", f"s{number}") for number in range(3000))]
    sides = [list(dict.fromkeys(side)) for side in zip(*pairs, strict=True)]
    files = {
        f"{language}_sentences.tsv.bz2": bz2.compress(
            "".join(f"{first}{number}\t{language}\t{text}\n" for number, text in enumerate(side)).encode()
        )
        for language, first, side in zip(("deu", "eng"), (1, 2), sides, strict=True)
    }
    links = (f"1{sides[0].index(german)}\t2{sides[1].index(english)}\n" for german, english in pairs)
    files["deu-eng_links.tsv.bz2"] = bz2.compress("".join(links).encode())
    splits = {
        name: [tuple(line.split("\t")) for line in content.decode().splitlines()]
        for name, content in CONVERSIONS["tatoeba"](files).items()
    }
    assert sorted(pair for rows in splits.values() for pair in rows) == sorted(pairs)
    assert sum(bool(set(rows) & set(chain)) for rows in splits.values()) == 1
    assert all(40 < len(set(splits[name]) - set(chain)) < 80 for name in ("dev.tsv", "test.tsv"))


def test_sources_and_targets_have_as_many_lines() -> None:
    given, _ = CASES["squad-questions"]
    with pytest.raises(ValueError, match="zip"):
        CONVERSIONS["squad-questions"]({**given, "tgt-dev.txt": b"what ?\n"})


def _corpus(www: Path, checksum: str) -> Corpus:
    www.mkdir()
    (www / "test.csv").write_text(BANKING, encoding="utf-8")
    return Corpus(
        name="small",
        folder="small",
        description="",
        homepage="https://example.org",
        licence="CC0",
        release_allowed=True,
        columns=("label", "text"),
        reader=read_tsv,
        splits={"test": CorpusFile(name="test.tsv", checksums=(checksum,))},
        sources=(Source(url=(www / "test.csv").as_uri()),),
        conversion=CONVERSIONS["banking77"],
    )


def test_a_download_is_converted_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = "sha1:1a81b82ef238019013a859dbff57441c1abc7975"
    corpus = _corpus(tmp_path / "www", right)
    monkeypatch.setitem(CORPORA, "small", corpus)  # type: ignore[arg-type]
    assert download("small", tmp_path / "data") == tmp_path / "data" / "small"
    records = [("card_arrival", 'I ordered, it has not "arrived".'), ("exchange_rate", "How?")]
    assert list(corpus.records("test", tmp_path / "data")) == records


def test_a_conversion_that_gives_other_files_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORPORA, "small", _corpus(tmp_path / "www", f"sha1:{'0' * 40}"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^file:.*test\.csv: test\.tsv is not the registered"):
        download("small", tmp_path / "data")
    assert not (tmp_path / "data").exists()
