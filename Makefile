# The two main commands: `make demo` (something to look at in a minute or two) and `make test` (everything CI checks).
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install sb3 demo test soak format lint types layers tests constraints reproduction docs release clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dvdrl needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Stable-Baselines3, for its example and the test of that example. It is not part of `install`, because PyTorch is large.
# If pip finds no build for CPUs only, PyTorch brings several gigabytes of CUDA.
sb3: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0 --editable '.[sb3]'

demo: install
	$(BIN)/dvdrl reproduce tabular --out build/demo
	rm -rf build/demo/point
	$(BIN)/dvdrl train niche-es --task Point-v0 --task-options wall_half_width 4 --out build/demo/point
	$(BIN)/dvdrl evaluate build/demo/point --paths build/demo/point/paths.png
	$(BIN)/dvdrl render build/demo/point
	$(BIN)/dvdrl report build/demo/point

test: lint types layers tests

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

layers: install
	$(BIN)/lint-imports

tests: install
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder  # a document's examples depend on each other

# Tests that are too long for `make test`: fifty kills, and an hour each of DvD-ES and DvD-TD3 (or SOAK_MINUTES each).
soak: install
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS= $(BIN)/pytest -m soak tests/soak  # compiled with the defaults, as users have them

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Pins every dependency, including those of all extras, by name and version only.
constraints:
	rm -rf build/pin && $(PYTHON) -m venv build/pin
	build/pin/bin/python -m pip install --quiet --upgrade pip
	build/pin/bin/python -m pip install --quiet --dry-run --ignore-installed --report build/pin/report.json '.[ray,gpu,onnx,video,wandb,box2d,qd,gymnax,playground,dev]'
	build/pin/bin/python tools/constraints.py build/pin/report.json > constraints.txt

# Writes what came out of the paper's claims: docs/reproduction.md, and the tables of the pages in results/.
reproduction: install
	$(BIN)/python tools/reproduction.py

# The documentation site: build/site/html/index.html. Any warning is an error.
docs: install
	$(BIN)/python tools/site.py

# Builds sdist and wheel, tests both, and says what is left of a release. Uploads nothing.
release: lint types layers
	$(BIN)/python tools/release.py

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
