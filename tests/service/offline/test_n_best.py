"""N-best lists and references of files: what is read, and what each error names."""

import json

import pytest

from models.decoding.rescoring import Hypothesis
from service.offline import n_best
from service.offline.n_best import ListInput, NBest, form_of, read_lists, read_references
from service.offline.options import UsageError

TWO = [
    NBest(2, "u1", [Hypothesis("sea you", -4.5), Hypothesis("see you", -5.0)]),
    NBest(4, "u2", [Hypothesis("he said, no", 1.0)]),
]


@pytest.fixture
def read(tmp_path):
    """Return the lists of a file of some content."""

    def lists(name, content, **options):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(read_lists(ListInput(file=file, form=form_of(file, "auto"), **options)))

    return lists


def test_csv_with_a_header(read):
    rows = 'utterance,hypothesis,score\nu1,sea you,-4.5\nu1,see you,-5\nu2,"he said, no",1\n'
    assert read("a.csv", rows) == TWO
    named = "nr;Score;what;id\n0;-4.5;sea you;u1\n0;-5;see you;u1\n0;1;he said, no;u2\n"
    assert read("a.csv", named, columns=("id", "what", "score")) == TWO
    assert read("a.csv", named, columns=("4", "3", "2")) == TWO


def test_tab_separated_values_with_and_without_a_header(read):
    rows = "u1\tsea you\t-4.5\nu1\tsee you\t-5\nu2\the said, no\t1\n"
    assert read("a.tsv", f"\n{rows}") == TWO
    assert read("a.tsv", f"u\th\ts\n{rows}", columns=("u", "h", "s")) == TWO
    with pytest.raises(UsageError, match="no column 'x', but u, h, s"):
        read("a.tsv", f"u\th\ts\n{rows}", columns=("u", "h", "x"))
    with pytest.raises(UsageError, match="numbered from 1 on"):
        read("a.tsv", rows, columns=("0", "1", "2"))


def test_json_lines(read):
    lists = [
        {"id": "u1", "hypotheses": [{"text": "sea you", "score": -4.5}, {"text": "see you", "score": -5, "other": 1}]},
        {"hypotheses": [{"text": "", "score": 0}]},
    ]
    first, second = read("a.jsonl", "\n".join(map(json.dumps, lists)))
    assert (first.id, first.hypotheses) == ("u1", TWO[0].hypotheses)
    assert (second.id, second.hypotheses) == ("2", [Hypothesis("", 0.0)])


def test_texts_of_kaldi_with_costs(read, tmp_path):
    (tmp_path / "scores").write_text("u-1-1 4.5\nu-1-2 5\nu2-1\t-1\n")
    texts = "u-1-1 sea you\nu-1-2  see you \nu2-1\n"
    first, second = read("text", texts, scores=tmp_path / "scores", costs=True)
    assert (first.id, first.hypotheses) == ("u-1", TWO[0].hypotheses)
    assert (second.id, second.hypotheses) == ("u2", [Hypothesis("", 1.0)])


@pytest.mark.parametrize(
    ("texts", "scores", "words"),
    [
        ("u-1 a\nu-2 b\n", "u-2 1\nu-1 2\n", "line 1: the text is that of 'u-1', but line 1 of .* score of 'u-2'"),
        ("u-1 a\nu-2 b\n", "u-1 1\n", "line 2: .* has no score for 'u-2', and ends before"),
        ("u-1 a\n", "u-1 1\nu-2 2\n", "ends before line 2 of .*, 'u-2 2'"),
    ],
)
def test_scores_of_other_texts_are_refused(read, tmp_path, texts, scores, words):
    (tmp_path / "scores").write_text(scores)
    with pytest.raises(UsageError, match=words):
        read("text", texts, scores=tmp_path / "scores")


def test_scores_belong_to_texts_of_kaldi(read, tmp_path):
    with pytest.raises(UsageError, match="need their scores"):
        read("text", "u-1 a\n")
    with pytest.raises(UsageError, match=r"--scores is for Kaldi's texts .*csv"):
        read("a.csv", "a", scores=tmp_path / "scores")
    with pytest.raises(UsageError, match="--columns is for"):
        read("a.jsonl", "{}", columns=("1", "2", "3"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("u1\tb", "there are 2 columns, and column 3 is needed"),
        ("u1\tb\tx", "the score 'x' is no number"),
        ("u1\tb\tnan", "the score 'nan' is not finite"),
        ("u1\tb\t-inf", "the score '-inf' is not finite"),
        (" \tb\t1", "the name of the utterance is empty"),
        (b"u1\t\xff\t1", "byte 4 is not UTF-8"),
    ],
)
def test_a_line_that_cannot_be_read_is_left_out_of_its_list(read, line, words):
    line = line if isinstance(line, bytes) else line.encode()
    found = read("a.tsv", b"u1\ta\t1\n" + line + b"\nu1\tc\t2\nu2\td\t3\n")
    assert [(each.id, len(each.hypotheses)) for each in found] == [("u1", 2), ("", 0), ("u2", 1)]
    assert found[1].number == 2
    assert words in found[1].error


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "this is not JSON"),
        ("[]", "no JSON object"),
        ('{"id": "a"}', "hypotheses must be a list"),
        ('{"hypotheses": []}', "one or more objects"),
        ('{"id": true, "hypotheses": [{"text": "a", "score": 1}]}', "id must be"),
        ('{"hypotheses": ["a"]}', "hypothesis 1 has no text"),
        ('{"hypotheses": [{"text": "a", "score": 1}, {"text": "b"}]}', "hypothesis 2 has no score that is a number"),
        ('{"hypotheses": [{"text": "a", "score": true}]}', "hypothesis 1 has no score"),
        ('{"hypotheses": [{"text": "a", "score": NaN}]}', "is not finite"),
        ('{"hypotheses": [{"text": "a", "score": 1' + "0" * 400 + "}]}", "is not finite"),
        ('{"id": "first", "hypotheses": [{"text": "a", "score": 1}]}', "'first' is that of line 1 too"),
    ],
)
def test_a_json_line_that_cannot_be_read(read, line, words):
    good = '{"id": "%s", "hypotheses": [{"text": "a", "score": 1}]}'
    found = read("a.jsonl", f"{good % 'first'}\n{line}\n{good % 'last'}\n")
    assert [(each.id, len(each.hypotheses)) for each in found[::2]] == [("first", 1), ("last", 1)]
    assert found[1].number == 2
    assert words in found[1].error


def test_an_utterance_that_comes_again(read):
    found = read("a.tsv", "u1\ta\t1\nu2\tb\t2\nu1\tc\t3\nu1\td\t4\nu3\te\t5\n")
    assert [each.id for each in found] == ["u1", "u2", "u1", "u3"]
    assert found[2].number == 3
    assert "begin on line 1, and must be on consecutive lines" in found[2].error


def test_lists_are_bounded(read, monkeypatch):
    monkeypatch.setattr(n_best, "MAX_HYPOTHESES", 2)
    found = read("a.tsv", "u1\ta\t1\nu1\tb\t2\nu1\tc\t3\nu2\td\t4\nu2\te\t4\n")
    assert [(each.id, len(each.hypotheses)) for each in found] == [("u1", 0), ("u2", 2)]
    assert found[0].error == "the list has more than 2 hypotheses"
    hypotheses = [{"text": "a", "score": 1}] * 3
    assert read("a.jsonl", json.dumps({"hypotheses": hypotheses}))[0].error == found[0].error


def test_lists_come_one_at_a_time(tmp_path):
    """The first list is there before the second one is read, which a pipe would not have yet."""
    (tmp_path / "a.tsv").write_bytes(b"u1\ta\t1\nu2\tb\t2\n" + b"\xff\n" * 3)
    lists = read_lists(ListInput(file=tmp_path / "a.tsv", form="tsv"))
    assert next(lists) == NBest(1, "u1", [Hypothesis("a", 1.0)])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.jsonl", '{"id": "u1", "text": "a b"}\n{"id": "u2", "text": ""}\n'),
        ("r.csv", "utterance,reference\nu1,a b\nu2,\n"),
        ("r.tsv", "u1\ta b\nu2\t\n"),
        ("r", "u1 a b\nu2\n"),
    ],
)
def test_references(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    if name == "r.tsv":
        (tmp_path / name).write_text("u1\ta b\nu2\t-\n")
        assert read_references(tmp_path / name, "utf-8") == {"u1": "a b", "u2": "-"}
        return
    assert read_references(tmp_path / name, "utf-8") == {"u1": "a b", "u2": ""}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r", b"u1 a\nu1 b\n", "line 2: the utterance 'u1' comes again"),
        ("r", b"", "has no references"),
        ("r", b"u1 \xff\n", "line 1: byte 4 is not UTF-8"),
        ("r.tsv", b"u1 a\n", "line 1: there is no tab"),
        ("r.jsonl", b'{"id": "a"}\n', "line 1: a reference is"),
        ("r.csv", b"utterance,reference\na\n", "line 2: 1 fields, but the header has 2"),
        ("r.csv", b"a,b\nc,d\n", "no column 'utterance'"),
    ],
)
def test_references_that_cannot_be_read(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_references(tmp_path / name, "utf-8")
