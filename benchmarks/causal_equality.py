"""Imported causal models of published sizes, compared with transformers on the same random weights.

    .venv/bin/python -m benchmarks.causal_equality                    # --only NAME, --quantize int8

Each model has the fields that its published `config.json` has, random weights and a small tokenizer; texts are random
tokens of the whole vocabulary. The reference is transformers with eager attention in float32. Columns: the largest
difference of a token's log-probability, of texts that are scored one by one, and in one batch, in which two texts share
a beginning; the largest difference of the 100 most probable next tokens after texts that go on from a prefix in the
cache; whether 32 tokens that are written greedily, with and without the cache, are those of transformers; the distances
of both sides from the same network in float64, on the shorter texts. transformers computes norms and the softmax of
attention in float32 whatever the precision, so that the network in float64 is that of the import. Memory is the peak of
the process so far: 16 GB for qwen2.5-0.5b, 5 GB for gpt2. Nothing stays on disk; the largest model takes 10 GB there
while it is compared.
"""

import gc
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.causal_results import NextTokens, NextTokensQuery
from models.tasks.language_sampling import DrawQuery
from tests.support.causal_directory import write_tokenizer
from training.bundling.bundle import BundleSettings
from training.importing.causal import CausalImporter
from training.importing.importer import ImportOptions, need, write_imported
from training.importing.samples import Samples
from training.importing.source import open_source
from training.settings import QuantizationName

__all__ = ["PUBLISHED", "Published", "import_directory", "measure", "write_published"]

transformers = need("transformers")

_LENGTHS = (5, 50, 200, 900)
_SHORT = 200
"""Longest text that is computed in float64."""
_WRITTEN = 32
"""Tokens that are written greedily."""
_PROMPT = 50
"""Tokens before them."""
_COMPARED = 100
"""Most probable tokens that are compared."""
_SPREAD = 3.0
"""Standard deviation of the scores of tokens: random ones of 0.5, as weights are initialized, are nearly uniform."""
_CACHE_BYTES = 1 << 30
_DEFAULT = "default"

Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Published:
    """A published model."""

    architecture: str
    config: Mapping[str, Any]
    """The fields of its `config.json`, `rope_theta` and the like as transformers 5 names them."""
    reduced: str = ""
    """What differs from the published configuration."""
    lengths: tuple[int, ...] = field(default=_LENGTHS)
    """Lengths of the texts, in tokens."""


def _rope(theta: float, **others: object) -> dict[str, object]:
    return {"rope_type": _DEFAULT, "rope_theta": theta, **others}


def _sizes(hidden: int, inner: int, layers: int, heads: int, shared: int, positions: int, vocabulary: int) -> Any:
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "max_position_embeddings": positions,
        "vocab_size": vocabulary,
    }


PUBLISHED: Mapping[str, Published] = {
    "gpt2": Published(
        "GPT2LMHeadModel",
        {"vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
        | {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
    ),
    "pythia-160m": Published(
        "GPTNeoXForCausalLM",
        {"vocab_size": 50_304, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
        | {"num_attention_heads": 12, "max_position_embeddings": 2048, "hidden_act": "gelu", "layer_norm_eps": 1e-5}
        | {"rope_parameters": _rope(10_000.0, partial_rotary_factor=0.25), "use_parallel_residual": True}
        | {"tie_word_embeddings": False},
    ),
    "smollm-135m": Published(
        "LlamaForCausalLM",
        _sizes(576, 1536, 30, 9, 3, 2048, 49_152)
        | {"rope_parameters": _rope(10_000.0), "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
    ),
    "smollm2-360m": Published(
        "LlamaForCausalLM",
        _sizes(960, 2560, 32, 15, 5, 8192, 49_152)
        | {"rope_parameters": _rope(100_000.0), "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
    ),
    "gemma-3-270m": Published(
        "Gemma3ForCausalLM",
        _sizes(640, 2048, 18, 4, 1, 32_768, 262_144)
        | {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 512, "rms_norm_eps": 1e-6}
        | {"layer_types": [*["sliding_attention"] * 5, "full_attention"] * 3}
        | {"rope_parameters": {"full_attention": _rope(1e6), "sliding_attention": _rope(1e4)}}
        | {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    ),
    "qwen2.5-0.5b": Published(
        "Qwen2ForCausalLM",
        _sizes(896, 4864, 24, 14, 2, 32_768, 151_936)
        | {"rope_parameters": _rope(1e6), "rms_norm_eps": 1e-6, "tie_word_embeddings": True}
        | {"use_sliding_window": False, "sliding_window": 32_768, "max_window_layers": 24},
    ),
    "qwen3-0.6b": Published(
        "Qwen3ForCausalLM",
        _sizes(1024, 3072, 28, 16, 8, 40_960, 151_936)
        | {"head_dim": 128, "rope_parameters": _rope(1e6), "rms_norm_eps": 1e-6, "tie_word_embeddings": True}
        | {"use_sliding_window": False, "max_window_layers": 28, "attention_bias": False},
    ),
    "gemma-2-2b": Published(
        "Gemma2ForCausalLM",
        _sizes(2304, 9216, 2, 8, 4, 8192, 256_000)
        | {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096, "rms_norm_eps": 1e-6}
        | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "rope_parameters": _rope(1e4)}
        | {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True},
        "2 of 26 layers",
    ),
    "mistral-7b": Published(
        "MistralForCausalLM",
        _sizes(4096, 14_336, 2, 32, 8, 32_768, 32_000)
        | {"sliding_window": 4096, "rope_parameters": _rope(1e4), "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
        "2 of 32 layers",
    ),
    "llama-3.2-1b": Published(
        "LlamaForCausalLM",
        _sizes(2048, 8192, 16, 32, 8, 131_072, 128_256)
        | {"head_dim": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
        | {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500_000.0,
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            }
        },
    ),
}
"""Models by name."""


def write_published(
    directory: Path,
    published: Published,
    tokenizer: Any = None,
    *,
    seed: int = 0,
) -> int:
    """Write a directory with random weights and a tokenizer, by default a small one; return the number of parameters.

    Matrices are initialized as by transformers. Biases and the weights of norms get noise, so that no two are the same,
    and the last norm is scaled so that the scores of tokens have the standard deviation `_SPREAD`.
    """
    if tokenizer is None:
        tokenizer = write_tokenizer(directory, published.architecture)
    else:
        tokenizer.save_pretrained(directory)
    model_class = getattr(transformers, published.architecture)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": None}
    torch.manual_seed(seed)
    model = model_class(model_class.config_class(**ends, **published.config)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        vectors = model.base_model(input_ids=torch.arange(3, 67)[None]).last_hidden_state[0]
        scores = model.get_output_embeddings()(vectors)
        last = [module for name, module in model.base_model.named_children() if "norm" in name or name == "ln_f"][-1]
        offset = 1.0 if published.architecture.startswith("Gemma") else 0.0
        factor = _SPREAD / float(scores.std())
        last.weight.copy_((last.weight + offset) * factor - offset)
        if getattr(last, "bias", None) is not None:
            last.bias.mul_(factor)
    model.save_pretrained(directory)
    return int(model.num_parameters())


def import_directory(
    directory: Path, output: Path, *, quantize: QuantizationName = "none"
) -> tuple[CausalImporter, Path]:
    """Import a directory with random weights; return what read it, and the bundle below `output`."""
    importer = CausalImporter(
        open_source(str(directory)),
        ImportOptions(samples=Samples(("It rains.", "Where is the station?"), ""), max_tokens=None),
    )
    settings = BundleSettings(
        name=directory.name, version=1, description="Random weights", licence="MIT", quantization=quantize
    )
    return importer, write_imported(importer, settings, output).path


@dataclass(frozen=True, slots=True)
class Expected:
    """What transformers computes."""

    values: list[Values]
    """The log-probability of each token of each text."""
    best: list[Values]
    """The `_COMPARED` largest log-probabilities after each text, in descending order."""
    tokens: list[NDArray[np.int64]]
    """Their tokens."""
    written: list[int]
    """The tokens that follow the prompt greedily."""
    margins: list[float]
    """How much more probable each of them is than the second best, as a difference of log-probabilities."""


@torch.inference_mode()
def _expected(directory: Path, start: Sequence[int], texts: Sequence[Sequence[int]], prompt: Sequence[int]) -> Expected:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager", dtype=torch.float32
    ).eval()
    values, best, tokens = [], [], []
    for text in texts:
        read = torch.tensor([[*start, *text]])
        logits = model(read, use_cache=False).logits[0]
        before = logits[len(start) - 1 : -1]
        chosen = before.gather(1, torch.tensor(text)[:, None])[:, 0] - before.logsumexp(-1)
        values.append(chosen.numpy())
        found = logits[-1].log_softmax(-1).topk(_COMPARED)
        best.append(found.values.numpy())
        tokens.append(found.indices.numpy())
        del logits, before
    written: list[int] = []
    margins: list[float] = []
    read, cache = torch.tensor([[*start, *prompt]]), transformers.DynamicCache(config=model.config)
    for _ in range(_WRITTEN):
        found = model(read, past_key_values=cache, use_cache=True).logits[0, -1].topk(2)
        written.append(int(found.indices[0]))
        margins.append(float(found.values[0] - found.values[1]))
        read = torch.tensor([written[-1:]])
    return Expected(values, best, tokens, written, margins)


def _scores(model: CausalLanguageModel, texts: Sequence[Sequence[int]]) -> list[Values]:
    found = model.run_score([model.score_token_query(text) for text in texts])
    return [np.array([each.log_probability for each in score.tokens], np.float32) for score in found]


def _largest(found: Sequence[Values], expected: Sequence[Values]) -> float:
    return max(float(np.abs(one - other).max()) for one, other in zip(found, expected, strict=True))


def _cached(
    model: CausalLanguageModel, start: Sequence[int], texts: Sequence[Sequence[int]], expected: Expected
) -> float:
    """Return the largest difference after texts of which the first half has been read into the cache before."""
    hits: list[bool] = []
    model.use_cache(_CACHE_BYTES, hits.append)
    largest = 0.0
    for row, text in enumerate(texts):
        whole = (*start, *text)
        model.run_draws([DrawQuery(whole[: len(whole) // 2])])
        (drawn,) = model.run_draws([DrawQuery(whole, alternatives=_COMPARED)])
        found = dict(drawn.alternatives)
        values = [value for _, value in drawn.alternatives]
        largest = max(largest, float(np.abs(np.array(values) - expected.best[row]).max()))
        pairs = zip(expected.tokens[row].tolist(), expected.best[row].tolist(), strict=True)
        largest = max(largest, *(abs(found[token] - value) for token, value in pairs if token in found))
    if sum(hits) < len(texts):
        raise RuntimeError(f"only {sum(hits)} of {len(texts)} texts went on from the cache")
    return largest


def _written(model: CausalLanguageModel, start: Sequence[int], prompt: Sequence[int], *, cached: bool) -> list[int]:
    """Return the tokens that follow greedily, which a model without a cache reads from the beginning each time."""
    read, found = (*start, *prompt), []
    for _ in range(_WRITTEN):
        if cached:
            token = model.run_draws([DrawQuery(read)])[0].token
        else:
            (result,) = model.run_next_words([NextTokensQuery("", read, 1)])
            assert isinstance(result, NextTokens)
            token = result.words[0].token
        found.append(token)
        read = (*read, token)
    return found


def _agreement(found: Sequence[Sequence[int]], expected: Expected) -> str:
    """Return whether tokens are the same, and else where they differ first and by how much two candidates differ."""
    for tokens in found:
        for place, (one, other) in enumerate(zip(tokens, expected.written, strict=True)):
            if one != other:
                return f"differ at {place + 1}, where two tokens are {expected.margins[place]:.1e} apart"
    return "equal"


@torch.inference_mode()
def _exact(importer: CausalImporter, start: Sequence[int], texts: Sequence[Sequence[int]]) -> list[Values]:
    """Return the log-probabilities of tokens in float64."""
    network, head = importer.network.double(), importer.head.double()
    found = []
    for text in texts:
        hidden = network(torch.tensor([[*start, *text]]))[0][len(start) - 1 : -1]
        scores = head(hidden)
        found.append((scores.gather(1, torch.tensor(text)[:, None])[:, 0] - scores.logsumexp(-1)).numpy())
    return found


def measure(name: str, *, quantize: QuantizationName, folder: Path) -> str:
    """Make, import and compare one model in a folder, and return its row of the table."""
    published = PUBLISHED[name]
    directory = folder / name
    parameters = write_published(directory, published)
    gc.collect()
    started = time.perf_counter()
    importer, bundle = import_directory(directory, folder / "bundles", quantize=quantize)
    seconds = time.perf_counter() - started
    start = [token for token in [importer.special_tokens.start] if token is not None]
    generator = np.random.default_rng(0)
    size = importer.causal.settings.vocab_size
    texts = [generator.integers(3, size, length).tolist() for length in published.lengths]
    texts.append([*texts[2][:100], *generator.integers(3, size, 40).tolist()])
    prompt = texts[1][:_PROMPT]

    model = load_bundle(bundle)
    assert isinstance(model, CausalLanguageModel)
    alone = [_scores(model, [text])[0] for text in texts]
    together = _scores(model, texts)
    uncached = _written(model, start, prompt, cached=False)
    expected = _expected(directory, start, texts, prompt)
    gc.collect()
    cached = _cached(model, start, texts, expected)
    written = uncached, _written(model, start, prompt, cached=True)
    megabytes = sum(file.stat().st_size for file in bundle.iterdir()) / 1e6
    del model
    gc.collect()
    short = [row for row, text in enumerate(texts) if len(text) <= _SHORT]
    exact = _exact(importer, start, [texts[row] for row in short])
    distances = [_largest([found[row] for row in short], exact) for found in (alone, expected.values)]
    deviation = float(np.concatenate(expected.values).std())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    cells = [
        f"{name}{f', {published.reduced}' if published.reduced else ''}",
        f"{parameters / 1e6:.0f} M",
        *(f"{each:.1e}" for each in (_largest(alone, expected.values), _largest(together, expected.values), cached)),
        _agreement(written, expected),
        *(f"{each:.1e}" for each in distances),
        f"{deviation:.1f}",
        f"{megabytes:.0f}",
        f"{seconds:.0f}",
        f"{peak:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def main(only: str | None = None, quantize: QuantizationName = "none", threads: int = 2) -> None:
    """Print a row for each model.

    Args:
        only: Name of one model.
        quantize: Quantize weights; differences are then those of quantization.
        threads: Threads of torch.
    """
    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    columns = ["model", "parameters", "alone", "batch", "cached", "32 greedy tokens", "from float64", "transformers'"]
    columns += ["deviation", "bundle (MB)", "import (s)", "peak (GB)"]
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")
    for name in PUBLISHED if only is None else [only]:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(name, quantize=quantize, folder=Path(folder)), flush=True)


if __name__ == "__main__":
    tyro.cli(main)
