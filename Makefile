# Everything runs from .venv, which is made here when it is missing: python3 (>= 3.11, with venv), make and git suffice.
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# For the cold-* targets: make cold-pack SOURCES="a.db b.db" STORE=packs
STORE   ?= store
SOURCES ?=
CORPUS  ?= corpus
INTO    ?= hydrated.db
PACK    ?=

.PHONY: help demo ui test lint check docs benchmarks clean cold-pack cold-pack-dvd cold-unpack cold-stats

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/  \1  /p' $(MAKEFILE_LIST)

demo: $(STAMP)  ## run the whole way on a real corpus, under .demo
	@$(BIN)/python -m examples.demo

ui: $(STAMP)  ## open Dagster's UI on what the demo ran
	@$(BIN)/python -m examples.demo --ui

test: lint  ## linters, type checker, all tests
	$(BIN)/python -m pytest -n $(or $(WORKERS),2) --dist loadgroup -q

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("python3 >= 3.11 is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned versions of constraints.txt into $(VENV) (about a minute) ..."
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[pipelines,test]'
	@$(BIN)/python -m compileall -q $(VENV)/lib > /dev/null 2>&1 || true
	@touch $(STAMP)

docs: $(STAMP)  ## renew docs/cli.md from the commands
	$(BIN)/python -m pack_lib.cli.reference > docs/cli.md

benchmarks: $(STAMP)  ## measure 100,000 and 1,000,000 chunks beside the plain way and other tools
	$(BIN)/python -m benchmarks

cold-pack: $(STAMP)  ## pack SOURCES into STORE
	@test -n "$(SOURCES)" || { echo 'usage: make cold-pack SOURCES="shard-0.db shard-1.db" [STORE=folder] [CORPUS=name]' >&2; exit 2; }
	@$(BIN)/cold pack $(SOURCES) --store $(STORE) --corpus $(CORPUS)

cold-pack-dvd: $(STAMP)  ## the same in packs that fit a DVD
	@test -n "$(SOURCES)" || { echo 'usage: make cold-pack-dvd SOURCES="shard-0.db shard-1.db" [STORE=folder] [CORPUS=name]' >&2; exit 2; }
	@$(BIN)/cold pack $(SOURCES) --store $(STORE) --corpus $(CORPUS) --cap dvd

cold-unpack: $(STAMP)  ## fill INTO from STORE (PACK: a pack hash or a shard)
	@$(BIN)/cold unpack $(PACK) --store $(STORE) --into $(INTO)

cold-stats: $(STAMP)  ## count what STORE holds
	@$(BIN)/cold stats $(STORE)

clean:  ## remove everything that was made here
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
