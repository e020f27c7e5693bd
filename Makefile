# Everything a contributor or a newcomer runs. `make help` lists the targets.

VENV   ?= .venv
EXTRAS ?= dev,plot,bench
# The above and torch, for the tests marked `oracle`.
ORACLE_EXTRAS := dev,plot,bench,oracle
# Everything that any test needs.
ALL_EXTRAS := $(ORACLE_EXTRAS),offline
# Arguments for pytest, e.g. make test PYTEST_ARGS='tests/cli -x'
PYTEST_ARGS ?= -n auto

# The first interpreter that is new enough; override with make PYTHON=/path/to/python.
ifndef PYTHON
PYTHON := $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
endif

BIN   := $(VENV)/bin
comma := ,
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-oracle test-all lint fmt docs clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## set up the virtual environment (done by the others when needed)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer on PATH; pass PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

demo: $(STAMP) ## compile, train and sample a small byte model (a few minutes)
	$(BIN)/trainc demo

test: $(STAMP) ## all tests but the slow sweeps and those that need torch (some need a Vulkan device, see README)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-oracle: ## compare with torch (installs the oracle extra)
	@$(MAKE) --no-print-directory venv EXTRAS=$(ORACLE_EXTRAS)
	$(BIN)/python -m pytest -m "oracle and not slow"

test-all: ## every test, slow sweeps and torch comparisons included
	@$(MAKE) --no-print-directory venv EXTRAS=$(ALL_EXTRAS)
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m ""

lint: $(STAMP) ## formatting, lint rules and strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fmt: $(STAMP) ## format and apply the safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: ## build the documentation into site/ (installs the docs extra)
	@$(MAKE) --no-print-directory venv EXTRAS=docs
	$(BIN)/mkdocs build --strict

clean: ## remove the virtual environment and every output of the targets above
	rm -rf $(VENV) build dist site runs trainc-demo* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find trainc tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
