"""The classifier that every peer serves, from the files of a bundle: texts in, their most probable labels out.

Peers run in environments of their own: this module needs numpy, onnxruntime and tokenizers, nothing of the project.

Shapes: `B` texts, `k` labels.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

__all__ = ["BATCH", "DELAY", "TOP_K", "Answer", "Classifier", "Settings"]

BATCH = 32
"""Largest batch of a peer with dynamic batching, the same as the service's default."""
DELAY = 0.005
"""Longest time that a batch waits for more texts, in seconds, for peers with such a setting."""
TOP_K = 5
"""Labels per response, the same as the service's default."""

Answer = dict[str, list[dict[str, str | float]]]
"""`{"labels": [{"label": "balance", "probability": 0.9}, ...]}`, most probable first."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a peer, passed by environment variables because servers import applications in any process."""

    bundle: Path
    port: int
    processes: int
    """Number of processes that run the model."""
    threads: int
    """Threads of onnxruntime in each process."""
    device: str = "cpu"
    """`cuda` for a GPU."""

    def environment(self) -> dict[str, str]:
        return {f"PEER_{name.upper()}": str(value) for name, value in asdict(self).items()}

    @classmethod
    def from_environment(cls) -> Self:
        port, processes, threads = (int(os.environ[f"PEER_{name}"]) for name in ("PORT", "PROCESSES", "THREADS"))
        return cls(Path(os.environ["PEER_BUNDLE"]), port, processes, threads, os.environ["PEER_DEVICE"])


class Classifier:
    """An onnxruntime session and a tokenizer. Safe to call from several threads."""

    def __init__(self, bundle: Path, threads: int, device: str = "cpu") -> None:
        """Load the graph for a device: `cpu`, `cuda`, `cuda:1` and so on."""
        manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
        config = manifest.get("config", manifest)  # format 1 has these fields at the top
        self._labels = (bundle / config["classes"]["file"]).read_text(encoding="utf-8").splitlines()
        self._tokenizer = Tokenizer.from_file(str(bundle / config["tokenizer"]))
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.enable_truncation(config["limits"]["max_tokens"])
        self._tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        # Idle threads must not spin on the cores that answer HTTP.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        graph = manifest["graphs"]["classify"]
        file, providers = graph["onnx"], list[Any](["CPUExecutionProvider"])
        if device != "cpu":
            file = graph.get("devices", {}).get("cuda", file)
            options.add_session_config_entry("session.disable_quant_qdq", "1")  # as the service loads such a graph
            number = int(device.partition(":")[2] or 0)
            providers = [("CUDAExecutionProvider", {"device_id": number})]
        self._session = onnxruntime.InferenceSession(str(bundle / file), options, providers=providers)
        if device != "cpu" and "CUDAExecutionProvider" not in self._session.get_providers():
            raise RuntimeError("onnxruntime did not load its CUDA provider")
        self._segments = any(each.name == "second" for each in self._session.get_inputs())

    @classmethod
    def warm(cls, bundle: Path, threads: int, device: str = "cpu") -> Self:
        """Return a classifier after a warm-up with small and large batches."""
        classifier = cls(bundle, threads, device)
        for count in (1, 8, BATCH):
            classifier.classify(["is my flight to rome on time"] * count)
        return classifier

    def classify(self, texts: Sequence[str]) -> list[Answer]:
        """Return `[B]` results of `k` labels, computed as one batch that is padded to its longest text."""
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        inputs = {
            "tokens": np.array([encoding.ids for encoding in encodings], np.int64),
            "lengths": np.array([sum(encoding.attention_mask) for encoding in encodings], np.int64),
            "k": np.array(min(TOP_K, len(self._labels)), np.int64),
        }
        if self._segments:  # the second text of each begins behind its end: there is none
            inputs["second"] = inputs["lengths"]
        values, classes = self._session.run(["log_probabilities", "classes"], inputs)
        return [
            {
                "labels": [
                    {"label": self._labels[number], "probability": value}
                    for number, value in zip(row, probabilities, strict=True)
                ]
            }
            for row, probabilities in zip(classes.tolist(), np.exp(values).tolist(), strict=True)
        ]
