"""`python -m benchmarks.load URL`: the load generator, which runs a load test of a server."""
