# One command per task. Each makes the checkout ready first, which takes no time when it is.

# The first Python on PATH that is new enough; `make PYTHON=...` names another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv/bin
SEEDS ?= 20
TYPED := crds/meshwright_api operator/src/meshwright operator/src/meshwright_agent devcluster/src/devcluster trainer-image/src/meshwright_trainer demo examples/pytorch_text examples/own_model

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-system container-nodes test-fast lint generate parity bench-trainer bench-operator mutants chaos constraints clean

help: ## show this list
	@echo "Meshwright: large-model training on Kubernetes. Tasks:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

setup: ## make the checkout ready: .venv, and a Kubernetes built once into the user's cache
	@$(or $(PYTHON),$(error Meshwright needs Python 3.11 or newer and there is none on PATH; name one: make PYTHON=/path/to/python3)) scripts/bootstrap

demo: setup ## train on a real control plane here, kill a worker, see it go on; KEEP=1 leaves it up, VERIFY=1 compares bits
	@KEEP=$(KEEP) VERIFY=$(VERIFY) EXAMPLE=$(EXAMPLE) $(VENV)/python -m demo

test: setup container-nodes ## all tests; as root, those on real kubelets too (CONTAINER_NODES=no leaves them out)
	$(VENV)/python -m pytest --durations=15

test-system: setup container-nodes ## the tests on real kubelets alone
	$(VENV)/python -m pytest -m kubelets --durations=15

container-nodes: setup ## as root: Debian packages, programs and images of the real kubelets that tests run on
	@CONTAINER_NODES=$(CONTAINER_NODES) $(VENV)/python -m devcluster.containers.prepare

test-fast: setup ## the tests to run while you work
	$(VENV)/python -m pytest -m "not slow and not cluster" --durations=5

lint: setup ## format, style, types, layers
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	MYPYPATH=examples/pytorch_text $(VENV)/mypy $(TYPED)
	MYPYPATH=scripts/bootstrap $(VENV)/mypy scripts/bootstrap
	$(VENV)/lint-imports

generate: setup ## write again what is generated from sources in this repository
	$(VENV)/python -m meshwright_api generate
	$(VENV)/python -m demo.manifest
	$(VENV)/python -m benchmarks.placement_pictures

parity: setup ## every way of training against one process in float64; CELL=..., or FUZZ=n SEED=s
	OMP_NUM_THREADS=1 CELL=$(CELL) FUZZ=$(FUZZ) SEED=$(SEED) $(VENV)/python -m tests.trainer.parity

bench-trainer: setup ## step time against torch by hand, state bytes, canonical order, checkpoints; a few minutes
	OMP_NUM_THREADS=1 $(VENV)/python -m benchmarks.trainer_step_time
	OMP_NUM_THREADS=1 $(VENV)/python -m benchmarks.trainer_checkpoint

bench-operator: setup ## the operator at scale beside the bare API server and the Job controller; about an hour, on a quiet machine
	$(VENV)/python -m benchmarks.scale

mutants: setup ## break each guard on purpose and see a test go red
	$(VENV)/python -m tests.mutants

chaos: setup ## crash sweep, pairs of leaders and SEEDS=n random histories of faults
	$(VENV)/python -m tests.chaos all --seeds $(SEEDS)

constraints: setup ## choose the newest versions of all packages and pin them
	$(VENV)/uv pip compile requirements-dev.txt --quiet --upgrade --universal --python-version 3.11 --no-annotate \
		--no-emit-package meshwright-api --no-emit-package meshwright-operator --no-emit-package meshwright-devcluster --no-emit-package meshwright-trainer \
		--custom-compile-command "make constraints" --output-file constraints.txt

clean: ## remove what was made in this checkout; the user's caches stay, so the next setup is quick
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
