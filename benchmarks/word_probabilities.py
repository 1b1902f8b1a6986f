"""Compare the words' surprisals of `score_words` with those of minicons, under a random GPT-2 of a trained vocabulary.

    pip install --no-deps minicons wonderwords && pip install pandas
    python -m benchmarks.word_probabilities

`--no-deps` keeps pip from replacing torch. minicons (Misra 2022) implements the correction of Pimentel and Meister
(2024) with two differences: only tokens that begin with a space begin a word, and the end of the text ends none. For
the comparison, spaces are the only separators, and the end has probability 0. The second line is the difference where
the end has its own probability. The words that follow are those of `next_words`, with their bounds.
"""

import importlib
import random
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import tyro
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.prefixes import WORDS
from models.backend import Array
from models.decoding.next_words import next_words
from models.decoding.word_probabilities import score_words, word_probabilities
from models.text.word_vocabulary import WordBoundaries, WordVocabulary

END = "<|endoftext|>"


def without_end(module: torch.nn.Module, args: object, output: Any) -> Any:
    """Set the probability of the end to 0; a forward hook."""
    output.logits[..., 0] = -1e9
    return output


class TorchRows:
    """The log-probabilities of next tokens of a Hugging Face model; prefixes are padded on the right."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def log_probabilities(self, prefixes: Sequence[tuple[int, ...]]) -> Array:
        longest = max(map(len, prefixes))
        ids = torch.tensor([[*prefix, *[0] * (longest - len(prefix))] for prefix in prefixes])
        last = torch.tensor([len(prefix) - 1 for prefix in prefixes])
        with torch.no_grad():
            logits = self._model(ids).logits[torch.arange(len(prefixes)), last]
        rows: Array = logits.double().log_softmax(-1).numpy()
        return rows


def made_tokenizer(texts: Sequence[str], vocab_size: int) -> Tokenizer:
    """Return a byte-level BPE of texts, in which the end has the id 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main(texts: int = 50, words: int = 12, vocab_size: int = 400, seed: int = 0) -> None:
    """Print the largest absolute difference of a word's log-probability, in nats.

    Args:
        texts: Number of random texts.
        words: Words of each text.
        vocab_size: Size of the vocabulary; 257 are bytes and the end.
        seed: Seed of weights and texts.
    """
    warnings.simplefilter("ignore")
    scorer: Any = importlib.import_module("minicons.scorer")
    transformers: Any = importlib.import_module("transformers")
    rng = random.Random(seed)
    torch.manual_seed(seed)
    lines = [" ".join(rng.choices(WORDS, k=words)) for _ in range(texts)]
    tokenizer = made_tokenizer(lines[: max(1, texts // 2)], vocab_size)
    size = tokenizer.get_vocab_size()
    config = transformers.GPT2Config(
        vocab_size=size, n_positions=256, n_embd=64, n_layer=2, n_head=2, initializer_range=0.3
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    hook = model.register_forward_hook(without_end)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    reference = scorer.IncrementalLMScorer(model, "cpu", tokenizer=fast)
    spellings = [None, *map(tokenizer.id_to_token, range(1, size))]
    vocabulary = WordVocabulary.of_byte_level(spellings, WordBoundaries(" "))
    rows = TorchRows(model)

    def difference() -> tuple[float, int]:
        largest, count = 0.0, 0
        for line in lines:
            scored = score_words(rows, vocabulary, (0,), tokenizer.encode(line).ids)
            encoded = reference.prepare_text([line], bos_token=True)
            (theirs,) = reference.compute_stats(encoded, bow_correction=True)
            for word in scored.words:
                largest = max(largest, abs(word.log_probability - sum(theirs[slice(*word.tokens)])))
            count += len(scored.words)
        return largest, count

    largest, count = difference()
    print(f"{count} words of {texts} texts, {size} tokens: largest difference from minicons {largest:.1e} nats")
    hook.remove()
    print(f"the same where the end has its own probability: {difference()[0]:.1e} nats")

    context = (0, *tokenizer.encode(lines[-1]).ids)
    begun = time.perf_counter()
    found = next_words(rows, vocabulary, context, 5, max_prefixes=2048)
    seconds = time.perf_counter() - begun
    print(f"next words: {found.prefixes} prefixes in {seconds:.1f} s, certain: {found.certain}, left {found.left:.3f}")
    for each in found.words:
        (exact,) = word_probabilities(rows, vocabulary, context, [each.text])
        value = np.exp(exact.log_probability)
        print(f"  {each.text!r}: [{each.probability:.5f}, {each.upper_bound:.5f}], summed on its own {value:.5f}")


if __name__ == "__main__":
    tyro.cli(main)
