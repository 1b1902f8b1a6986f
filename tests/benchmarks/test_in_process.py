"""Tests of measurements in this process."""

import re
from types import SimpleNamespace

import pytest

from benchmarks import in_process


def test_a_classifier_is_measured_at_three_batch_sizes(capsys):
    in_process.main("intents", rounds=1, threads=1)
    lines = capsys.readouterr().out.splitlines()
    found = [re.fullmatch(r"classify +batch +(\d+): +([\d.]+) ms, +(\d+) texts/s", line) for line in lines]
    assert [match and int(match[1]) for match in found] == [1, 8, 32]
    for match in found:
        count, milliseconds, rate = int(match[1]), float(match[2]), int(match[3])
        assert abs(rate - 1000 * count / milliseconds) <= 0.02 * rate + 1


@pytest.mark.parametrize(("model", "kinds"), [("de-en", "greedy|beam of 5"), ("next-word", "next_words|score")])
def test_each_operation_is_measured(model, kinds, capsys):
    in_process.main(model, rounds=1, threads=1)
    assert len(re.findall(rf"^(?:{kinds}) +batch +(?:1|8|32): +[\d.]+ ms", capsys.readouterr().out, re.MULTILINE)) == 6


def test_an_operation_of_another_task_is_measured_with_its_warm_up_queries(capsys, monkeypatch):
    sizes = []
    model = SimpleNamespace(
        offers=("embed",),
        reads="image",
        batch_functions={"embed": lambda queries: sizes.append(len(queries))},
        warm_up_parts=lambda operation, count, length: [(operation, length)] * count,
        warm_up_lengths=(4,),
    )
    store = SimpleNamespace(load=lambda name, threads: model)
    monkeypatch.setattr(in_process, "ModelStore", lambda directory: store)
    in_process.main("photos", rounds=1)
    assert sizes == [1, 8, 32] * 4
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("embed") and line.endswith("images/s") for line in lines] == [True] * 3
