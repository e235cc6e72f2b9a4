PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip
PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest -n 2  # two workers, and no more threads than that

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-browser test-cluster bench docs images format clean

help:  ## Show what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	$(PIP) install --quiet --editable '.[docs]'
	@touch $@

demo: $(VENV)/.installed  ## Install, and run programs in the interpreter and as Transformers
	mkdir -p build
	$(BIN)/alta list
	$(BIN)/alta rules parity-relative
	$(BIN)/alta run parity-relative 1011
	$(BIN)/alta compile addition -o build/addition.safetensors
	$(BIN)/alta verify build/addition.safetensors
	$(BIN)/alta run build/addition.safetensors 95+7 --no-trace
	$(BIN)/alta run scan 'jump around left twice and walk'
	$(BIN)/alta generate addition-decoder 95+7

test: $(VENV)/.installed-dev  ## Install what tests need; lint, check types, run the tests
	$(BIN)/ruff check src tests benchmarks experiments docs/conf.py
	$(BIN)/ruff format --check src tests benchmarks experiments docs/conf.py
	$(BIN)/mypy
	$(PYTEST) -m 'not slow and not cluster and not browser'

test-all: test  ## The tests, and proofs that take minutes
	$(PYTEST) -m slow
	ALTA_RANDOM_PROGRAMS=20000 ALTA_RANDOM_MODELS=20000 $(PYTEST) -k 'random or rules_agree or runs_agree' \
		tests/test_random_programs.py tests/test_compiler.py tests/test_torch.py tests/test_batch.py

test-cluster: $(VENV)/.installed-dev  ## The tests that start a Dask cluster on this machine
	$(BIN)/pytest -m cluster

test-browser: $(VENV)/.installed-dev  ## The tests that open pages in Chromium, with pictures in build/screenshots
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null || { \
		command -v apt-get > /dev/null && test "$$(id -u)" = 0 && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null; } || { \
		echo 'make test-browser needs Chromium: install it, for instance with "apt-get install chromium" as root'; exit 1; }
	$(BIN)/pytest -m browser

bench: $(VENV)/.installed-dev  ## Measure, and make docs/performance.md (SCAN=tasks.txt.gz for the SCAN cases)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py benchmarks/results/cpu.json $(if $(SCAN),--scan $(SCAN))
	$(BIN)/python benchmarks/report.py benchmarks/results docs

docs: $(VENV)/.installed-docs  ## Build the documentation: build/site/index.html
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --write-all --doctree-dir build/doctrees docs build/site

PICTURE = chromium --headless=new --log-level=3 --no-sandbox --hide-scrollbars --force-device-scale-factor=1.5 --window-size=1120,800
ADDITION = build/addition.html\#step=4&variable=sum&position=4

images: $(VENV)/.installed-dev  ## Make the pictures in the documentation anew (with Chromium)
	mkdir -p build docs/images
	$(BIN)/alta draw weights parity-relative -o docs/images/weights.svg
	$(BIN)/alta explore addition 95+7 -o build/addition.html
	$(PICTURE) --screenshot=docs/images/explorer.png 'file://$(CURDIR)/$(ADDITION)'
	$(PICTURE) --force-dark-mode --screenshot=docs/images/explorer-dark.png 'file://$(CURDIR)/$(ADDITION)'
	sed -n '/^# brackets.py/,/^```/{/^```/!p;}' docs/tutorial.md > build/brackets.py
	$(BIN)/alta explore build/brackets.py '^()(' -o build/brackets.html
	$(PICTURE) --screenshot=docs/images/brackets.png \
		'file://$(CURDIR)/build/brackets.html#step=4&variable=balanced&position=2'

format: $(VENV)/.installed-dev  ## Format the code
	$(BIN)/ruff check --fix src tests benchmarks experiments docs/conf.py
	$(BIN)/ruff format src tests benchmarks experiments docs/conf.py

clean:  ## Remove what was made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
