# Each target installs what it needs into .venv by itself; a bare machine needs Python 3.11+, venv, pip and make.
#   make test ARGS="-k claim"      ARGS goes to the command behind the target
#   make install PYTHON=python3.13 another interpreter

PYTHON ?= python3
# Half of its time a test waits for other processes: twice as many as there are cores keep the cores busy.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(2 * min(os.cpu_count() or 1, 4))')
SUITE = -n $(JOBS) --dist worksteal --ignore=tests/rules --ignore=tests/typing
BIN := .venv/bin
RUNTIME := .venv/.runtime
STAMP := .venv/.installed
AUDIT := .venv/audit

.DEFAULT_GOAL := help
# Tests start hundreds of processes: without compiled files each of them would compile the whole program.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install up demo check test test-all bench mutants soak-store fuzz proofs lock sbom audit

help: ## say what the targets do
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
		printf '  make %-12s %s\n' "$$name" "$$what"; done

install: $(STAMP) ## put Windlass and the tools of development into .venv

# What `up` and `demo` need: a new user does not wait for the tools of development.
# Nothing is installed but what the requirements files name, each file by its hash; ourselves without asking for more.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

$(RUNTIME): pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Windlass needs Python 3.11 or newer: make PYTHON=python3.12 …' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements.txt
	$(PIP) --no-build-isolation -e .
	@touch $@

$(STAMP): $(RUNTIME) requirements-dev.txt
	$(PIP) --require-hashes -r requirements-dev.txt
	@touch $@

$(AUDIT): requirements-audit.txt
	test -x $@/bin/python || $(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-audit.txt
	@touch $@

up: $(RUNTIME) ## serve and work on this machine until Ctrl-C; ARGS="module:app --port 8080"
	$(BIN)/windlass up $(ARGS)

demo: $(RUNTIME) ## run some hundred jobs, failures and retries among them, and print how they ended
	$(BIN)/windlass demo

check: $(STAMP) ## lint, formatting, types, and the rules of layers and style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 0 --noconftest tests/rules tests/typing

test: $(STAMP) ## check, and beside it the tests on SQLite and PostgreSQL
	@$(MAKE) --no-print-directory check >.venv/check.log 2>&1 & \
	$(BIN)/pytest $(SUITE) -m 'not exhaustive' $(ARGS); tests=$$?; \
	wait $$!; checks=$$?; tail -n $$((checks ? 1000 : 1)) .venv/check.log; exit $$((tests + checks))

test-all: check ## the same with the long forms of tests, in an order drawn anew each time
	WINDLASS_HYPOTHESIS_PROFILE=all $(BIN)/pytest -p randomly $(SUITE) $(ARGS)

bench: $(STAMP) ## measure the store beside the raw drivers; ARGS=http|whole|schedules: more of it
	$(BIN)/python -m tests.bench $(ARGS)

mutants: $(STAMP) ## remove each guard in turn and see its test fail
	$(BIN)/python -m tests.mutants $(ARGS)

soak-store: $(STAMP) ## the long profile of the store's model tests
	WINDLASS_HYPOTHESIS_PROFILE=long $(BIN)/pytest tests/queue/test_model.py tests/queue/test_model_open.py $(ARGS)

fuzz: $(STAMP) ## 130,000 hostile requests on both databases, broken framing among them: some seven minutes
	$(BIN)/python -m tests.fuzz $(ARGS)

lock: $(STAMP) ## write the requirements files anew: newest versions, with the hashes of all their files
	$(BIN)/python -m tests.packages lock

sbom: $(STAMP) ## write sbom.json, the bill of materials (CycloneDX) of what is installed
	$(BIN)/python -m tests.packages sbom sbom.json

audit: $(STAMP) $(AUDIT) ## ask whether vulnerabilities are known: 0 none, 1 some, 2 nobody could be asked
	@$(BIN)/python -m tests.packages audit $(AUDIT)/bin/pip-audit

proofs: $(STAMP) ## kill, stop and restart servers, workers and databases under load, move clocks: over an hour
	$(BIN)/python -m tests.proofs failover $(ARGS)
	$(BIN)/python -m tests.proofs stops $(ARGS)
	$(BIN)/python -m tests.proofs restarts $(ARGS)
	$(BIN)/python -m tests.proofs memory $(ARGS)
	$(BIN)/python -m tests.proofs deaths $(ARGS)
	$(BIN)/python -m tests.proofs scale $(ARGS)
	$(BIN)/python -m tests.proofs slots --fast $(ARGS)
	$(BIN)/python -m tests.proofs clocks $(ARGS)
	$(BIN)/python -m tests.proofs starts $(ARGS)
	$(BIN)/python -m tests.proofs idle $(ARGS)
	$(BIN)/python -m tests.proofs neighbours $(ARGS)
	$(BIN)/python -m tests.proofs year $(ARGS)
	$(BIN)/python -m tests.proofs dst $(ARGS)
