# Everything a person or CI needs. Each target makes .venv when it is missing.
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
ONLY ?=

.PHONY: demo test check bench node-test clean

demo: .venv/ready
	$(BIN)/apportion sandbox demo

test: check
	$(BIN)/pytest

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/ready
	$(BIN)/python -m tests.bench $(ONLY)

node-test: .venv/ready
	@echo "node test: not run: the agent on a real kubelet comes with the node agent"

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,agent,cli]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
