# Everything a fresh machine needs is set up in a virtual environment in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all lint bench results docs lock clean

demo: $(READY)  ## train CPPO on PointCircle, print a table, draw the curves
	$(BIN)/cppo train --algo cppo --env PointCircle --seeds 4 --steps 200000 --out runs/demo --overwrite
	$(BIN)/cppo plot runs/demo

test: $(READY) lint  ## the tests that run everywhere
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-all: $(READY) lint  ## the slow ones, too
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not gpu"

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples scripts
	$(BIN)/ruff format --check src tests benchmarks examples scripts
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(READY)  ## timings, as ratios measured in one run
	$(BIN)/python benchmarks/estep.py
	$(BIN)/cppo bench env
	$(BIN)/python benchmarks/algos.py
	$(BIN)/python benchmarks/policy_step.py
	$(BIN)/python benchmarks/gymnasium_vector.py

results: $(READY)  ## figures and tables of results/ from the committed records
	for folder in results/*/; do $(BIN)/cppo report $$folder --out $$folder --no-page || exit 1; done

docs: $(READY)  ## the documentation as a web site in site/ (fetches nothing; its search needs a server: python -m http.server -d site)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: $(READY)  ## the versions that development was last tried with, from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra test --universal --python-version 3.11 --upgrade --quiet \
		--no-header --no-emit-index-url --no-emit-find-links --output-file requirements-dev.lock

clean:
	rm -rf $(VENV) runs build dist site

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "cppo needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(READY)
