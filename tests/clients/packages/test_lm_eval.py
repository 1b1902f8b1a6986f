"""lm-evaluation-harness with its model `local-completions` and the tokenizer of the service."""

import json
import math
import subprocess
from pathlib import Path

import pytest

MODEL = "next-word:4"
TASKS = Path(__file__).parent / "tasks"
TEXTS = [json.loads(line) for line in (TASKS / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
SENTENCES = [f"{each['context']} {each['continuation']}" for each in TEXTS]
NAMES = ("words", "texts", "sentences", "completions")


@pytest.fixture(scope="session")
def samples(address, evaluated):
    return evaluated(address, MODEL, NAMES, 1000)


@pytest.fixture(scope="session")
def scores(post):
    """The log-probabilities of the texts' tokens, the end the last, as `/v1/score` has them."""
    results = post("/v1/score", text=SENTENCES, model=MODEL)["results"]
    return [[token["log_probability"] for token in each["tokens"]] for each in results]


def test_texts_have_the_scores_without_the_sentence_end(samples, scores):
    for (found,), expected in zip(samples["texts"], scores, strict=True):
        assert float(found) == pytest.approx(math.fsum(expected[:-1]), rel=1e-3)


def test_continuations_have_the_scores_of_their_words(samples, scores):
    greedy = 0
    for ((found, is_greedy),), text, expected in zip(samples["words"], TEXTS, scores, strict=True):
        context = len(text["context"].split())
        assert float(found) == pytest.approx(math.fsum(expected[context:-1]), rel=1e-3)
        greedy += str(is_greedy) == "True"
    assert 0 <= greedy < len(TEXTS)


def test_texts_with_ends_have_the_perplexity_of_evaluate(samples, server, post):
    code = (
        "import json, sys; from models import ModelStore; from service.settings import BUNDLED; "
        "from training.tasks.language_model.perplexity import bundle_perplexity; "
        "print(bundle_perplexity(ModelStore(BUNDLED).load('next-word:4'), json.load(sys.stdin)).value)"
    )
    texts = json.dumps(SENTENCES)
    command = [server.python, "-c", code]
    done = subprocess.run(command, cwd=server.root, input=texts, capture_output=True, text=True, check=True)
    total = math.fsum(float(found) for (found,) in samples["sentences"])
    tokens = sum(post("/tokenize", prompt=f"{text} </s>", model=MODEL)["count"] for text in SENTENCES)
    assert math.exp(-total / tokens) == pytest.approx(float(done.stdout), rel=1e-3)


def test_completions_are_the_most_probable_words(samples, post):
    for (found,), text in zip(samples["completions"], TEXTS, strict=True):
        answer = post("/v1/completions", model=MODEL, prompt=text["context"], max_tokens=12, temperature=0, stop=".")
        assert answer["choices"][0]["text"] == found
