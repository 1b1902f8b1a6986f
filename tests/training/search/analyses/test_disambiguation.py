"""Tests of disambiguation: pairs and their errors, probabilities, ranking, neighbours, the command."""

import csv
import math
from pathlib import Path

import pytest
import torch

from models.text.tokenization import WordTokenizer
from training.cli.analyses import disambiguation
from training.data.tokenization import build_word_tokenizer
from training.run.directory import RunDirectory
from training.run.session import load_trained
from training.search.analyses.disambiguation import (
    PAIRS,
    Comparison,
    Located,
    Odds,
    Pair,
    compare,
    comparison_rows,
    locate,
    mcnemar,
    neighbour_rows,
    odds,
    odds_rows,
    read_pairs,
    right_rows,
)
from training.tasks.language_model import LanguageModelTask

TOY = """# what the toy grammar decides
One ape bites one cow.	One ape calls one cow.

Two cats draw one fox.	Two cats draw two fox.
"""


@pytest.fixture(scope="module")
def task(tiny_run: RunDirectory, tiny_data_dir: Path) -> LanguageModelTask:
    return load_trained(tiny_run, tiny_data_dir, "cpu")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text(TOY)
    return path


def _pair(right: str, wrong: str, line: int = 1) -> Pair:
    return Pair(line=line, right=right, wrong=wrong)


# ---- pairs ------------------------------------------------------------------------------------------------


def test_shipped_pairs_differ_in_one_known_word() -> None:
    pairs = read_pairs(PAIRS)
    assert len(pairs) >= 15
    tokenizer = build_word_tokenizer(sentence for pair in pairs for sentence in (pair.right, pair.wrong))
    located = [locate(pair, tokenizer) for pair in pairs]
    assert all(None not in each.tokens and each.context for each in located)
    assert {"quickly", "mother", "yesterday"} <= {each.words[0] for each in located}


def test_comments_and_empty_lines_are_skipped(path: Path) -> None:
    assert [(pair.line, pair.right) for pair in read_pairs(path)] == [
        (2, "One ape bites one cow."),
        (4, "Two cats draw one fox."),
    ]


def test_a_byte_order_mark_is_no_text(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf# a comment\na b\ta c\n")
    assert [(pair.line, pair.right) for pair in read_pairs(path)] == [(2, "a b")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a b\ta c\nonly one\n", "pairs.tsv, line 2: 1 columns, not two sentences and a tab"),
        ("a\tb\tc\n", "pairs.tsv, line 1: 3 columns"),
        ("# nothing\n\n", "pairs.tsv has no pair of sentences"),
    ],
)
def test_a_wrong_line_is_named(path: Path, content: str, said: str) -> None:
    path.write_text(content)
    with pytest.raises(ValueError, match=said):
        read_pairs(path)


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return build_word_tokenizer(["i saw her mother . father"])


def test_the_word_is_found(tokenizer: WordTokenizer) -> None:
    located = locate(_pair("I saw her mother.", "I saw her father."), tokenizer)
    mother, father = tokenizer.encode("mother father")
    assert located == Located(
        context="I saw her",
        context_ids=tuple(tokenizer.encode("i saw her")),
        words=("mother", "father"),
        tokens=(mother, father),
    )
    assert locate(_pair("Her mother", "Her uncle"), tokenizer).tokens == (mother, None)


@pytest.mark.parametrize("wrong", ["I saw her mother.", "I saw his father.", "I saw her.", "I saw her old mother."])
def test_sentences_must_differ_in_one_word(tokenizer: WordTokenizer, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"line 7: 'I saw her mother[.]' and .* do not differ in exactly one word"):
        locate(_pair("I saw her mother.", wrong, line=7), tokenizer)


def test_spellings_of_one_word_are_no_pair() -> None:
    tokenizer = build_word_tokenizer(["i saw her mother ."], lowercase=True)
    with pytest.raises(ValueError, match="line 7: 'mother' and 'Mother' are one word to the model"):
        locate(_pair("I saw her mother.", "I saw her Mother.", line=7), tokenizer)


# ---- probabilities ----------------------------------------------------------------------------------------


def test_odds() -> None:
    assert Odds(right=0.2, wrong=0.1).log_odds == pytest.approx(math.log(2))
    assert Odds(right=0.0, wrong=0.1).log_odds == -math.inf
    assert Odds(right=0.1, wrong=0.0).log_odds == math.inf
    assert Odds(right=0.0, wrong=0.0).log_odds == 0.0


def test_odds_are_the_models(task: LanguageModelTask) -> None:
    """Against the probabilities of whole sentences: those of equal beginnings differ by the odds."""

    def log_probability(text: str) -> float:
        ids = task.tokenizer.encode(text)
        inputs = torch.tensor([[task.tokenizer.end_id, *ids[:-1]]])
        outputs, _ = task.model(inputs, task.model.initial_state(1))
        return float(task.model.output_layer.target_log_prob(outputs[0], torch.tensor(ids)).double().sum())

    found = odds(task, locate(_pair("One ape bites one", "One ape calls one"), task.tokenizer))
    assert found is not None
    expected = log_probability("one ape bites") - log_probability("one ape calls")
    assert found.log_odds == pytest.approx(expected, abs=1e-4)
    assert found.log_odds > 1  # an ape bites, in the toy grammar


def test_an_unknown_word_has_no_odds(task: LanguageModelTask) -> None:
    assert odds(task, locate(_pair("One ape bites", "One ape sees"), task.tokenizer)) is None


def test_the_first_word_may_differ(task: LanguageModelTask) -> None:
    located = locate(_pair("One ape", "Two ape"), task.tokenizer)
    assert located.context_ids == ()
    assert odds(task, located) is not None


def _comparison(line: int, *log_odds: float | None) -> Comparison:
    found = {
        f"run{number}": None if each is None else Odds(right=math.exp(each) / 10, wrong=0.1)
        for number, each in enumerate(log_odds)
    }
    located = Located(context="We", context_ids=(2,), words=("eat", "drink"), tokens=(3, 4))
    return Comparison(pair=_pair("We eat", "We drink", line), located=located, odds=found)


def test_spread() -> None:
    assert _comparison(1, 2.0, -1.0, None).spread == pytest.approx(3.0)
    assert _comparison(1, 2.0, -1.0, None).worst == pytest.approx(-1.0)
    assert _comparison(1, 2.0).spread == 0.0
    assert (_comparison(1, None).spread, _comparison(1, None).worst) == (0.0, math.inf)


def test_tables_by_hand() -> None:
    comparisons = [_comparison(3, 1.0, -1.0), _comparison(1, 2.0, None)]
    rows = odds_rows(comparisons)
    assert rows.columns[5:] == [f"run{run}: {name}" for run in (0, 1) for name in ("p(right)", "p(wrong)", "log-odds")]
    assert rows.rows[0][:5] == (3, "We eat", "eat", "drink", pytest.approx(2.0))
    assert rows.rows[1][8:] == (None, None, None)
    shown = comparison_rows(comparisons)
    assert shown.rows[0] == ("We", "eat, drink", "0.27, 0.1 (+1.0)", "0.037, 0.1 (-1.0)")
    assert shown.rows[1][3] is None
    assert len(shown.rows) == 2


def test_mcnemar_by_hand() -> None:
    """Two-sided: twice the probability of at most one head in six coins, (1 + 6) / 64."""
    assert mcnemar(1, 5) == mcnemar(5, 1) == pytest.approx(2 * 7 / 64)
    assert mcnemar(0, 0) == mcnemar(3, 3) == 1.0


def test_runs_are_tested_against_the_first() -> None:
    """An unknown word is not right."""
    comparisons = [_comparison(1, 1.0, -1.0), _comparison(2, 1.0, None), _comparison(3, -1.0, 1.0)]
    comparisons += [_comparison(4, 1.0, 1.0), _comparison(5, -1.0, 0.0)]
    assert right_rows(comparisons).rows == [("run0", 3, 5, 0, 0, None), ("run1", 2, 5, 2, 1, 1.0)]


def test_runs_that_differ_most_come_first(task: LanguageModelTask, path: Path) -> None:
    """The second run is the first with its projection matrix scaled down, so its odds are nearer 0."""
    weaker = LanguageModelTask(task.recipe, task.tokenizer, Path(), torch.device("cpu"))
    state = {name: value.clone() for name, value in task.model.state_dict().items()}
    state["output_layer.weight"] *= 0.5
    weaker.model.load_state_dict(state)
    weaker.model.eval()
    pairs = read_pairs(path)
    both = compare({"strong": task, "weak": weaker}, [*pairs, _pair("One ape bites", "One ape sees", line=9)])
    spreads = [each.spread for each in both]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] > 0
    assert both[-1].pair.line == 9
    one = compare({"strong": task}, pairs)
    assert [each.worst for each in one] == sorted(each.worst for each in one)


# ---- neighbours -------------------------------------------------------------------------------------------


def test_neighbours_by_hand(task: LanguageModelTask) -> None:
    copy = LanguageModelTask(task.recipe, task.tokenizer, Path(), torch.device("cpu"))
    ape, bat, cat, cow = (task.tokenizer.encode(word)[0] for word in ("ape", "bat", "cat", "cow"))
    with torch.no_grad():
        weight = copy.model.output_layer.weight.zero_()
        weight[:, 1] = -1.0
        for token, first in ((ape, 1.0), (bat, 2.0), (cat, 4.0), (cow, 3.0)):
            weight[token] = 0.0
            weight[token, 0] = first
        weight[task.tokenizer.end_id, 0] = 9.0
    rows = neighbour_rows(
        copy, [_pair("One ape", "One bat"), _pair("One bat", "One ape"), _pair("One ape", "One yeti")], 2
    )
    assert rows.rows == [
        ("ape", "bat", 3, "cat 4.00, cow 3.00"),
        ("bat", "ape", 3, "cat 8.00, cow 6.00"),
    ]


# ---- command ----------------------------------------------------------------------------------------------


def test_the_command_compares_runs(
    tiny_run: RunDirectory, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"neighbours": 3, "output": tmp_path / "out", "device": "cpu"}
    assert disambiguation((tiny_run.path, tiny_run.path), path, **options) == 0
    said = capsys.readouterr().out
    assert "nearest words" in said
    assert "McNemar's exact test" in said
    with (tmp_path / "out" / "odds.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["spread"]) for line in lines] == [0.0, 0.0]
    assert all(0 < float(line[f"{tiny_run.path}: p(right)"]) < 1 for line in lines)
    assert len((tmp_path / "out" / "neighbours.csv").read_text().splitlines()) == 5
    right = (tmp_path / "out" / "right.csv").read_text().splitlines()
    assert right[1].split(",")[2:] == ["2", "0", "0", ""]
    with pytest.raises(ValueError, match="at least one run"):
        disambiguation((), path)


def test_the_command_mines_pairs(tiny_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path) -> None:
    options = {"data_dir": tiny_data_dir, "output": tmp_path, "device": "cpu"}
    assert disambiguation((tiny_run.path,), mine=5, **options) == 0
    with (tmp_path / "odds.csv").open(newline="") as file:
        assert [line["right"] != line["wrong"] for line in csv.DictReader(file)] == [True] * 5
    for wrong, said in (
        ({"mine": 0}, "at least 1"),
        ({"top": 0}, "at least 1"),
        ({"mine": 5, "pairs": PAIRS}, "not both"),
    ):
        with pytest.raises(ValueError, match=said):
            disambiguation((tiny_run.path,), **options, **wrong)
