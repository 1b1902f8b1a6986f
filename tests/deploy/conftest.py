collect_ignore = ["ray"]  # `make test-ray`
