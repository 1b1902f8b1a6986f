"""The batching engine: queues, batching policy, workers and the served models."""
