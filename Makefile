# Everything runs from .venv, which is made here when it is missing: python3 (>= 3.11, with venv), make and git suffice.
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

.PHONY: demo ui test lint check docs benchmarks clean cold-pack cold-pack-dvd cold-unpack cold-stats

demo: $(STAMP)
	@$(BIN)/python -m examples.demo

ui: $(STAMP)
	@$(BIN)/python -m examples.demo --ui

test: lint
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

docs: $(STAMP)
	$(BIN)/python -m pack_lib.cli.reference > docs/cli.md

benchmarks: $(STAMP)
	$(BIN)/python -m benchmarks.build --chunks 100000 --chunks 1000000

cold-pack: $(STAMP)
	@test -n "$(SOURCES)" || { echo 'usage: make cold-pack SOURCES="shard-0.db shard-1.db" [STORE=folder] [CORPUS=name]' >&2; exit 2; }
	@$(BIN)/cold pack $(SOURCES) --store $(STORE) --corpus $(CORPUS)

cold-pack-dvd: $(STAMP)
	@test -n "$(SOURCES)" || { echo 'usage: make cold-pack-dvd SOURCES="shard-0.db shard-1.db" [STORE=folder] [CORPUS=name]' >&2; exit 2; }
	@$(BIN)/cold pack $(SOURCES) --store $(STORE) --corpus $(CORPUS) --cap dvd

cold-unpack: $(STAMP)
	@$(BIN)/cold unpack $(PACK) --store $(STORE) --into $(INTO)

cold-stats: $(STAMP)
	@$(BIN)/cold stats $(STORE)

clean:
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
