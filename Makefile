PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-all format clean

help:  ## Show what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed  ## Install, and trace a program in the interpreter
	$(BIN)/alta list
	$(BIN)/alta run parity-relative 1011
	$(BIN)/alta rules parity-relative
	$(BIN)/alta run scan 'jump around left twice and walk'
	$(BIN)/alta generate addition-decoder 95+7

test: $(VENV)/.installed-dev  ## Install what tests need; lint, check types, run the tests
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -m 'not slow'

test-all: test  ## The tests, and proofs that take minutes
	$(BIN)/pytest -n 2 -m slow
	ALTA_RANDOM_PROGRAMS=20000 $(BIN)/pytest -n 2 tests/test_random_programs.py

format: $(VENV)/.installed-dev  ## Format the code
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

clean:  ## Remove what was made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
