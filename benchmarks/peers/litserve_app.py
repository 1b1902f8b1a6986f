"""LitServe with its batches: https://lightning.ai/docs/litserve/features/batching"""

import litserve

from benchmarks.peers.classifier import BATCH, DELAY, Answer, Classifier, Settings


class ClassifierApi(litserve.LitAPI):  # type: ignore[misc]  # not installed where types are checked
    def setup(self, device: str) -> None:
        settings = Settings.from_environment()
        self.classifier = Classifier.warm(settings.bundle, settings.threads)

    def decode_request(self, request: dict[str, str]) -> str:
        return request["text"]

    def batch(self, inputs: list[str]) -> list[str]:
        return inputs

    def predict(self, texts: list[str]) -> list[Answer]:
        return self.classifier.classify(texts)

    def unbatch(self, output: list[Answer]) -> list[Answer]:
        return output

    def encode_response(self, output: Answer) -> Answer:
        return output


if __name__ == "__main__":
    settings = Settings.from_environment()
    api = ClassifierApi(max_batch_size=BATCH, batch_timeout=DELAY, api_path="/classify")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=settings.processes)
    server.run(
        host="127.0.0.1",
        port=settings.port,
        num_api_servers=1,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )
