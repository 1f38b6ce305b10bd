# Everything happens in .venv, made from the hash-locked files in requirements/.
# Kernels are compiled in place by hatch_build.py.
# PYTHON=/path/to/python chooses the interpreter; WORKERS=4 the number of test processes.

PYTHON  ?=
WORKERS ?= 2

BIN := .venv/bin
INSTALL := $(if $(shell command -v uv 2>/dev/null),uv pip install --python $(BIN)/python,$(BIN)/python -m pip install --disable-pip-version-check)
COMPILE := uv pip compile pyproject.toml --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url --no-header --quiet

ZIGLANG = $(INSTALL) --quiet --no-deps --require-hashes -r requirements/compiler.txt
WHEEL_ARCH = $(or $(FAIRWOLFE_ARCH),$(if $(filter x86_64 amd64,$(shell uname -m)),x86-64-v3))

# Without byte code every start pays for parsing its imports again.
unexport PYTHONDONTWRITEBYTECODE
# A PYTHONPATH or a virtual environment from outside must not leak into this one.
unexport PYTHONPATH VIRTUAL_ENV

.PHONY: help demo test test-all lint build docs bench wheel asan lock sbom setup clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      set up what the demo needs, then run it"
	@echo "make test      set up, then lint, types, layers and all tests but the slow ones"
	@echo "make test-all  the same with the slow tests"
	@echo "make lint      ruff, mypy and the import layers only"
	@echo "make build     compile the kernels in place, as far as they have changed"
	@echo "make wheel     build a wheel for this platform into dist/, with the compiler of ziglang"
	@echo "make asan      run the kernels with AddressSanitizer and UBSan (needs gcc)"
	@echo "make docs      build the documentation into docs/_build/html (warnings are errors)"
	@echo "make bench     run every benchmarks/bench_*.py in turn"
	@echo "make setup     only make .venv, with everything for development"
	@echo "make lock      renew requirements/*.txt from pyproject.toml (needs uv)"
	@echo "make sbom      write the bill of materials of the locked install to build/sbom.cdx.json"
	@echo "make clean     remove .venv and everything else that was built"

demo: build .venv/package.stamp
	$(BIN)/fairwolfe demo

setup: .venv/dev.stamp build .venv/package.stamp

# Takes a tenth of a second if nothing has changed. Exit code 3: there is no C compiler.
build: .venv/demo.stamp
	@$(BIN)/python hatch_build.py || { [ $$? = 3 ] || exit 2; $(ZIGLANG) && $(BIN)/python hatch_build.py; }

# One BLAS thread: the test processes already fill the cores.
test test-all bench: export OMP_NUM_THREADS = 1
test test-all bench: export OPENBLAS_NUM_THREADS = 1
test test-all bench: export MKL_NUM_THREADS = 1

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-all: lint
	$(BIN)/python -m pytest -n $(WORKERS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Built with clang, for glibc 2.28 and x86-64-v3, whatever this machine has; build/wheel is its own.
wheel: .venv/demo.stamp
	@$(BIN)/python -c 'import ziglang' 2>/dev/null || $(ZIGLANG)
	CC=ziglang FAIRWOLFE_ARCH=$(WHEEL_ARCH) $(BIN)/python -m hatchling build --target wheel

asan: setup
	$(BIN)/python -m pytest tests/build/test_sanitizers.py

docs: setup
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: setup
	@for script in benchmarks/bench_*.py; do \
		if [ ! -e "$$script" ]; then echo "There are no benchmarks yet."; exit 0; fi; \
		echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

# demo.txt is held to the versions of dev.txt, so that both can share .venv.
lock:
	@command -v uv >/dev/null 2>&1 || \
		{ echo "make lock needs uv, which is not on the PATH: install it (pip install uv) and try again."; exit 1; }
	$(COMPILE) --extra plot --extra serve --group dev --output-file requirements/dev.txt
	$(COMPILE) --extra plot --group build --constraint requirements/dev.txt --output-file requirements/demo.txt
	$(filter-out pyproject.toml,$(COMPILE)) --group compiler --output-file requirements/compiler.txt

sbom: $(BIN)/python
	@mkdir -p build
	$(BIN)/python requirements/sbom.py > build/sbom.cdx.json

clean:
	rm -rf .venv build dist docs/_build docs/gallery docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -f src/fairwolfe/kernels/*.so src/fairwolfe/kernels/_built.txt
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@python="$(PYTHON)"; \
	for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do \
		if [ -n "$(PYTHON)" ]; then break; fi; \
		if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			python=$${python:-$$candidate}; \
			if $$candidate hatch_build.py --headers >/dev/null; then python=$$candidate; break; fi; \
		fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "fairwolfe needs Python 3.11 or newer and found none: install it, or say where it is with make PYTHON=/path/to/python."; exit 1; \
	fi; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "fairwolfe needs Python 3.11 or newer; PYTHON=$$python is not that."; exit 1; \
	fi; \
	if ! paste=$$("$$python" hatch_build.py --headers); then \
		echo "$$python has no Python.h, and the kernels cannot be built without it: $$paste"; exit 2; \
	fi; \
	echo "Making .venv with $$("$$python" --version)"; \
	if command -v uv >/dev/null 2>&1; then uv venv --quiet --clear --seed --python "$$python" .venv; \
	else "$$python" -m venv --clear .venv; fi || \
		{ rm -rf .venv; echo "The virtual environment could not be made; on Debian and Ubuntu, install python3-venv."; exit 1; }

# A lock names every package with its hash: nothing is left to resolve.
.venv/demo.stamp: requirements/demo.txt | $(BIN)/python
	$(INSTALL) --quiet --no-deps --require-hashes -r requirements/demo.txt
	@touch $@

.venv/dev.stamp: requirements/dev.txt .venv/demo.stamp
	$(INSTALL) --quiet --no-deps --require-hashes -r requirements/dev.txt
	@touch $@

.venv/package.stamp: pyproject.toml hatch_build.py .venv/demo.stamp | build
	$(INSTALL) --quiet --no-deps --no-build-isolation --editable .
	@touch $@
