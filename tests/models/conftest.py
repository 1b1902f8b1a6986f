"""The bundled language model, copies of its bundle to spoil, and models that are not worth a network."""

import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import models as package
from models import LanguageModel, Manifest, ModelStore, Translator
from models.backend import Array, Backend
from models.bundle.contract import SpecialTokens
from models.bundle.manifest import upgraded
from models.store import load_bundle
from models.tasks.language_model import LstmNetwork
from models.text.config import TextLimits
from models.text.tokenization import WordTokenizer
from tests.fixtures.bundled import NEXT_WORD_VERSION

BUNDLED = Path(package.__file__).parent / "bundled"
WORDS = ["<unk>", "</s>", "a", "b", "c", "very", "thank", "you"]


@pytest.fixture(scope="session")
def store() -> ModelStore:
    return ModelStore(BUNDLED)


@pytest.fixture(scope="session")
def bundled(store: ModelStore) -> Path:
    return store.path("next-word:4")


@pytest.fixture(scope="session")
def model(store: ModelStore) -> LanguageModel:
    return store.load("next-word:4", threads=1)


@pytest.fixture(scope="session")
def tokenizer(bundled: Path) -> WordTokenizer:
    return WordTokenizer.from_file(bundled / "tokenizer.json")


@pytest.fixture(scope="session")
def tiny_tokenizer() -> WordTokenizer:
    """Eight words, split at white space; `</s>` is among them."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return WordTokenizer(tokenizer)


@pytest.fixture
def bundle(bundled: Path, tmp_path: Path) -> Path:
    """A copy of the bundled model, in directories of the same names."""
    return Path(shutil.copytree(bundled, tmp_path / bundled.parent.name / bundled.name))


@pytest.fixture
def content(bundled: Path) -> dict[str, Any]:
    """The bundled manifest as plain JSON, in the current format."""
    return upgraded(json.loads((bundled / "manifest.json").read_text(encoding="utf-8")))


@pytest.fixture
def rewrite(tmp_path: Path) -> Callable[[Any], Path]:
    """Makes a bundle directory that holds a manifest of this content and nothing else."""
    bundle = tmp_path / "manifest-only" / "next-word" / NEXT_WORD_VERSION
    bundle.mkdir(parents=True)

    def apply(content: Any) -> Path:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (bundle / "manifest.json").write_bytes(data)
        return bundle

    return apply


def with_config(manifest: Manifest, **values: Any) -> Any:
    """A copy of a manifest with other values in the section of its task."""
    return manifest.model_copy(update={"config": manifest.config.model_copy(update=values)})


class RecordingBackend:
    """Passes calls on to another backend and records them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name, self.device = backend.name, backend.device
        self.calls: list[tuple[str, dict[str, Array]]] = []

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        self.calls.append((graph, dict(inputs)))
        return self._backend.run(graph, inputs, outputs)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [inputs["tokens"].shape for _, inputs in self.calls]


class CountingBackend:
    """Scores each position with minus the number of positions read before it, which it keeps in the state."""

    name, device = "onnx", "cpu"

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        assert graph == "score"
        tokens, lengths, hidden = inputs["tokens"], inputs["lengths"], inputs["hidden"]
        before = hidden[0, :, :1] + np.arange(tokens.shape[1], dtype=np.float32)
        results = {
            "log_probabilities": -before,
            "next_hidden": hidden + lengths[None, :, None].astype(np.float32),
            "next_cell": inputs["cell"],
        }
        return [results[name] for name in outputs]


@pytest.fixture
def recorded(model: LanguageModel, tokenizer: WordTokenizer) -> tuple[LanguageModel, RecordingBackend]:
    backend = RecordingBackend(model.backend)
    return LanguageModel(model.manifest, tokenizer, backend), backend


@pytest.fixture(scope="session")
def short_model(model: LanguageModel, tokenizer: WordTokenizer) -> LanguageModel:
    """The bundled model, limited to texts of 8 tokens."""
    return LanguageModel(with_config(model.manifest, limits=TextLimits(max_tokens=8)), tokenizer, model.backend)


@pytest.fixture
def counting(model: LanguageModel, tiny_tokenizer: WordTokenizer) -> tuple[LanguageModel, RecordingBackend]:
    """A model of eight words whose scores count positions: 0, -1, -2, ..."""
    manifest = with_config(
        model.manifest,
        vocab_size=len(WORDS),
        special_tokens=SpecialTokens(unknown=0, end=1),
        network=LstmNetwork(kind="lstm", hidden_size=2, num_layers=1),
    )
    backend = RecordingBackend(CountingBackend())
    return LanguageModel(manifest, tiny_tokenizer, backend), backend


@pytest.fixture(scope="session")
def babblers(babbler_bundle: Path) -> dict[str, Translator]:
    """The translator of `babbler_bundle` on each backend."""
    with warnings.catch_warnings():
        # torch deprecates TorchScript; it stays a backend because users asked for it.
        warnings.filterwarnings("ignore", "`torch.jit.load` is ", DeprecationWarning)
        return {name: load_bundle(babbler_bundle, backend=name, threads=1) for name in ("onnx", "torchscript")}
