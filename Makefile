# Everything is installed into .venv and nowhere else. Model weights, pinned by SHA-256, go to
# the user's data directory, or to COLLIGATE_HOME where that is set.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module when it is first imported: most of what is installed never is.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
INSTALLED := .venv/.installed

# The browser is fetched while packages are installed, and types are checked while weights are.
MAKEFLAGS += --jobs=2

.PHONY: help setup demo test test-real cases lint bench site clean

help:
	@echo "make demo       set up, then answer a question over the licences in examples/"
	@echo "make test       set up, lint, then the quick tests, which need no network"
	@echo "make test-real  set up, then the slow real components: browser, S3, Ray, training, models"
	@echo "make cases      set up, then the cases of tests/cases, or of CASES=FOLDER, one line each"
	@echo "make setup      create .venv with everything the tests need"
	@echo "make lint       ruff, mypy and the import contract"
	@echo "make bench      the quick benchmarks"
	@echo "make site       the documentation as a site, in build/site"

# The demo needs the package alone; the tests need their tools as well.
.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(INSTALL) --upgrade "pip>=25.1"

.venv/.package: pyproject.toml | .venv/bin/python
	$(INSTALL) --editable .
	touch $@

# torch is pinned so that every machine tests with the same one.
$(INSTALLED): .venv/.package
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable '.[bench,inspect,langchain,legacy,llamaindex,local,mcp,multilingual,ocr,scale,serve,train,wikitext]' --group dev
	touch $@

# Tests of the page need a Chromium. Debian's is installed where one may; elsewhere they are skipped.
.PHONY: browser
browser:
	@for name in chromium chromium-browser google-chrome chrome; do \
	  if command -v $$name >/dev/null; then exit 0; fi; done; \
	if [ -n "$$COLLIGATE_CHROMIUM" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	else echo "no Chromium: install one for the tests of the page"; fi

setup: $(INSTALLED) browser
	$(BIN)/colligate models pull smollm2-135m minilm-l6-v2-int8 wordllama-256 llama.cpp

demo: .venv/.package
	$(BIN)/colligate ask "How long does a violator of the GPL version 3 have to cure a first violation?" examples/licences

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Python compiles what the tests import, once, while types are checked. An error is shown by the tests.
.PHONY: compile
compile: $(INSTALLED)
	-@$(BIN)/pytest --collect-only -qq >/dev/null

# A process for each core; every test stands alone. Many start the command: compiled modules are
# kept for them, whatever the environment says.
test test-real: export PYTHONDONTWRITEBYTECODE =
test: setup lint compile
	$(BIN)/pytest -n auto --dist worksteal -m "not real"

test-real: setup
	$(BIN)/pytest -n auto --dist worksteal -m real

CASES ?= tests/cases
cases: setup
	$(BIN)/python tests/cases/run.py $(CASES)

bench: setup
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/overhead.py --bench
	$(BIN)/python benchmarks/search.py --sizes 1000 20000
	$(BIN)/python benchmarks/concurrency.py --delay 1
	$(BIN)/python benchmarks/speed.py --model smollm2-135m --quick

site: $(INSTALLED)
	$(BIN)/python docs/site.py

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
