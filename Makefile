# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
ZOO := mnist-ssog mnist-gma manpages-gma

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format bench bench-check serve image image-test lock clean

help: ## list these targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

setup: $(VENV)/.ready ## virtual environment with everything that development needs

$(VENV)/.ready: pyproject.toml src/gaussport/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gaussport needs Python 3.11 or newer: make PYTHON=python3.11 …" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup ## export, verify and serve the zoo, and send it 1,000 pictures and texts in ten languages
	@$(BIN)/python benchmarks/demo.py

test: setup ## the whole test suite, on every core up to four
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

lint: setup ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## let ruff write the layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure the operators beside torch's own attention
	$(BIN)/python benchmarks/operators.py

bench-check: setup $(ZOO:%=build/%) ## what got slower since the baseline of this machine
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.regression

serve: setup $(ZOO:%=build/%) ## serve the zoo's bundles on PORT (8000)
	$(BIN)/gaussport serve $(ZOO:%=build/%) --port $(PORT)

image: ## the CPU container image, as gaussport:cpu, with docker
	docker build -f docker/Dockerfile --target cpu -t gaussport:cpu --build-arg REVISION=$$(git rev-parse HEAD) .

image-test: setup build/mnist-ssog ## build the CPU image with buildah (as root) and prove it: confined, right, drained
	$(BIN)/python -m gaussport.models.data.mnist build/digits
	$(BIN)/python -m benchmarks.image build/mnist-ssog build/digits/*/*5.png

UV := $(BIN)/uv --config-file docker/uv.toml pip compile --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade --quiet
TENSORRT := 10.16.1.11

lock: setup ## lock the image's dependencies with their hashes, from pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(UV) --extra serve --universal -o docker/requirements-cpu.txt pyproject.toml
	$(UV) --extra gpu --python-platform x86_64-manylinux_2_28 --no-emit-package tensorrt-cu13 \
	  --no-emit-package tensorrt-cu13-libs -o docker/requirements-gpu.txt pyproject.toml
	echo tensorrt-cu13-libs==$(TENSORRT) | $(UV) -o docker/requirements-tensorrt.txt -

build/%: models/zoo/%.safetensors $(VENV)/.ready
	@mkdir -p build
	$(BIN)/gaussport export $< -o $@ --overwrite

clean: ## remove what these targets made, except the virtual environment
	rm -rf build dist .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info src/*.egg-info
