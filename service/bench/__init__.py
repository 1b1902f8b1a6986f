"""`softserve bench`: measure a model in process, or run a load test of a server."""
