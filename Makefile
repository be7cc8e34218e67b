# Everything here writes only to .venv, .cache and runs in this folder.
# PYTHON: an interpreter of version 3.10 or newer. ARGS: passed on to the command a target runs.
PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV := .cache/lock/bin/uv
NODE := .cache/node
MEGATRON := .cache/venvs/megatron
# Named after its lock: another lock is another environment.
SGLANG := .cache/venvs/sglang-$(shell sha256sum requirements/sglang.txt | cut -c1-12)
SGLANG_NEWEST := .cache/venvs/sglang-newest-$(shell sha256sum requirements/sglang-newest.txt | cut -c1-12)
SLIME := .cache/venvs/slime-$(shell sha256sum requirements/slime.txt | cut -c1-12)

export PIP_CACHE_DIR := $(CURDIR)/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/.cache/hypothesis

.DELETE_ON_ERROR:
.PHONY: help demo test full fuzz gpu lint format types contracts bench browser megatron sglang sglang-newest slime pictures lock install clean

help:
	@echo "make demo       record a small real RL loop, merge it, say how to open it"
	@echo "make test       the fast tests"
	@echo "make full       all tests, the long ones too"
	@echo "make fuzz       10,000 damaged files through reader, merge, check and check --fix"
	@echo "make gpu        what only a GPU can show; says so where there is none"
	@echo "make lint types contracts   ruff, mypy, import-linter"
	@echo "make bench      the benchmarks"
	@echo "make browser    playwright-core, with which tests drive Chromium (needs npm)"
	@echo "make megatron   the environment of the tests with Megatron-Core; they skip without it"
	@echo "make sglang     the environment of the tests with SGLang (Python 3.11); they skip without it"
	@echo "make sglang-newest   the same with the newest SGLang that we have tried"
	@echo "make slime      the environment of the tests with slime (Python 3.11); needs SLIME_CHECKOUT and"
	@echo "                MEGATRON_CHECKOUT, and fails without them"
	@echo "make pictures   renew the pictures of the README from a demo in Chromium"
	@echo "make lock       renew requirements/dev.txt and megatron.txt"
	@echo "make clean      remove .venv and .cache, keep runs"

$(READY): requirements/dev.txt pyproject.toml setup.cfg
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	rm -rf slime_profiler_plugin.egg-info build
	touch $@

install: $(READY)

demo: $(READY)
	$(BIN)/slime-profiler demo $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

full: $(READY)
	$(BIN)/python -m pytest -m "full or not full" $(ARGS)

fuzz: $(READY)
	$(BIN)/python tests/fuzz/fuzz.py $(ARGS)

gpu: $(READY)
	$(BIN)/python tests/gpu/run.py $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports

bench: $(READY)
	set -e; for file in benchmarks/[!_]*.py; do echo "== $$file"; $(BIN)/python "$$file" $(ARGS); done

$(NODE)/.ready: tests/viewers/package.json
	mkdir -p $(NODE)
	cp $< $(NODE)/package.json
	npm install --prefix $(NODE) --cache .cache/npm --no-package-lock --no-audit --no-fund --no-update-notifier --ignore-scripts
	touch $@

browser: $(NODE)/.ready

# Built anew when its lock file has changed; `.lock` in it holds the hash of the one it was built from.
megatron:
	@set -e; hash=$$($(PYTHON) -c 'import hashlib; print(hashlib.sha256(open("requirements/megatron.txt", "rb").read()).hexdigest())'); \
	if [ "$$(cat $(MEGATRON)/.lock 2>/dev/null)" = "$$hash" ]; then exit 0; fi; \
	echo "building $(MEGATRON)"; rm -rf $(MEGATRON); $(PYTHON) -m venv $(MEGATRON); \
	$(MEGATRON)/bin/python -m pip install --quiet --requirement requirements/megatron.txt; \
	echo "$$hash" >$(MEGATRON)/.lock

$(SGLANG)/.ready: requirements/sglang.txt
$(SGLANG_NEWEST)/.ready: requirements/sglang-newest.txt
$(SLIME)/.ready: requirements/slime.txt
$(SGLANG)/.ready $(SGLANG_NEWEST)/.ready $(SLIME)/.ready:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "SGLang wheels here are for Python 3.11; set PYTHON=...")'
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --no-deps --requirement $<
	touch $@

sglang: $(SGLANG)/.ready

sglang-newest: $(SGLANG_NEWEST)/.ready

# What is missing is said before minutes of installing.
slime:
	@$(PYTHON) tests/frameworks/slime/prepare.py check
	@$(MAKE) --no-print-directory $(SLIME)/.ready
	@$(PYTHON) tests/frameworks/slime/prepare.py megatron .cache/slime/megatron

pictures: $(READY) $(NODE)/.ready
	rm -f .cache/pictures/demo_* .cache/pictures/tab_*
	$(BIN)/python -m pytest tests/viewers/test_perfetto_ui.py tests/viewers/test_tensorboard.py -k "demo or pictures" $(ARGS)
	mkdir -p docs/pictures
	set -e; for picture in rollout weight_sync; do cp .cache/pictures/demo_$$picture.png docs/pictures/$$picture.png; done
	cp .cache/pictures/tab_sync_dark.png docs/pictures/tab_sync_dark.png

$(UV):
	$(PYTHON) -m venv .cache/lock
	.cache/lock/bin/python -m pip install --quiet uv

lock: $(UV)
	.cache/lock/bin/python requirements/update.py $(ARGS)

clean:
	rm -rf $(VENV) .cache
