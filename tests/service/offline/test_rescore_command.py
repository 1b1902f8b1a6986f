"""`softserve rescore`: rankings, word error rates, tuning, outputs and errors, in this process and as a process."""

import json

import pytest

from models.decoding.rescoring import Hypothesis, Weights, rescored
from models.operations.language import SCORE
from models.store import BUNDLED, ModelStore
from service.offline import rescoring
from service.offline.asked import Asked
from service.offline.n_best import NBest
from service.offline.options import ModelOptions, UsageError
from service.offline.rescore_command import RescoreOptions, WeightsFile, rescore
from service.offline.rescoring import log_probabilities
from tests.service.offline.test_command import run

ONE = ModelOptions(model="next-word:4", threads=1)
LISTS = {
    "u1": [("sea you tomorrow", -4.1), ("see you tomorrow", -4.6), ("see you to borrow", -5.9)],
    "u2": [("he has too dogs", -1.0), ("he has two dogs", -1.5)],
    "u3": [("thank you vary much", -2.0), ("thank you very much", -2.5), ("thank you very match", -2.25)],
}
REFERENCES = {"u1": "see you tomorrow", "u2": "he has two dogs", "u3": "thank you very much"}


@pytest.fixture
def lists(tmp_path):
    """A file of JSON lines."""
    file = tmp_path / "lists.jsonl"
    file.write_text(
        "".join(
            json.dumps({"id": name, "hypotheses": [{"text": text, "score": score} for text, score in some]}) + "\n"
            for name, some in LISTS.items()
        )
    )
    return file


@pytest.fixture
def references(tmp_path):
    file = tmp_path / "references"
    file.write_text("".join(f"{name} {text}\n" for name, text in REFERENCES.items()))
    return file


@pytest.fixture(scope="module")
def model():
    return ModelStore(BUNDLED).load("next-word:4", threads=1)


def rescored_lines(lists, tmp_path, name="out.tsv", **options):
    """Return the exit status and the lines of the output."""
    output = tmp_path / name
    status = rescore(lists, model=ONE, rescoring=RescoreOptions(output=output, **options))
    return status, output.read_text(encoding="utf-8").splitlines()


def test_the_ranking_is_that_of_the_library(lists, tmp_path, model):
    status, lines = rescored_lines(lists, tmp_path, "out.jsonl", all=True, lm_weight=0.5, length_reward=0.25)
    assert status == 0
    found = [json.loads(line) for line in lines]
    assert [each["id"] for each in found] == list(LISTS)
    for one, given in zip(found, LISTS.values(), strict=True):
        values = [each.log_probability for each in model.score([text for text, _ in given])]
        expected = rescored([Hypothesis(*each) for each in given], values, Weights(lm_weight=0.5, length_reward=0.25))
        assert [each["place"] for each in one["hypotheses"]] == [each.place for each in expected]
        totals = [each["total"] for each in one["hypotheses"]]
        assert totals == pytest.approx([each.total for each in expected], abs=1e-3)


def test_the_best_of_each_list(lists, tmp_path):
    assert rescored_lines(lists, tmp_path) == (0, [f"{name}\t{text}" for name, text in REFERENCES.items()])
    _, lines = rescored_lines(lists, tmp_path, "out", format="kaldi")
    assert lines == [f"{name} {text}" for name, text in REFERENCES.items()]
    _, lines = rescored_lines(lists, tmp_path, "out.csv")
    assert lines == ["utterance,hypothesis", *(f"{name},{text}" for name, text in REFERENCES.items())]
    _, lines = rescored_lines(lists, tmp_path, "out.jsonl")
    assert [json.loads(line)["text"] for line in lines] == list(REFERENCES.values())


def test_all_as_tables(lists, tmp_path):
    _, lines = rescored_lines(lists, tmp_path, all=True, lm_weight=0)
    assert [line.split("\t")[:4] for line in lines[:3]] == [
        ["u1", "1", "-4.1000", "-4.1000"],
        ["u1", "2", "-4.6000", "-4.6000"],
        ["u1", "3", "-5.9000", "-5.9000"],
    ]
    assert lines[0].split("\t")[5:] == ["3", "sea you tomorrow"]
    _, lines = rescored_lines(lists, tmp_path, "out.csv", all=True, lm_weight=0)
    assert lines[0] == "utterance,rank,total,score,log_probability,words,hypothesis"
    assert len(lines) == 9


def test_word_error_rates(lists, references, tmp_path, capsys):
    rescored_lines(lists, tmp_path, references=references)
    printed = capsys.readouterr().err
    assert "3 lists, 11 words of references; word error rate (errors): " in printed
    assert "first pass 27.27 % (3), rescored 0.00 % (0), oracle 0.00 % (0)" in printed
    references.write_text("u1 see you\nu9 a\n")
    rescored_lines(lists, tmp_path, "other.tsv", references=references)
    printed = capsys.readouterr().err
    assert "2 lists have no reference" in printed
    assert "1 references have no list" in printed
    assert "1 lists, 2 words of references; word error rate (errors): first pass 100.00 % (2)" in printed


def test_weights_are_tuned_written_and_read(lists, references, tmp_path, capsys):
    file = tmp_path / "weights.json"
    assert rescore(lists, model=ONE, rescoring=RescoreOptions(references=references, tune=file)) == 0
    printed = capsys.readouterr()
    found = WeightsFile.read(file)
    assert json.loads(printed.out) == {"lm_weight": found.lm_weight, "length_reward": found.length_reward}
    assert (found.model, found.lists) == ("next-word:4", 3)
    assert found.word_error_rate.model_dump() == {"first_pass": 3 / 11, "rescored": 0.0, "oracle": 0.0}
    assert "rescored 0.00 % (0)" in printed.err
    _, lines = rescored_lines(lists, tmp_path, weights=file)
    assert lines == [f"{name}\t{text}" for name, text in REFERENCES.items()]
    file.write_text(json.dumps({"lm_weight": 0, "model": "other:1"}))
    _, lines = rescored_lines(lists, tmp_path, "first.tsv", weights=file)
    assert lines[0] == "u1\tsea you tomorrow"
    assert "the weights were tuned for other:1, and the model is next-word" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "this is not JSON"),
        ("{}", "lm_weight: is missing"),
        ('{"lm_weight": -1}', "lm_weight: must be at least 0"),
        ('{"lm_weight": 1, "weight": 2}', "weight: unknown field"),
    ],
)
def test_a_file_that_holds_no_weights(lists, tmp_path, content, words):
    (tmp_path / "weights.json").write_text(content)
    with pytest.raises(UsageError, match=words):
        rescored_lines(lists, tmp_path, weights=tmp_path / "weights.json")
    assert not (tmp_path / "out.tsv").exists()


def test_options_that_exclude_each_other(tmp_path, references):
    file = tmp_path / "weights.json"
    for options, words in (
        ({"weights": file, "lm_weight": 1.0}, "either --weights"),
        ({"tune": file}, "--tune needs --references"),
        ({"tune": file, "references": references, "all": True}, "--tune finds weights and ranks nothing"),
        ({"resume": True, "references": references, "output": file}, "leave out --resume"),
    ):
        with pytest.raises(UsageError, match=words):
            RescoreOptions(**options)


def test_weights_outside_their_range(lists, tmp_path):
    with pytest.raises(UsageError, match="--lm-weight must be from 0"):
        rescored_lines(lists, tmp_path, lm_weight=-1.0)


def test_what_cannot_be_ranked_is_named_and_the_others_are(lists, tmp_path, capsys):
    content = lists.read_text().splitlines()
    long = {"id": "long", "hypotheses": [{"text": "a " * 5000, "score": 9}, {"text": "a b", "score": -9}]}
    lists.write_text("\n".join([content[0], "{", json.dumps(long), content[1]]))
    status, lines = rescored_lines(lists, tmp_path)
    assert status == 1
    assert lines == ["u1\tsee you tomorrow", "\t", "long\ta b", "u2\the has two dogs"]
    printed = capsys.readouterr().err.splitlines()
    assert printed[0].startswith("softserve: line 2: this is not JSON")
    assert printed[1].startswith("softserve: line 3: hypothesis 1 of long: the text has 5000 tokens")
    assert (
        printed[2]
        == "softserve: 1 of 7 hypotheses were refused by the model; they are ranked as those of probability 0"
    )
    assert printed[3] == "softserve: 1 lines or lists could not be read"
    status, lines = rescored_lines(lists, tmp_path, "out.jsonl", all=True)
    assert json.loads(lines[1]).keys() == {"line", "error"}
    refused = json.loads(lines[2])["hypotheses"][1]
    assert (refused["place"], refused["total"], refused["log_probability"]) == (0, None, None)
    assert refused["error"].startswith("the text has 5000 tokens")


def test_truncated_texts_are_counted(lists, tmp_path, capsys):
    lists.write_text(json.dumps({"hypotheses": [{"text": "a " * 5000, "score": 9}, {"text": "a b", "score": -9}]}))
    status, lines = rescored_lines(lists, tmp_path, "out.jsonl", all=True, truncate=True)
    assert status == 0
    assert [each.get("truncated", 0) > 1000 for each in json.loads(lines[0])["hypotheses"]] == [False, True]
    assert "1 of 2 hypotheses were cut" in capsys.readouterr().err


def test_probability_0_is_ranked_last_and_counted(sparse_export, sparse_sentence, tmp_path, capsys):
    file = tmp_path / "lists.tsv"
    file.write_text(f"u\tnow now . two One\t1\nu\tnow now . two One\t5\nu\t{sparse_sentence}\t-50\n")
    output = tmp_path / "out.tsv"
    options = ModelOptions(threads=1, model_dirs=(sparse_export.path.parents[1],))
    assert rescore(file, model=options, rescoring=RescoreOptions(output=output, all=True)) == 0
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    assert [(row[3], row[2] == "-inf") for row in rows] == [("-50.0000", False), ("5.0000", True), ("1.0000", True)]
    assert "2 of 3 hypotheses have probability 0, as a model with sparse_k" in capsys.readouterr().err
    references = tmp_path / "references"
    references.write_text(f"u {sparse_sentence}\n")
    tuned = tmp_path / "weights.json"
    assert rescore(file, model=options, rescoring=RescoreOptions(references=references, tune=tuned)) == 0
    assert WeightsFile.read(tuned).word_error_rate.rescored == 0


def test_groups_of_any_size_have_the_same_scores(model, monkeypatch):
    texts = [[f"{word} {' '.join(['very'] * count)} good" for word in ("a", "the", "some")] for count in range(9)]
    lists = [NBest(number, str(number), [Hypothesis(text) for text in some]) for number, some in enumerate(texts)]
    lists.insert(3, NBest(99, error="wrong"))

    def values():
        found = list(log_probabilities(model, Asked.of(SCORE, {}), iter(lists), 2))
        assert [each.given for each in found] == lists
        return [each.log_probabilities for each in found]

    whole = values()
    assert [len(each) for each in whole] == [3, 3, 3, 0, *[3] * 6]
    for size in (1, 2, 4, 7):
        monkeypatch.setattr(rescoring, "_GROUP", size)
        for one, other in zip(values(), whole, strict=True):
            assert one == pytest.approx(other, abs=1e-3)


def test_few_lists_are_read_ahead(model, monkeypatch):
    monkeypatch.setattr(rescoring, "_GROUP", 4)
    count = 0

    def endless():
        nonlocal count
        while True:
            count += 1
            yield NBest(count, str(count), [Hypothesis("a"), Hypothesis("b")])

    found = log_probabilities(model, Asked.of(SCORE, {}), endless(), 2)
    for _ in range(20):
        next(found)
    found.close()
    assert count <= 20 + 4 * 2 + 2


def test_a_run_goes_on_where_it_was(lists, tmp_path):
    for name, every in (("out.tsv", False), ("out.jsonl", True)):
        _, whole = rescored_lines(lists, tmp_path, name, all=every)
        output = tmp_path / name
        content = output.read_bytes()
        output.write_bytes(content[: content.index(b"\n") + 4])
        _, lines = rescored_lines(lists, tmp_path, name, all=every, resume=True)
        assert lines == whole
        output.write_bytes(content * 2)
        with pytest.raises(UsageError, match="has 6 lines, more than the 3 lists"):
            rescored_lines(lists, tmp_path, name, all=every, resume=True)
    for options in ({"all": True, "output": tmp_path / "new.tsv"}, {"output": tmp_path / "new.csv"}):
        with pytest.raises(UsageError, match="a line for each list"):
            rescore(lists, model=ONE, rescoring=RescoreOptions(resume=True, **options))
    with pytest.raises(UsageError, match="--all needs"):
        rescored_lines(lists, tmp_path, "new", format="kaldi", all=True)


def test_as_a_process(lists, references, tmp_path):
    found = run("rescore", "--model", "next-word:4", given=lists.read_bytes())
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "".join(f"{name}\t{text}\n" for name, text in REFERENCES.items())
    (tmp_path / "scores").write_text("u-1 4.1\nu-2 4.6\n")
    (tmp_path / "text").write_text("u-1 sea you tomorrow\nu-2 see you tomorrow\n")
    options = ("--model", "next-word:4", "--scores", tmp_path / "scores", "--costs", "--format", "kaldi")
    found = run("rescore", tmp_path / "text", *options, "--lm-weight", "0")
    assert (found.returncode, found.stdout) == (0, "u sea you tomorrow\n")
    found = run("rescore", tmp_path / "text", *options)
    assert (found.returncode, found.stdout) == (0, "u see you tomorrow\n")
    (tmp_path / "a.csv").write_text("a,b,c\n1,see you,2\n")
    found = run("rescore", tmp_path / "a.csv", "--columns", "a", "b", "c")
    assert (found.returncode, found.stdout) == (0, "1\tsee you\n")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["nothing.csv"], 2, "nothing.csv is no file"),
        (["-", "--model", "intents"], 1, "not for score"),
        (["-", "--tune", "w.json"], 2, "--tune needs --references"),
        (["-", "--references", "nothing"], 1, "nothing"),
        (["-", "--lm-weight", "x"], 2, "--lm-weight"),
        (["-", "--encoding", "x"], 2, "--encoding"),
    ],
)
def test_what_is_wrong_is_said(arguments, status, words):
    found = run("rescore", *arguments)
    assert (found.returncode, found.stdout) == (status, "")
    assert words in found.stderr
    assert "Traceback" not in found.stderr


def test_help_says_how():
    found = run("rescore", "--help", COLUMNS="200")
    assert found.returncode == 0
    for part in ("total = score + lm_weight * log-probability", "--tune", "--columns", "utterance-N words"):
        assert part in found.stdout
