# Everything runs in .venv, made from pyproject.toml with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint statistics benchmark clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv and install the project into it

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,demo]'
	@touch $@

demo: $(READY) ## show what the privacy core does, in a few seconds
	$(BIN)/python examples/plain_arrays.py

test: lint ## lint, then the default tests
	$(BIN)/python -m pytest

lint: $(READY) ## style, types, import rules, lengths
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/architecture

statistics: $(READY) ## long statistical tests
	$(BIN)/python -m pytest -m statistics

benchmark: $(READY) ## measure the cost of a release
	$(BIN)/python benchmarks/release_cost.py

clean: ## remove the environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
