# Everything here sets up what it needs first: a Python (3.10 or later) and make are enough.

# python3, or where that is too old, the newest that is found; or the one you name.
FITS := -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
  "$$python" $(FITS) && { echo "$$python"; exit; }; done; echo python3)
endif
ARGS ?=
PY := .venv/bin/python

# A Python that was asked for by name is the one to use, even where .venv has another already.
SAME_PYTHON := $(if $(filter command line environment,$(origin PYTHON)),--same-python)

# Handed to the demo through the environment, so that a folder's name may hold anything; only from
# make's command line, so that a DIR that some shell exports means nothing here.
export DIR
export LOSE
GIVEN = $(filter command,$(origin $(1)))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv demo test test-slow test-spark35 simulate bench wheel lock audit lint format types synth deploy clean distclean

help: ## What there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# What runs PYTHON itself says first what is wrong with it.
.PHONY: python
python:
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "error: there is no $(PYTHON): install Python 3.10 or later, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" $(FITS) || { \
	  version=`"$(PYTHON)" --version 2>&1`; \
	  echo "error: $(PYTHON) is no Python 3.10 or later ($${version:-it does not run}): name one: make PYTHON=/path/to/python3" >&2; exit 1; }

venv: python ## Set up .venv (every other target does this first)
	@"$(PYTHON)" tools/venv.py $(SAME_PYTHON)

demo: venv ## The whole way on this machine: DIR=folder for your own files, LOSE=what to lose
	@$(PY) -m demo $(if $(call GIVEN,DIR),--dir "$$DIR") $(if $(call GIVEN,LOSE),--lose "$$LOSE") $(ARGS)

test: lint types ## Lint, types and the tests but the slow ones
	@$(PY) -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: venv ## The slow tests, and the types of the CDK
	@$(PY) -m mypy --config-file= --python-version 3.10 --strict --follow-imports=silent \
	  --cache-dir .mypy_cache/infra-slow -p infra -p xorack.cdk
	@$(PY) -m pytest -m slow $(ARGS)

test-spark35: python ## The library's Spark part on PySpark 3.5, in a .venv-spark35 of its own
	@"$(PYTHON)" -m tools.spark35 $(ARGS)

simulate: venv ## Simulate the acker: SEEDS=how many schedules (1000), FIRST=the first seed
	@$(PY) -m tests.simulation --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0) $(ARGS)

bench: venv ## Measure, and write docs/benchmarks.md: ARGS="--quick", ARGS="peel memory ..."
	@$(PY) -m bench $(ARGS)

lint: venv ## ruff: lint and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: venv ## mypy, strict
	@$(PY) -m mypy
	@$(PY) -m mypy --config-file infra/mypy.ini --cache-dir .mypy_cache/infra -p infra

format: venv ## Let ruff format and mend what it can
	@$(PY) -m ruff check --fix --quiet . || true
	@$(PY) -m ruff format .

synth: venv ## Write the CloudFormation template to cdk.out
	@$(PY) -m infra.synth --out cdk.out $(ARGS)

deploy: venv ## Deploy to your AWS account: ARGS="-c batch_size=500 ..."
	@PATH="$(CURDIR)/.venv/bin:$$PATH" npm ci --no-audit --no-fund --loglevel=error
	@PATH="$(CURDIR)/.venv/bin:$$PATH" npx --no-install cdk deploy $(ARGS)

wheel: venv ## Build dist/xorack-*.whl: pure Python, one for all platforms
	@rm -rf build # what was there before, and is gone, would go into the wheel
	@$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --wheel-dir dist .
	@ls dist/*.whl

lock: python ## Renew requirements.lock: ARGS="--upgrade", ARGS="--upgrade-package click"
	@"$(PYTHON)" -m tools.dependencies lock $(ARGS)

audit: python ## Look for known vulnerabilities of what is locked: ARGS="-s osv" asks OSV
	@"$(PYTHON)" -m tools.dependencies audit $(ARGS)

clean: ## Remove what was built, not .venv
	@rm -rf cdk.out node_modules .demo .bench spark-warehouse metastore_db derby.log build dist *.egg-info \
	  .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	@rm -rf .venv .venv-*
