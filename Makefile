# Two commands for a newcomer, `make serve` and `make test`; each installs what it needs into .venv first.
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
DATA ?= data

BIN := .venv/bin
PIP := $(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt

.PHONY: serve test test-gpu check bench clean

serve: .venv/.serve  ## Serve the bundled models on HOST:PORT.
	@exec $(BIN)/softserve serve --host $(HOST) --port $(PORT)

test: .venv/.test  ## Run every test.
	$(BIN)/pytest

test-gpu: .venv-gpu/.test  ## Run the tests of devices on an NVIDIA GPU; they fail where there is none.
	SOFTSERVE_REQUIRE_GPU=1 .venv-gpu/bin/pytest tests/models/test_devices.py

check: .venv/.test  ## Lint, formatting and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.test  ## Measure next-word latency, in process and over HTTP.
	$(BIN)/python -m benchmarks.next_word

clean:  ## Remove the virtual environment and caches.
	rm -rf .venv .venv-gpu .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.serve: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the service into .venv, once ..."
	$(PIP) --editable .
	@touch $@

.venv/.test: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the tests' needs into .venv, once; torch is the largest of them ..."
	$(PIP) --editable '.[test]'
	@touch $@ .venv/.serve

# onnxruntime and onnxruntime-gpu are one module: where one is, the other must not be.
.venv-gpu/.test: pyproject.toml constraints.txt
	@echo "Installing the tests' needs and onnxruntime-gpu with CUDA into .venv-gpu, once; some gigabytes ..."
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[test]'
	.venv-gpu/bin/pip uninstall --quiet --yes onnxruntime
	.venv-gpu/bin/pip install --disable-pip-version-check --quiet --constraint constraints.txt 'onnxruntime-gpu[cuda,cudnn]'
	@touch $@
