# Everything a person types here. Each target makes .venv by itself when it is missing or stale.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test test-all check check-page format bench docs install clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(READY)  ## create .venv with everything for working on Pellucid

# The marker is written last, so a broken installation is never taken for a whole one.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else \
	  f"Pellucid needs Python 3.11 to 3.13; this is {v[0]}.{v[1]}. Try: make PYTHON=python3.11 ...")'
	@echo "setting up .venv (PyTorch's CPU build is about 200 MB; this takes a minute or two)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)  ## translate with the model that comes with Pellucid, and see where it looked
	@$(BIN)/python -m examples.demo

test: $(READY)  ## the tests (a few minutes on 2 cores)
	$(BIN)/python -m pytest -n auto -m 'not slow'

test-all: $(READY)  ## the tests and the slow, deep runs
	HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest -n auto

check: $(READY)  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory check-page

# Runs a script of package.json where node is there and its packages can be installed.
NPM = if command -v node >/dev/null && command -v npm >/dev/null && \
	  { test node_modules/.ready -nt package-lock.json || \
	    { npm ci --silent --no-audit --no-fund && touch node_modules/.ready; }; }; then npm run --silent

check-page:  # formatting and lint of the page's JavaScript, CSS and HTML
	@$(NPM) check; else echo "the page was not checked (prettier, eslint): it needs node, npm and a package registry"; fi

format: $(READY)  ## fix formatting and lint where that can be done automatically
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	@$(NPM) format; else echo "the page was not formatted: it needs node, npm and a package registry"; fi

bench: $(READY)  ## measure against the peers; NAME=training runs one, OPTIONS='--rounds 5' change it
	$(BIN)/python -m benchmarks $(NAME) $(OPTIONS)

docs: $(READY)  ## build the documentation into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:  ## remove what can be made again
	rm -rf .venv node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .bench site
