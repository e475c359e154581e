# Everything a person or a CI job runs. A fresh machine needs Python 3.11 or newer, git and make.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOCK   := requirements/dev.lock
PIP    := $(BIN)/python -m pip install --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all rungs control-plane playground cluster-up cluster-down cluster-demo cluster-test parts frameworks framework-logs bench-loop bench-scale soak lint crds docs golden lock image image-audit clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv with the locked dependencies and this package

# The lock holds hashes, so what is installed is what was tested. A second call finds the stamp and is instant.
$(STAMP): $(LOCK) pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "rekindle: $(PYTHON) is not installed. Install Python 3.11 or newer, or say which one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "rekindle: $$($(PYTHON) --version) is too old, 3.11 or newer is needed. Say which one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "rekindle: $(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@# Half a .venv, left by an interrupted call, is made anew.
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing the locked packages into $(VENV): about a minute."
	@{ $(PIP) --progress-bar off --require-hashes -r $(LOCK) && touch $@.begun; } | sed -un 's/^Collecting \([^ ]*\).*/  \1/p; s/^Installing collected.*/  Installing them./p'
	@rm $@.begun 2>/dev/null || { echo "rekindle: pip could not install $(LOCK); it says why above" >&2; exit 1; }
	$(PIP) --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## Show a training job that survives a lost GPU and a crash, on this machine (no GPU, no cluster)
	$(BIN)/rekindle demo

# Each core takes the tests of one file after the other, the files with the slowest tests first (tests/chaos).
PARALLEL ?= -n auto --dist loadfile --no-loadscope-reorder --durations 10

# Much of each test is waiting, so two control planes run at a time.
RUNGS ?= -n 2 --dist loadfile --no-loadscope-reorder --durations 20

test: $(STAMP) ## Run all tests that need nothing but this machine
	$(BIN)/python -m pytest $(PARALLEL)

test-all: lint test rungs frameworks cluster-test ## Run all tests. The last part, on real nodes, needs root

rungs: $(STAMP) ## Run the tests on a real control plane. The first run builds it for minutes (needs Go 1.26 and openssl)
	$(BIN)/python -m tests.control_plane.build
	REKINDLE_CONTROL_PLANE=1 $(BIN)/python -m pytest $(RUNGS) -m control_plane tests/control_plane tests/chaos/cluster tests/chart

control-plane: $(STAMP) ## Start a real Kubernetes control plane, and keep it until Ctrl-C (needs Go 1.26 and openssl)
	$(BIN)/python -m tests.control_plane.build
	$(BIN)/python -m tests.control_plane.up

playground: $(STAMP) ## Start a control plane with GPU nodes, Rekindle and a training job: docs/playground.md
	$(BIN)/python -m tests.control_plane.build
	$(BIN)/python -m tests.control_plane.up --rekindle

cluster-up: $(STAMP) ## Start three real nodes on this machine, until make cluster-down (as root; tests.cluster.build lists missing packages)
	$(BIN)/python -m tests.cluster.build
	$(BIN)/python -m tests.cluster.up --detach

cluster-down: $(STAMP) ## End the nodes of make cluster-up
	$(BIN)/python -m tests.cluster.down

cluster-demo: $(STAMP) ## Show a PyTorch gang that survives a lost GPU on three real nodes, from helm install to helm uninstall (as root)
	$(BIN)/python -m tests.cluster.build
	$(BIN)/python -m chaos.rigs.torch_training.environment
	$(BIN)/python -m tests.cluster.demo

cluster-test: $(STAMP) ## Run the tests on three real nodes of this machine (as root)
	$(BIN)/python -m tests.cluster.build
	$(BIN)/python -m chaos.rigs.torch_training.environment
	$(BIN)/python -m tests.cluster.product
	REKINDLE_REAL_NODES=1 $(BIN)/python -m pytest -s --durations 20 -m real_nodes tests/cluster

parts: $(STAMP) ## Build the parts that test-all needs beside Python: Kubernetes, PyTorch, PaddlePaddle (once, as root)
	$(BIN)/python -m tests.cluster.build
	$(BIN)/python -m chaos.rigs.torch_training.environment
	$(BIN)/python -m chaos.rigs.paddle_training.environment
	$(BIN)/python -m tests.cluster.product

frameworks: $(STAMP) ## Run jobs of real PyTorch and PaddlePaddle under faults (downloads 2.7 GB the first time)
	$(BIN)/python -m chaos.rigs.torch_training.environment
	$(BIN)/python -m chaos.rigs.paddle_training.environment
	REKINDLE_TORCH=1 REKINDLE_PADDLE=1 \
		$(BIN)/python -m pytest -s tests/chaos/rigs/test_torchrun.py tests/chaos/rigs/test_paddle_for_real.py \
		tests/detectors/validation/test_torch_checks.py

framework-logs: $(STAMP) ## Compare the agent's steps with runs of real training frameworks (after make frameworks; downloads 1 GB once)
	$(BIN)/python -m chaos.rigs.framework_logs.environment
	REKINDLE_FRAMEWORK_LOGS=1 $(BIN)/python -m pytest -s tests/chaos/rigs/test_framework_logs.py

bench-loop: $(STAMP) ## Measure the time from a fault until the gang runs again, on a real control plane: about 10 minutes
	$(BIN)/python -m tests.control_plane.build
	$(BIN)/python -m tests.control_plane.up --training -- $(BIN)/rekindle bench loop $(BENCH)

bench-scale: $(STAMP) ## Measure what the size of a cluster costs the controller, on etcd and an API server (BENCH="--sizes 100,1000")
	$(BIN)/python -m tests.control_plane.build
	$(BIN)/python -m tests.control_plane.up --bare -- $(BIN)/rekindle bench scale $(BENCH)

soak: $(STAMP) ## Run the long tests: simulations, demos, kills, torchrun faults, a control plane, half an hour of real nodes (as root)
	$(BIN)/rekindle chaos simulate --seeds 0..4999 --jobs 2
	$(BIN)/rekindle demo --repeat 20
	REKINDLE_KILLS=3 $(BIN)/python -m pytest -s tests/chaos/scenarios/test_kills.py
	$(BIN)/python -m chaos.rigs.torch_training.environment
	$(BIN)/python -m chaos.rigs.torch_soak --faults 50
	$(MAKE) framework-logs
	$(BIN)/python -m tests.control_plane.build
	REKINDLE_CONTROL_PLANE=1 REKINDLE_RECOVERIES=5 REKINDLE_HANDOVERS=16 REKINDLE_FAILOVER=1 REKINDLE_IDLE_S=120 \
		$(BIN)/python -m pytest -s -m control_plane tests/control_plane/test_in_a_row.py \
		tests/control_plane/test_two_controllers.py tests/control_plane/test_idle.py
	REKINDLE_CONTROL_PLANE=1 REKINDLE_OUTAGE_S=60 $(BIN)/python -m pytest -s -k killed tests/control_plane/test_outages.py
	REKINDLE_CONTROL_PLANE=1 REKINDLE_OUTAGE_S=300 $(BIN)/python -m pytest -s -k cut tests/control_plane/test_outages.py
	REKINDLE_CONTROL_PLANE=1 REKINDLE_MIXED_S=1800 $(BIN)/python -m pytest -s tests/control_plane/test_mixed_faults.py
	$(BIN)/python -m tests.cluster.build
	$(BIN)/python -m tests.cluster.product
	REKINDLE_REAL_NODES=1 REKINDLE_DEEPSPEED=1 REKINDLE_HEALTHY_S=1800 \
		$(BIN)/python -m pytest -s -m real_nodes tests/cluster/installed/test_left_alone.py

lint: $(STAMP) ## Run ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

crds: $(STAMP) ## Write the chart's CRDs from the structs
	$(BIN)/rekindle crds --output-dir charts/rekindle/files/crds

docs: $(STAMP) ## Write the generated pages of docs/reference
	$(BIN)/python -m tools.docs.generate

golden: $(STAMP) ## Write the texts that users see into tests/golden/files, after an intended change
	$(BIN)/python -m tests.golden

# A lock made by a newer Python would lack what only the oldest one needs.
lock: $(STAMP) ## Lock the newest allowed versions in requirements/dev.lock (with Python 3.11)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "rekindle: $(VENV) holds $$($(BIN)/python --version); make the lock with 3.11: make clean lock PYTHON=python3.11" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-tools==7.6.2
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras \
		--allow-unsafe --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--extra dev --all-build-deps --output-file $(LOCK) pyproject.toml

# A tag may name another base tomorrow, and a digest never does. BUILDER: docker or podman.
BUILDER ?= docker
TAG     ?= rekindle:dev
SBOM    ?= dist/sbom.cdx.json

image: ## Build the image of a release: make image BASE=python:3.11-slim@sha256:... TAG=REGISTRY/rekindle:VERSION
	@case "$(BASE)" in *@sha256:*) ;; *) test "$(UNPINNED)" = 1 || { echo "rekindle: the base $${BASE:-python:3.11-slim} has no digest, so nobody can tell later what was built. Look it up ($(BUILDER) pull python:3.11-slim prints it) and give it: make image BASE=python:3.11-slim@sha256:... For an image that is no release: UNPINNED=1" >&2; exit 1; } ;; esac
	$(BUILDER) build $(BUILD_ARGS) $(if $(BASE),--build-arg BASE=$(BASE)) --tag $(TAG) .
	@mkdir -p $(dir $(SBOM))
	container=$$($(BUILDER) create $(TAG)) && $(BUILDER) cp $$container:/usr/share/doc/rekindle/sbom.cdx.json $(SBOM) && $(BUILDER) rm $$container

image-audit: ## Check the packages of the image against the known vulnerabilities of PyPI and Debian (on Debian or Ubuntu)
	$(PYTHON) image/audit.py $(SBOM)

clean: ## Remove what the other targets made
	rm -rf $(VENV) .demo dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find detectors recover chaos tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
