"""LitServe with its batches: https://lightning.ai/docs/litserve/features/batching"""

from itertools import chain, islice

import litserve

from benchmarks.peers.classifier import BATCH, DELAY, Answer, Classifier, Settings

Text = str | list[str]
"""The text of a request, or its texts."""
Found = Answer | list[Answer]
"""The labels of a text, or of each."""


class ClassifierApi(litserve.LitAPI):  # type: ignore[misc]  # not installed where types are checked
    def setup(self, device: str) -> None:
        settings = Settings.from_environment()
        self.classifier = Classifier.warm(settings.bundle, settings.threads, settings.device)

    def decode_request(self, request: dict[str, Text]) -> Text:
        return request["text"]

    def batch(self, inputs: list[Text]) -> list[Text]:
        return inputs

    def predict(self, inputs: list[Text]) -> list[Found]:
        """Compute the texts of all requests as one batch, where none has more than one text."""
        if all(isinstance(each, str) for each in inputs):
            return list[Found](self.classifier.classify([each for each in inputs if isinstance(each, str)]))
        several = [[each] if isinstance(each, str) else each for each in inputs]
        found = iter(self.classifier.classify(list(chain.from_iterable(several))))
        return [list(islice(found, len(texts))) for texts in several]

    def unbatch(self, output: list[Found]) -> list[Found]:
        return output

    def encode_response(self, output: Found) -> Found:
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
