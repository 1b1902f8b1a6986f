"""The HTTP endpoints, one protocol a file."""
