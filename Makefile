# Seqmark's targets. `make` alone lists them. Nothing here needs more than Python, a JDK and make.

# A Python 3.11 to 3.14. Empty: the first of the candidates that really runs is taken
# (a version manager may leave commands on the PATH that only print an error).
PYTHON ?=
CANDIDATES := python3.13 python3.12 python3.11 python3.14 python3 python

# Processes that share the tests: two for those that compute, four for those that start workers, for each waits
# more than half of its time, and none but pytest's own (0) where ARGS says something.
WORKERS ?= $(if $(ARGS),0,2)

# How many seconds of a process, four beside each other, the long tests of `make test-ci` may take.
BUDGET_S ?= 1000
# How long `make test-all` takes at most; called again it goes on.
ALL_S ?= 10800

VENV := .venv
BIN := $(VENV)/bin
UV ?= uv
PYTEST := $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder

# The environment is made once per content of these files and place of this folder: the stamp's name
# carries their checksum.
STAMP := $(VENV)/.made-$(shell { cat requirements.lock pyproject.toml 2>/dev/null; echo "$(CURDIR)"; } | cksum | tr " " "-")

# `make dist` and `make release` have an environment of their own: nothing that only tests need is installed.
BUILD := build/venv
BUILD_STAMP := $(BUILD)/.made-$(shell { cat packing/requirements.lock 2>/dev/null; echo "$(CURDIR)"; } | cksum | tr " " "-")
# A folder with kernels that are there, of several Pythons perhaps; empty: those of this Python are compiled.
KERNELS ?=

# Sets $$found to the first candidate that really runs and is one of ours, or ends with what to do.
FIND_PYTHON = found=; \
	for candidate in $(or $(PYTHON),$(CANDIDATES)); do \
		if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
			>/dev/null 2>&1; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Seqmark needs Python 3.11 to 3.14 with the venv module; tried: $(or $(PYTHON),$(CANDIDATES))." >&2; \
		echo "Install one (Debian: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3.12" >&2; \
		exit 1; \
	fi

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-ci test-all sim prove check bench format docs lock jars kernels dist release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP) ## make .venv from the lock (the others do so by themselves)

demo: $(STAMP) ## the whole way on an embedded broker, checked against the known truth
	@$(BIN)/seqmark demo $(ARGS)

test: $(STAMP) ## the fast tests, and a smoke of each real part, in ten minutes; ARGS="tests/unit -k name": a part of all
	@# Once, before many processes would compile the same kernels beside each other.
	@if [ "$(WORKERS)" != 0 ]; then $(BIN)/python -m processor.pipeline.warm; fi
	@$(PYTEST) --numprocesses $(WORKERS) $(or $(ARGS),--tier fast)

test-ci: $(STAMP) ## what a change must pass: make test, and of the others the core and a share of the long ones
	@$(MAKE) --no-print-directory test; fast=$$?; \
	$(PYTEST) --numprocesses 4 --tier ci --budget-s $(BUDGET_S) $(ARGS) && exit $$fast

test-all: $(STAMP) ## everything that is not proven as it is: all kills, all planted mistakes; goes on where it was ended
	@$(BIN)/python -m processor.pipeline.warm
	@timeout --signal INT $(ALL_S) $(PYTEST) --numprocesses 4 --tier all $(ARGS); code=$$?; \
	$(BIN)/python -m tests.support.suite.report; exit $$code

sim: $(STAMP) ## kill a slot in memory, at any await, until time is up or a record is wrong; SEED=N MINUTES=M (of CPU)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) --minutes $(or $(MINUTES),1)

prove: $(STAMP) ## plant the mistakes whose file or test has changed, see them caught, note it; ARGS=--all: every one
	@$(BIN)/python -m tests.crash.planted.prove $(ARGS)

# All of them run, so that one call tells everything that is wrong.
check: $(STAMP) ## format, lint, types, import layers, rules of the house, generated pages, compose file
	@failed=; run() { echo "$$ $$*"; "$$@" || failed="$$failed\n  $$*"; }; \
	run $(BIN)/ruff format --check .; \
	run $(BIN)/ruff check --quiet .; \
	run $(BIN)/mypy --no-error-summary; \
	run $(BIN)/lint-imports --no-logo; \
	run $(BIN)/python -m tests.unit.tree.house; \
	run $(BIN)/python -m processor.config.reference_page --check; \
	if command -v docker-compose >/dev/null 2>&1; then \
		run docker-compose config --quiet; \
	else \
		echo "docker-compose is not installed: docker-compose.yml is not validated"; \
	fi; \
	if [ -n "$$failed" ]; then printf "failed:$$failed\n" >&2; exit 1; fi; \
	echo "all checks passed"

bench: $(STAMP) ## measure this checkout beside others, up to an hour; ARGS=ids, ARGS=rest, QUICK=1, PEERS=none, CASES=json
	@$(BIN)/python -m benchmarks $(ARGS)

format: $(STAMP) ## format, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP) ## write docs/configuration.md from the config model, and build the site into var/site
	$(BIN)/python -m processor.config.reference_page
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --config-file docs/website/mkdocs.yml
	@echo "var/site; with the search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory var/site" >&2

# Needs uv (any recent one; `make lock UV=/path/to/uv`). Only who changes a dependency needs it.
# UV_CUSTOM_COMPILE_COMMAND is what the lock's header says; index and machine stay out of it.
lock: ## write requirements.lock and those of the benchmark (needs uv; UPGRADE=--upgrade for newer ones)
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile pyproject.toml --quiet \
		--group dev --all-extras --universal --python-version 3.11 --generate-hashes $(UPGRADE) \
		--no-emit-index-url --no-emit-find-links --output-file requirements.lock
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile pyproject.toml --quiet \
		--group build --universal --python-version 3.11 --generate-hashes --constraint requirements.lock \
		--no-emit-index-url --no-emit-find-links --output-file packing/requirements.lock
	for folder in benchmarks/peers benchmarks/rest; do \
		UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile $$folder/requirements.in --quiet \
			--universal --python-version 3.11 --generate-hashes $(UPGRADE) \
			--no-emit-index-url --no-emit-find-links --output-file $$folder/requirements.lock || exit 1; \
	done

jars: $(STAMP) ## write the lists of jars, with their hashes, after Ivy
	$(BIN)/python -m packing.jars

kernels: $(BUILD_STAMP) ## compile into build/kernels what the wheel brings, for this Python; ARGS="python3.12 …": for each of these
	@rm -rf build/kernels
	$(if $(ARGS),$(BUILD)/bin/python -m packing.matrix build/kernels $(ARGS),$(BUILD)/bin/python -m packing.kernels build/kernels)

dist: $(BUILD_STAMP) $(if $(KERNELS),,kernels) ## build wheel and sdist into dist/; the wheel has the kernels for this Python and this kind of machine
	SEQMARK_KERNELS=$(or $(KERNELS),build/kernels) $(BUILD)/bin/python -m hatchling build

release: $(BUILD_STAMP) $(if $(KERNELS),,kernels) ## all of a release that needs no account, into dist/, tried out; VERSION=1.0.0, KERNELS=FOLDER
	@if [ -z "$(VERSION)" ]; then echo "say which: make release VERSION=1.0.0" >&2; exit 2; fi
	@$(BUILD)/bin/python -m packing.release $(VERSION) $(or $(KERNELS),build/kernels) $(ARGS)

clean: ## remove what was made here: environment, caches, state under var/
	rm -rf $(VENV) var build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# 1. An environment that works and belongs to this folder is kept, any other is replaced.
# 2. setuptools first: pyspark ships as source, and a build in isolation would fetch tools that no hash holds.
# 3. Everything else, every file held by its hash. 4. Seqmark itself, from this folder.
$(STAMP):
	@set -e; \
	if ! { $(BIN)/pip --version 2>/dev/null | grep -qF "$(CURDIR)/$(VENV)/" && \
	       $(BIN)/python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'; }; then \
		$(FIND_PYTHON); \
		echo "making $(VENV) with $$found" >&2; \
		"$$found" -m venv --clear $(VENV); \
	fi
	@rm -f $(VENV)/.made-*
	@awk '/^[a-z]/ { keep = /^setuptools==/ } keep' requirements.lock > $(VENV)/build.lock
	@echo "installing from requirements.lock" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/build.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--no-build-isolation --use-pep517 -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(BUILD_STAMP):
	@set -e; $(FIND_PYTHON); echo "making $(BUILD) with $$found" >&2; "$$found" -m venv --clear $(BUILD)
	@$(BUILD)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r packing/requirements.lock
	@touch $@
