"""The batching engine: queues, batching policy, workers and model registry."""
