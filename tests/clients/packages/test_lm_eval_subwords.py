"""lm-evaluation-harness with an imported causal model, whose answers are those of transformers on the same weights."""

import json
from pathlib import Path

import pytest

TEXTS = [json.loads(line) for line in (Path(__file__).parent / "tasks/texts.jsonl").read_text().splitlines()]

WRITE = """
import sys
from pathlib import Path
from tests.support.causal_directory import write_causal
from training.cli import main
made = Path(sys.argv[1])
write_causal(made / "gpt2", "GPT2LMHeadModel", n_positions=256)
sys.argv = ["softserve-train", "import", f"{made}/gpt2", "--output", f"{made}/models", "--licence", "MIT"]
main()
"""
REFERENCE = """
import json, sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
def scored(before, after):
    tokens = torch.tensor([before + after])
    with torch.no_grad():
        rows = model(tokens).logits[0].log_softmax(-1)
    places = range(len(before) - 1, len(before) + len(after) - 1)
    chosen = [float(rows[place, token]) for place, token in zip(places, after)]
    greedy = all(int(rows[place].argmax()) == token for place, token in zip(places, after))
    return [sum(chosen), greedy]
found = {"words": [], "texts": []}
for each in json.load(sys.stdin):
    before = tokenizer(each["context"])["input_ids"]
    whole = tokenizer(each["context"] + " " + each["continuation"])["input_ids"]
    found["words"].append(scored(before, whole[len(before):]))
    found["texts"].append(scored([tokenizer.eos_token_id], whole)[0])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory, run_python):
    made = tmp_path_factory.mktemp("causal")
    run_python(WRITE, made)
    return made


@pytest.fixture(scope="module")
def samples(directory, tmp_path_factory, serving, evaluated):
    log = tmp_path_factory.mktemp("causal-server") / "log.txt"
    with serving(log, "--model-dirs", directory / "models", "--protocols", "native,openai") as server:
        return evaluated(server.address, "gpt2", ("words", "texts"), 255)


def test_answers_are_those_of_transformers(samples, directory, run_python):
    expected = json.loads(run_python(REFERENCE, directory / "gpt2", json.dumps(TEXTS)))
    for ((found, greedy),), (value, is_greedy) in zip(samples["words"], expected["words"], strict=True):
        assert float(found) == pytest.approx(value, abs=1e-4)
        assert str(greedy) == str(is_greedy)
    for (found,), value in zip(samples["texts"], expected["texts"], strict=True):
        assert float(found) == pytest.approx(value, abs=1e-4)
