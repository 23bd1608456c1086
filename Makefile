# Everything runs in .venv, made from pyproject.toml with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# each worker has one thread: two workers with two threads each would wait for each other
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint slow statistics embedded deployment coverage results benchmark clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv and install the project into it

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,demo,data,hf,flower,dpsgd]'
	@touch $@

demo: $(READY) ## compare local, non-private, IGPP, VPDR and strict on four digit domains; ends with a report
	$(BIN)/vpdr run quickstart

test: lint ## lint, then the default tests (at most 4 minutes on 2 cores)
	$(PYTEST)

lint: $(READY) ## style, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(READY) ## the slower tests, which continuous integration runs too (some minutes)
	$(PYTEST) -m slow

statistics: $(READY) ## long statistical tests (some minutes)
	$(PYTEST) -m statistics

embedded: $(READY) ## every framework on real digits with the real backbone (some minutes)
	$(PYTEST) -m embedded

deployment: $(READY) ## SuperLink and SuperNodes as processes with TLS and node keys (some minutes)
	$(BIN)/python -m pytest -m deployment

coverage: $(READY) ## default and slow tests with the lines that they miss
	$(PYTEST) -m 'not statistics and not embedded and not deployment' --cov=vpdr --cov-report=term:skip-covered

results: $(READY) ## write RESULTS.md from the summaries in results/
	$(BIN)/vpdr results results --out RESULTS.md

benchmark: $(READY) ## cost of a release, speed of a run, growth with clients
	$(BIN)/python benchmarks/release_cost.py
	$(BIN)/python benchmarks/run_speed.py speed
	$(BIN)/python benchmarks/run_speed.py clients
	$(BIN)/python benchmarks/flower_bytes.py
	$(BIN)/python benchmarks/attack_cost.py

clean: ## remove the environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage build dist
