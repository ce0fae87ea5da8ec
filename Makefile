# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
ZOO := mnist-ssog mnist-gma

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format bench serve clean

help: ## list these targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

setup: $(VENV)/.ready ## virtual environment with everything that development needs

$(VENV)/.ready: pyproject.toml src/gaussport/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gaussport needs Python 3.11 or newer: make PYTHON=python3.11 …" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup ## export, verify and serve the zoo, and send it 1,000 pictures
	@$(BIN)/python benchmarks/demo.py

test: setup ## the whole test suite, on every core up to four
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

lint: setup ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## let ruff write the layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure the operators beside torch's own attention
	$(BIN)/python benchmarks/operators.py

serve: setup $(ZOO:%=build/%) ## serve the zoo's bundles on PORT (8000)
	$(BIN)/gaussport serve $(ZOO:%=build/%) --port $(PORT)

build/%: models/zoo/%.safetensors $(VENV)/.ready
	@mkdir -p build
	$(BIN)/gaussport export $< -o $@ --overwrite

clean: ## remove what these targets made, except the virtual environment
	rm -rf build dist .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info src/*.egg-info
