"""The benchmarks that produce the numbers in the documentation and the model cards."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reports its use otherwise, from its import on
