"""The model that a translation run starts from: an earlier run, or a bundle."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from tokenizers import Tokenizer

from models.bundle.manifest import MANIFEST
from models.errors import BundleError
from models.reading import load_manifest, read_manifest
from models.store import BUNDLED
from models.text.config import TextConfig
from models.text.tokenization import SubwordTokenizer
from training.run import checkpoint
from training.run.directory import RunDirectory
from training.softmax.mixture import extra_state_for_classes, extra_state_with_components
from training.tasks.initial_run import initial_run
from training.tasks.translation.bundle_weights import bundle_model

__all__ = [
    "bundled_translator",
    "initial_sources",
    "initial_tokenizer",
    "initial_weights",
    "weights_for_components",
    "weights_for_layers",
    "weights_for_vocabulary",
]

_BUNDLED = "bundled/"
"""Begins the name of a bundle that is shipped with the project, such as `bundled/de-en/5`."""

_IN_LAYER = re.compile(r"network\.(encoder|decoder)\.\d+\.")
_LAST = re.compile(r"\.(output|outer)\.(weight|bias)$")


def bundled_translator(source: str, target: str) -> tuple[str, Mapping[str, object]] | None:
    """Return the newest bundled model of a language pair that runs can start from, and its recipe; None without one."""
    versions = sorted(BUNDLED.glob("*/*"), key=lambda path: (path.parent.name, int(path.name)), reverse=True)
    for path in versions:
        manifest = read_manifest(path)
        recipe = manifest.provenance.recipe
        data = recipe.get("data", {})
        if recipe.get("task") == "translation" and (data.get("source"), data.get("target")) == (source, target):
            return f"{_BUNDLED}{path.parent.name}/{path.name}", recipe
    return None


def _place(path: str) -> Path:
    own = Path(path)
    return BUNDLED / path.removeprefix(_BUNDLED) if path.startswith(_BUNDLED) and not own.exists() else own


def _is_bundle(path: str) -> bool:
    return (_place(path) / MANIFEST).is_file()


def _run(path: str) -> RunDirectory:
    return initial_run(path, f"no bundle (no {MANIFEST}), and ")


def initial_tokenizer(path: str) -> Path:
    """Return the tokenizer file of a run or bundle; raises `FileNotFoundError`, and `BundleError` for a bundle."""
    if _is_bundle(path):
        config = load_manifest(_place(path)).config
        if not isinstance(config, TextConfig):
            raise BundleError(path, ["it is of a task without a tokenizer"])
        return _place(path) / config.tokenizer
    return _run(path).tokenizer


def initial_weights(path: str) -> Mapping[str, torch.Tensor]:
    """Return the best weights of a run, or those of a bundle, dequantized where they are int8.

    Raises `FileNotFoundError`, and the errors of `bundle_model` for a bundle.
    """
    if _is_bundle(path):
        return bundle_model(_place(path)).state_dict()
    weights: Mapping[str, torch.Tensor] = checkpoint.load(_run(path).best, torch.device("cpu"))["model"]
    return weights


def weights_for_vocabulary(
    weights: Mapping[str, torch.Tensor], earlier: Path, own: SubwordTokenizer
) -> dict[str, torch.Tensor]:
    """Return weights of a model with the vocabulary of the file `earlier` for a model with another vocabulary.

    The rows of the output layer, which are the word vectors too, are kept for tokens that both have. That of another
    token is the mean of the rows of the tokens that spell it in the earlier vocabulary, scaled to their mean length.
    """
    tokenizer = Tokenizer.from_file(str(earlier))
    vocabulary, size = tokenizer.get_vocab(), tokenizer.get_vocab_size()
    words = [own.word(token) for token in range(own.vocab_size)]
    spelled = [
        [vocabulary[word]] if word in vocabulary else [token.id for token in tokenizer.model.tokenize(word)]
        for word in words
    ]

    def changed(table: torch.Tensor) -> torch.Tensor:
        rows = []
        for tokens in spelled:
            parts = table[tokens]
            mean, length = parts.mean(0), parts.flatten(1).norm(dim=1).mean()
            rows.append(mean * (length / mean.norm().clamp_min(torch.finfo(mean.dtype).tiny)))
        return torch.stack(rows)

    changes = {
        name: changed(value)
        for name, value in weights.items()
        if name.startswith("output_layer.") and value.shape[:1] == (size,)
    }
    if (name := "output_layer._extra_state") in weights:
        changes[name] = extra_state_for_classes(weights[name], size, own.vocab_size)
    return {**weights, **changes}


def weights_for_layers(weights: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights for a network with pre-norm and more layers, `own`, that computes the same at first.

    A layer that the initial network does not have starts with its own weights, but adds nothing to the residual: the
    last matrices of its sublayers are zero.
    """
    added = {name: weight for name, weight in own.items() if name not in weights and _IN_LAYER.match(name)}
    zero = {name: torch.zeros_like(weight) for name, weight in added.items() if _LAST.search(name)}
    return {**weights, **added, **zero}


def weights_for_components(
    weights: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return weights for an output layer that has further components than the initial one, with the weights `own`.

    The components start with their own weights, and those of the mixture with equal logits.
    """
    layer = "output_layer."
    added = {name: weight for name, weight in own.items() if name.startswith(layer) and name not in weights}
    if (name := f"{layer}prior") in weights and name in own:
        missing = own[name].shape[1] - weights[name].shape[1]
        added[name] = torch.nn.functional.pad(weights[name], (0, max(0, missing)))
    if (name := f"{layer}_extra_state") in weights:
        added[name] = extra_state_with_components(weights[name], own[name])
    return {**weights, **added}


def initial_sources(path: str) -> list[dict[str, str]]:
    """Return name, homepage and licence of the data that a run or bundle was trained on."""
    if _is_bundle(path):
        return [each.model_dump() for each in read_manifest(_place(path)).provenance.data]
    return RunDirectory(Path(path)).recipe().sources()
