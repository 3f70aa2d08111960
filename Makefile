# Everything a person or CI needs. Each target makes .venv when it is missing.
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
ONLY ?=

.PHONY: demo test check bench node-test protos clean

demo: .venv/ready
	$(BIN)/apportion sandbox demo

# The real node is tried by a process of its own: it makes namespaces, which a process with threads of gRPC cannot.
test: check
	$(BIN)/pytest --ignore tests/node
	$(BIN)/pytest tests/node

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: .venv/ready
	$(BIN)/python -m tests.bench $(ONLY)

node-test: .venv/ready
	$(BIN)/pytest tests/node

# After a change to a .proto; what it writes is committed, and wants at least the grpcio and protobuf of its own time.
protos: .venv/ready
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. reconciler/agent/proto/*.proto

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Apportion needs Python 3.11 or later, this is %s: try make PYTHON=python3.12" % sys.version.split()[0])'
	@echo "installing into .venv (about a minute)"
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,agent,cli]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
