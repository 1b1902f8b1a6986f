"""Model directories in Hugging Face's layout: local ones, or downloaded from the Hub. No code of them is run."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from models.reading import sha256_of
from training.importing.errors import SAVED_AGAIN, ImportRefused
from training.networks.weight_files import read_weights

__all__ = ["CONFIG", "MODULES", "SourceDirectory", "open_source"]

CONFIG, WEIGHTS, INDEX, CARD = "config.json", "model.safetensors", "model.safetensors.index.json", "README.md"

MODULES = "modules.json"
"""The file by which a directory of sentence-transformers names its modules."""

_GRAPHS, _TOKENIZER = "onnx", "tokenizer.json"
"""The directory of ONNX files in that of a model, whose other files are not in it."""

_HUB = re.compile(
    r"hf:(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?::(?P<graph>(?:[\w-][\w.-]*/)*[\w-][\w.-]*\.onnx))?"
)
_DOWNLOADED = (
    "config.json",
    "generation_config.json",
    "README.md",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "target_vocab.json",
    "*.spm",
    "spm.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "*/config.json",
    "config_setfit.json",
    "model_head.pkl",
)
"""Patterns of the files that are downloaded, but those of weights."""
_SAFETENSORS = ("*.safetensors", "model.safetensors.index.json", "*/model.safetensors")
_TORCH_WEIGHTS, _TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
"""Weights of older directories, of which tensors alone are read."""
_TORCH_WEIGHT_FILES = (_TORCH_WEIGHTS, _TORCH_INDEX)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
"""Weights in formats that are not read."""
_COMMON = re.compile(
    r"(model|onnx|output|outputs|export|snapshots|best|final)([._-](quantized|optimized|u?int8|fp16|q4\w*|o[1-4]))*"
    r"|checkpoint(-\d+)?|[0-9a-f]{40}"
)
"""Names of files and directories that say nothing of the model in them."""
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*\n", re.DOTALL)
_LARGEST_TEXT = 1 << 26
"""Bytes of the largest JSON or Markdown file that is read."""


@dataclass(frozen=True)
class SourceDirectory:
    """A model directory, which keeps the checksums of the files that were read."""

    path: Path
    name: str
    """The name of the directory, or owner and name on the Hub."""
    revision: str | None = None
    """Commit on the Hub."""
    onnx: str | None = None
    """The ONNX file to import, where it is one."""
    _read: dict[str, str] = field(default_factory=dict, compare=False)

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return (self.path / name).is_file()

    def file(self, name: str) -> Path:
        """Return the path of a file that is going to be read; raises `ImportRefused` where there is none."""
        path = self.path / name
        if not path.is_file():
            raise ImportRefused(f"{self.name} has no {name}; {SAVED_AGAIN}")
        if name not in self._read:
            self._read[name] = sha256_of(path)
        return path

    def checksums(self) -> dict[str, str]:
        """Return the sha256 of every file that was read so far."""
        return dict(sorted(self._read.items()))

    def json(self, name: str, *, optional: bool = False) -> dict[str, Any]:
        """Return the object in a JSON file, an empty one where it may be missing and is; raises `ImportRefused`."""
        if optional and not self.has(name):
            return {}
        content = self._parsed(name)
        if not isinstance(content, dict):
            raise ImportRefused(f"{name} holds no JSON object; {SAVED_AGAIN}")
        return content

    def json_list(self, name: str) -> list[Any]:
        """Return the list in a JSON file; raises `ImportRefused`."""
        content = self._parsed(name)
        if not isinstance(content, list):
            raise ImportRefused(f"{name} holds no JSON list; {SAVED_AGAIN}")
        return content

    def _parsed(self, name: str) -> object:
        path = self.file(name)
        if path.stat().st_size > _LARGEST_TEXT:
            raise ImportRefused(f"{name} has more than {_LARGEST_TEXT >> 20} MiB; {SAVED_AGAIN}")
        try:
            content: object = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ImportRefused(f"{name} is not JSON: {error}; {SAVED_AGAIN}") from error
        return content

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The object in `config.json`."""
        return self.json(CONFIG)

    @cached_property
    def architecture(self) -> str:
        """The class that `config.json` names; raises `ImportRefused` where it does not name one."""
        names = self.config.get("architectures")
        if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
            raise ImportRefused(
                f"architectures in {CONFIG} must name one class, not {names!r}; state the model's class there"
            )
        return names[0]

    def weights(self) -> dict[str, Tensor]:
        """Return all tensors of the safetensors files, or else of `pytorch_model.bin`, in which nothing is run.

        Raises `ImportRefused` for missing and damaged files.
        """
        tensors: dict[str, Tensor] = {}
        for name in self._weight_files():
            try:
                tensors |= read_weights(self.file(name))
            except (OSError, ValueError) as error:
                reason = str(error).replace(f"{self.path}/", "")
                raise ImportRefused(f"{reason}; {SAVED_AGAIN}") from error
        return tensors

    def _weight_files(self) -> list[str]:
        for file, index in ((WEIGHTS, INDEX), (_TORCH_WEIGHTS, _TORCH_INDEX)):
            if self.has(file):
                return [file]
            if self.has(index):
                parts = self.json(index).get("weight_map")
                ending = Path(file).suffix
                if not isinstance(parts, dict) or not all(_is_plain(name, ending) for name in parts.values()):
                    raise ImportRefused(f"weight_map in {index} does not name files of the directory; {SAVED_AGAIN}")
                return sorted(set(parts.values()))
        pickles = sorted(file.name for file in self.path.iterdir() if file.suffix in _PICKLES)
        if pickles:
            raise ImportRefused(
                f"{self.name} has its weights in {', '.join(pickles)} only, which may run code when it is read; "
                f"convert them to {WEIGHTS} first (in transformers: model.save_pretrained)"
            )
        raise ImportRefused(f"{self.name} has no {WEIGHTS}; {SAVED_AGAIN}")

    def licence(self) -> str | None:
        """Return the licence that the model card states in its front matter."""
        if not self.has(CARD) or (self.path / CARD).stat().st_size > _LARGEST_TEXT:
            return None
        found = _FRONT_MATTER.match((self.path / CARD).read_text(encoding="utf-8", errors="replace"))
        try:
            stated = yaml.safe_load(found[1]) if found else None
        except (yaml.YAMLError, RecursionError):
            return None
        licence = stated.get("license") if isinstance(stated, dict) else None
        if not isinstance(licence, str) or not licence.isprintable():
            return None
        self.file(CARD)
        return licence

    def default_name(self) -> str:
        """Return a name of a bundle: the last part of the name, that `config.json` states, or of a parent directory.

        Names that many models have, such as `model.onnx`, `checkpoint-500` and the hashes of a cache, are passed over.
        """
        stated = self.json(CONFIG, optional=True).get("_name_or_path")
        parts = [Path(self.onnx).stem] if self.onnx else []
        parts += [self.name.rpartition("/")[2].removesuffix(".onnx")]
        parts += [self.path.name] if self.onnx else []
        parts += [Path(stated).name] if isinstance(stated, str) else []
        parts += [parent.name for parent in list(self.path.parents)[:2]]
        base = next((part for part in parts if part and not _COMMON.fullmatch(part.lower())), parts[0])
        return re.sub(r"[^a-z0-9._-]+", "-", base.lower()).strip("-._")[:64] or "imported"


def _is_plain(name: object, ending: str) -> bool:
    return isinstance(name, str) and re.fullmatch(rf"[\w-][\w.-]*{re.escape(ending)}", name) is not None


def open_source(where: str) -> SourceDirectory:
    """Return a model directory: `hf:owner/name@revision`, a local directory, or an ONNX file in one of them.

    A directory without safetensors that holds one ONNX file, itself or in its directory `onnx`, stands for that file.
    The file of a model of the Hub is named after a colon: `hf:owner/name:onnx/model.onnx`. Raises `ImportRefused`.
    """
    if where.startswith("hf:"):
        return _downloaded(where)
    path = Path(where).resolve()
    if path.is_file() and path.suffix == ".onnx":
        return _of_graph(path)
    if not path.is_dir():
        raise ImportRefused(f"{where} is neither a directory, nor an ONNX file, nor hf:owner/name@revision[:FILE.onnx]")
    graphs = sorted(file.name for file in path.glob("*.onnx"))
    if not graphs and not (path / _TORCH_WEIGHTS).exists():
        graphs = sorted(f"{_GRAPHS}/{file.name}" for file in path.glob(f"{_GRAPHS}/*.onnx"))
    if graphs and not any(path.glob("*.safetensors")):
        if len(graphs) > 1:
            raise ImportRefused(f"{where} has several ONNX files; name the one to import: {', '.join(graphs)}")
        return SourceDirectory(path, path.name, onnx=graphs[0])
    return SourceDirectory(path, path.name)


def _of_graph(path: Path) -> SourceDirectory:
    """Return the directory of an ONNX file: the one above `onnx/` where the tokenizer is there."""
    directory, above = path.parent, path.parent.parent
    if directory.name == _GRAPHS and not (directory / _TOKENIZER).is_file() and (above / _TOKENIZER).is_file():
        return SourceDirectory(above, path.name, onnx=f"{_GRAPHS}/{path.name}")
    return SourceDirectory(directory, path.name, onnx=path.name)


def _downloaded(where: str) -> SourceDirectory:
    """Download a model of the Hub into the cache of huggingface_hub, with safetensors weights where it has them."""
    found = _HUB.fullmatch(where)
    if found is None:
        raise ImportRefused(
            f"{where!r} is not of the form hf:owner/name, hf:owner/name@revision or hf:owner/name:FILE.onnx"
        )
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportRefused('downloads need huggingface_hub: pip install "softserve[import]"') from error
    name = found["name"]
    try:
        listed = huggingface_hub.HfApi().model_info(name, revision=found["revision"], files_metadata=True)
        files = [file.rfilename for file in listed.siblings or []]
        graph = found["graph"] or _only_graph(where, files)
        path = Path(huggingface_hub.snapshot_download(name, revision=listed.sha, allow_patterns=_wanted(files, graph)))
    except ImportRefused:
        raise
    except Exception as error:  # its errors, and those of its HTTP client, share no public base
        raise ImportRefused(
            f"{where} cannot be downloaded: {error}; import a directory with its files instead"
        ) from error
    for file in listed.siblings or []:
        if file.lfs is not None and (path / file.rfilename).is_file():
            _check_download(name, path / file.rfilename, file.lfs.sha256)
    if graph is None:
        return SourceDirectory(path, name, listed.sha)
    if not (path / graph).is_file():
        raise ImportRefused(f"{name} has no {graph}; its ONNX files: {', '.join(_graphs(files)) or 'none'}")
    local = _of_graph(path / graph)
    return SourceDirectory(local.path, name, listed.sha, onnx=local.onnx)


def _only_graph(where: str, files: Sequence[str]) -> str | None:
    """Return the ONNX file of a model without other weights; raises `ImportRefused` where it has several."""
    if any("/" not in file and (file.endswith(".safetensors") or file in _TORCH_WEIGHT_FILES) for file in files):
        return None
    graphs = _graphs(files)
    if len(graphs) > 1:
        named = ", ".join(f"{where}:{graph}" for graph in graphs)
        raise ImportRefused(f"{where} has several ONNX files; name the one to import: {named}")
    return graphs[0] if graphs else None


def _graphs(files: Sequence[str]) -> list[str]:
    return [file for file in files if re.fullmatch(rf"({_GRAPHS}/)?[^/]+\.onnx", file)]


def _wanted(files: Sequence[str], graph: str | None) -> list[str]:
    """Return patterns of the files to download: an ONNX file with its data, safetensors, or else PyTorch's weights."""
    if graph is not None:
        return [*_DOWNLOADED, f"{graph.rpartition('/')[0] or '.'}/*.json", graph, f"{graph}_data*", f"{graph}.data"]
    safe = any(file.endswith(".safetensors") and "/" not in file for file in files)
    return [*_DOWNLOADED, *_SAFETENSORS, *([] if safe else ["pytorch_model*.bin", _TORCH_INDEX])]


def _check_download(name: str, file: Path, expected: str) -> None:
    if sha256_of(file) != expected:
        raise ImportRefused(
            f"{file.name} of {name} is not the file that the Hub describes (checksum); download it again"
        )
