"""The files of a run directory."""

from pathlib import Path

__all__ = ["RunPaths"]


class RunPaths:
    """`runs/<name>/`: the files that checkpoints and tasks are kept in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last, self.best = path / "last.pt", path / "best.pt"
        self.initial = path / "initial.pt"
        """Weights of an earlier version of the data, where the run continued with new data."""
        self.best_weights = path / "best.safetensors"
        self.tokenizer = path / "tokenizer.json"
        """Tokenizer of a task that reads texts."""
        self.baselines = path / "baselines.json"
        """What simple methods reach on the same data."""
        self.labels = path / "labels.txt"
        """Classes of a classifier, a label a line."""
        self.encoder = path / "encoder.json"
        """Sizes of a text encoder."""
        self.causal = path / "causal.json"
        """Settings and special tokens of a pretrained causal language model."""
