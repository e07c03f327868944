# Every door of the project. `make` alone lists them.

.DEFAULT_GOAL := help
.PHONY: help setup chat test test-long cover check reference format prove bench lock clean

# Programs start in half the time when Python may keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# Two more than the cores that most have: a good part of the tests waits for processes and servers.
WORKERS ?= 4
# Seconds after which the two parts of `make test` count as hanging. A busy machine may take much longer than a quiet one.
ALONE_SECONDS_MAX ?= 900
TEST_SECONDS_MAX ?= 3000
# The first of these that is Python 3.11 or newer; `make setup PYTHON=/some/python` overrules the search.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$name"; break; }; done)

help: ## list the doors
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.package ## create .venv from the hash-pinned requirements

# Twice quiet: errors only. Modules are compiled when they are first used, which most never are.
PIP_INSTALL := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-input

# New requirements make a new environment, so that nothing of the old one stays behind. --no-deps: the files name
# everything. pip before 23.3 otherwise fails once a package that is wanted with an extra has a newer release.
$(VENV)/.requirements: requirements/dev.txt
	@test -n "$(PYTHON)" || { echo "Hansard needs Python 3.11 or newer; none was found. Install one, or: make setup PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV): about a minute, once."
	@"$(PYTHON)" -m venv --clear $(VENV)
	@$(PIP_INSTALL) --no-deps --require-hashes --requirement requirements/dev.txt
	@touch $@

$(VENV)/.package: $(VENV)/.requirements pyproject.toml
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# Without a model in the environment or on this machine, the small demo model is fetched first.
chat: setup ## talk to Hansard
	@$(BIN)/hansard models install-demo --if-needed
	@$(BIN)/hansard

# Tests that need the machine to themselves go first, in one process; the rest share the cores.
test: setup ## run every ring of tests; HANSARD_SEED=n repeats a run
	@scripts/system-packages
	@$(BIN)/python scripts/synapse.py || echo "Synapse cannot be installed: tests that need a homeserver are skipped." >&2
	@$(BIN)/python scripts/mcp_time.py || echo "mcp-server-time cannot be installed: tests that need it are skipped." >&2
	@files=$$(grep -rls --include='test_*.py' 'mark\.alone' tests); test -z "$$files" || \
		$(BIN)/python -m pytest $$files -m alone --costs --session-timeout=$(ALONE_SECONDS_MAX)
	$(BIN)/python -m pytest tests -m "not alone" -n $(WORKERS) --costs --session-timeout=$(TEST_SECONDS_MAX)

# One door for both: counts and limits are all that differs.
test-long: ## run every ring of tests with higher counts
	@HANSARD_LONG=1 $(MAKE) test TEST_SECONDS_MAX=7200 ALONE_SECONDS_MAX=1800

cover: setup ## report branch coverage of domain and record
	$(BIN)/python -m pytest tests -m "not alone" -n $(WORKERS) --cov --cov-report=term-missing

check: setup ## formatting, lint, types, import contracts and generated pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/reference.py --check
	$(BIN)/python scripts/configuration.py --check
	$(BIN)/python scripts/losses.py --check
	$(BIN)/python scripts/ranks.py --check
	$(BIN)/python -m tests.proof check

# The first line of docs/proof/guarantees.md says whether docs/proof/proof.json is of this code. It is compared by one hash of
# src/ and of the tests that `make prove` runs (tests/proof.py), so the first change after a proof makes the line untrue,
# `make check` says so, and this writes the true one. Further changes leave it as it is, until the next proof.
reference: setup ## write the reference, and the generated tables and lines of other pages, from the code
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/configuration.py
	$(BIN)/python scripts/losses.py
	$(BIN)/python scripts/ranks.py
	$(BIN)/python -m tests.proof line

format: setup ## let ruff format and repair what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

PROVE := HANSARD_PROVE=1 $(BIN)/python -m pytest --timeout=5400
# The proof is written whether or not the tests passed: a violation belongs in it.
prove: setup ## the full counts of kills, cuts, faults and seeds; writes docs/proof/proof.json
	@scripts/system-packages
	@$(BIN)/python scripts/synapse.py || echo "Synapse cannot be installed: what needs a homeserver is not proved." >&2
	@rm -rf .prove; $(BIN)/python -m tests.proof begin; status=0; rings=$$($(BIN)/python -m tests.proof rings); \
	$(PROVE) $$rings -m alone --junitxml=.prove/alone.xml || status=$$?; \
	$(PROVE) $$rings -m "not alone" -n $(WORKERS) --costs --junitxml=.prove/shared.xml || status=$$?; \
	$(BIN)/python -m tests.proof end && $(BIN)/python -m tests.proof line && exit $$status

bench: setup ## measure record, turns and gateway against floors and peers
	$(BIN)/python bench/record.py
	$(BIN)/python bench/floor.py
	$(BIN)/python bench/turn.py
	$(BIN)/python bench/sessions.py
	$(BIN)/python bench/search.py
	$(BIN)/python bench/gateway.py
	$(BIN)/python bench/context.py
	$(BIN)/python bench/compaction.py

# Universal files without any index address: pip asks whichever index the machine is set up with.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: setup ## pin the newest allowed versions again (requirements/*.txt)
	$(PIP_INSTALL) uv
	$(LOCK) --upgrade pyproject.toml --output-file requirements/runtime.txt
	$(LOCK) --upgrade pyproject.toml --group dev --constraints requirements/runtime.txt --output-file requirements/dev.txt
	$(LOCK) --upgrade --group pyproject.toml:build --constraints requirements/dev.txt --output-file requirements/build.txt
	$(LOCK) --upgrade --group pyproject.toml:synapse --output-file requirements/synapse.txt
	$(LOCK) --upgrade --group pyproject.toml:mcp-time --output-file requirements/mcp-time.txt

clean: ## remove the environment, caches and reports
	rm -rf $(VENV) .synapse .synapse.lock .mcp-time .mcp-time.lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .prove .envs .coverage .coverage.* build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
