"""BentoML with its adaptive batches: https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html"""

import bentoml

from benchmarks.peers.classifier import BATCH, Answer, Classifier, Settings

_SETTINGS = Settings.from_environment()


@bentoml.service(
    workers=_SETTINGS.processes,
    traffic={"timeout": 30},
    logging={"access": {"enabled": False}},
    metrics={"enabled": False},
)
class ClassifierService:
    def __init__(self) -> None:
        self.classifier = Classifier.warm(_SETTINGS.bundle, _SETTINGS.threads)

    # It learns by itself how long to wait; past max_latency_ms it refuses, so that is far above what answers take.
    @bentoml.api(batchable=True, batch_dim=0, max_batch_size=BATCH, max_latency_ms=5000)  # type: ignore[untyped-decorator]
    def classify(self, texts: list[str]) -> list[Answer]:
        return self.classifier.classify(texts)
