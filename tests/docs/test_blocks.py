"""How blocks are found in pages, and answers compared."""

import pytest

from tests.docs.blocks import Block, blocks, different
from training.run.progress import RunProgress


def test_a_block_has_its_comment_and_its_answer() -> None:
    call, *_ = [block for block in blocks("README.md") if "/v1/translate" in block.code]
    assert call.language == "sh"
    assert call.answer is not None
    assert call.answer.tolerance == 0.3
    assert '"Where is the station?"' in call.answer.code


@pytest.mark.parametrize(
    ("shown", "found", "tolerance", "problem"),
    [
        ('{"a": 1, "b": [0.5]}', '{"a":1,"b":[0.51]}', 0.02, None),
        ('{"a": 1, "b": [0.5]}', '{"a":1,"b":[0.53]}', 0.02, "answer[0].b[0]: 0.53, not 0.5"),
        ('{"a": -20.0}', '{"a": -20.3}', 0.02, None),
        ('{"a": 1}', '{"a": 2}', 0.02, "answer[0].a: 2, not 1"),
        ('{"a": true}', '{"a": 1}', 0.02, "answer[0].a: 1, not True"),
        ('{"a": "x"}', '{"a": "y"}', float("inf"), "answer[0].a: 'y', not 'x'"),
        ('{"a": 0.1}', '{"a": 99.5}', float("inf"), None),
        ('{"a": 1}', '{"a": 1, "b": 2}', 0.02, "answer[0]: the fields are ['a', 'b'], not ['a']"),
        ("[1]", "[1, 2]", 0.02, "answer[0]: 2 elements, not 1"),
        ('{"a": 1}', '{"a": 1}\n{"a": 1}', 0.02, "answer: 2 elements, not 1"),
    ],
)
def test_json_is_compared(shown: str, found: str, tolerance: float, problem: str | None) -> None:
    assert different(shown, found, tolerance) == problem


@pytest.mark.parametrize(
    ("shown", "found", "equal"),
    [
        ("loss 0.5 after epoch 3", "loss 1e-05   after epoch 12\n", True),
        ("loss 0.5", "loss nan", False),
        ("...\nwrote my-models/a/1\n...", "said this\nwrote my-models/a/1\nand that", True),
        ("...\nwrote my-models/a/1", "wrote my-models/b/1", False),
        ("one", "one two", False),
        ("one\ntwo", f"one\n{RunProgress(print, epochs=2, epoch_steps=5, epoch=1, step=0).text()}\ntwo", True),
        ("one\ntwo", "one\n12,000 training texts read\ntwo", True),
    ],
)
def test_text_is_compared_but_for_its_numbers(shown: str, found: str, equal: bool) -> None:
    assert (Block("page", 1, "text", shown).refuses(found) is None) == equal
