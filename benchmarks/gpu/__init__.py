"""`python -m benchmarks.gpu`: everything that is to be known about the service on a GPU, in one command."""
