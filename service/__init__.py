"""The HTTP service: models behind a batching engine. Never imports `training`, never needs torch for ONNX bundles."""
