"""Open Inference over gRPC, on a port of its own (clients: `tritonclient.grpc`, KServe)."""
