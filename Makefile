# Each target first installs the packages that it needs. It requires Python 3.10 or later and make.

# The default is python3. If that is too old, use the newest Python on the PATH.
FITS := -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
  "$$python" $(FITS) && { echo "$$python"; exit; }; done; echo python3)
endif
ARGS ?=
PY := .venv/bin/python
VENV = "$(PYTHON)" tools/venv.py

# Without bytecode each worker compiles about a thousand modules, a quarter of the quick tests' time.
unexport PYTHONDONTWRITEBYTECODE

# npm trusts the certificates that the machine trusts, as pip and uv do.
export NODE_USE_SYSTEM_CA := 1

# If the caller sets PYTHON, it replaces the Python of an existing .venv.
SAME_PYTHON := $(if $(filter command line environment,$(origin PYTHON)),--same-python)

# Programs get these through the environment, because they may contain any character. Only make's
# command line sets them: a DIR that the shell exports is ignored.
export DIR
export LOSE
export STACK
GIVEN = $(filter command,$(origin $(1)))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv demo check test coverage test-slow test-spark35 test-all policy-lint simulate bench wheel lock audit lint format types types-cdk synth template bootstrap deploy destroy deployed clean distclean docs

help: ## List the targets
	@"$(PYTHON)" -c 'import re, sys; targets = re.findall("^([a-z0-9-]+):.*?## (.*)", open(sys.argv[1]).read(), re.M); \
	  print(*(f"  make {name:12} {does}" for name, does in targets), sep="\n")' $(firstword $(MAKEFILE_LIST))

# Check PYTHON before a target runs it.
.PHONY: python
python:
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "error: there is no $(PYTHON): install Python 3.10 or later, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" $(FITS) || { \
	  version=`"$(PYTHON)" --version 2>&1`; \
	  echo "error: $(PYTHON) is not Python 3.10 or later ($${version:-it does not run}): name one: make PYTHON=/path/to/python3" >&2; exit 1; }

venv: python ## Set up .venv, which the other targets do first
	@$(VENV) dev $(SAME_PYTHON)

.PHONY: venv-demo
venv-demo: python
	@$(VENV) demo $(SAME_PYTHON)

demo: venv-demo ## Run the demo on this machine: DIR=folder of your own files, LOSE=number of rows to lose
	@$(PY) -m demo $(if $(call GIVEN,DIR),--dir "$$DIR") $(if $(call GIVEN,LOSE),--lose "$$LOSE") $(ARGS)

deployed: venv ## Deploy a stack, examine it, delete it: STACK=name, ARGS=options of xorack doctor
	@$(PY) -m tools.deployed $(if $(call GIVEN,STACK),--stack "$$STACK") $(ARGS)

# One worker runs the tests of a file, and one worker all tests of Spark. There are four workers,
# because they often wait. xdist 3.8 supports groups only with a pytest before 9.2.
PYTEST := $(PY) -m pytest -n 4 --dist loadgroup --max-worker-restart=3

# Folders without Spark, embedded AWS, CDK and browser. Each worker imports every file that it collects.
QUICK := unit property functional

check: lint types subjects ## Run linters, types and quick tests, without Spark, embedded AWS, CDK and browser
	@$(PYTEST) -n 2 -m "not slow" $(QUICK:%=tests/%) $(ARGS)

test: lint types tests ## Run linters, types and all tests that are not slow

coverage: venv ## Run the tests of `make test`, and print the share of lines that they cover
	@$(PYTEST) -m "not slow" --cov --cov-report=term $(ARGS)

.PHONY: tests
tests: venv
	@$(PYTEST) -m "not slow" $(ARGS)

test-slow: venv ## Run the slow tests, and check the types of the CDK code
	@$(PYTEST) -n 3 -m slow $(ARGS)

test-spark35: python ## Run the tests marked each_version on PySpark 3.5, in .venv-spark35
	@$(VENV) spark35
	@JAVA_HOME="$$(PATH=.venv-spark35/bin JAVA_HOME= .venv-spark35/bin/python -c \
	  'from xorack.local.java import java_home; print(java_home())')" \
	  .venv-spark35/bin/python -m pytest -m "each_version and not slow" tests/spark $(ARGS)

test-all: ## Run test, test-slow and test-spark35, each also after a failure
	@$(MAKE) --keep-going --no-print-directory test test-slow test-spark35

policy-lint: venv ## Check the templates with cdk-nag, cfn-lint and checkov (docs/security.md)
	@$(PY) -m tools.policy_lint cdk.out/policy-lint
	@.venv/bin/cfn-lint
	@$(MAKE) --silent checkov ARGS="--directory cdk.out/policy-lint"

# Its packages contradict those of .venv. The proxy does not exist, so checkov runs offline.
OFFLINE := env HTTPS_PROXY=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9
.PHONY: checkov
checkov: venv
	@$(VENV) policy-lint >&2
	@$(OFFLINE) .venv-policy-lint/bin/checkov --config-file .checkov.yaml $(ARGS)

simulate: venv ## Simulate the acker: SEEDS=number of schedules (1000), FIRST=first seed (0)
	@$(PY) -m tests.simulation --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0) $(ARGS)

bench: venv ## Run the benchmarks: ARGS="--quick", ARGS="memory dynamodb ..."
	@$(PY) -m bench $(ARGS)

# NO_MKDOCS_2_WARNING: the theme, mkdocs-material, gets fixes until May 2027.
docs: venv ## Build the site of the docs, with the API reference, into site/
	@PATH="$(CURDIR)/.venv/bin:$$PATH" npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@$(VENV) docs
	@NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/.venv-docs/bin:$$PATH" mkdocs build

# Biome runs on the Node of .venv, or else on the machine's.
BIOME = $(PY) -m tests.support.npm tools/javascript && $(NODE) tools/javascript/node_modules/.bin/biome

lint: venv biome ## Check Python with ruff and JavaScript with Biome
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

.PHONY: biome
biome: venv # lint and format of JavaScript
	@$(BIOME) ci --error-on-warnings --log-level=warn

types: venv ## Check types with mypy, strict
	@$(PY) -m mypy

types-cdk: venv ## Check types with mypy, strict, and the types of the CDK, which takes minutes
	@$(PY) -m mypy --config-file= --python-version 3.10 --strict --follow-imports=silent \
	  --cache-dir .mypy_cache/infra-slow -p infra -p xorack.cdk

.PHONY: subjects
subjects: venv # Check the subjects of new commits
	@$(PY) -m tools.subjects

format: venv ## Format the code and apply the fixes of ruff and Biome
	@$(PY) -m ruff check --fix --quiet . || true
	@$(PY) -m ruff format .
	@$(BIOME) check --write --log-level=warn

synth: venv ## Write the CloudFormation template to cdk.out
	@$(PY) -m infra.synth --out cdk.out $(ARGS)

template: venv ## Write a template that needs no CDK, and the zip of its code, to cdk.out/template
	@$(PY) -m infra.template --out cdk.out/template $(ARGS)

# npm and Node are those of .venv, or else the machine's.
NODE = PATH="$(CURDIR)/.venv/bin:$$PATH"
INSTALL_CDK = $(NODE) npm ci --no-audit --no-fund --loglevel=error

bootstrap: venv ## Prepare your AWS account and region for the CDK (docs/deploy.md)
	@$(INSTALL_CDK)
	@$(NODE) npx --no-install cdk bootstrap $(ARGS)

deploy: venv ## Deploy to your AWS account: ARGS="-c batch_size=500 ...", in CI "--require-approval never"
	@$(NODE) $(PY) -m tools.preflight $(ARGS)
	@$(INSTALL_CDK)
	@$(NODE) npx --no-install cdk deploy $(ARGS)

destroy: venv ## Delete the stack except the resources that hold state (docs/deploy.md)
	@$(NODE) $(PY) -m tools.preflight $(ARGS)
	@$(INSTALL_CDK)
	@$(NODE) npx --no-install cdk destroy $(ARGS)

wheel: venv ## Build dist/xorack-*.whl, which is pure Python
	@rm -rf build # it may hold modules that no longer exist
	@$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --wheel-dir dist .
	@ls dist/*.whl

# Extra indexes are off, because an index with a few files of a version would hide the other hashes.
COMPILE = UV_INDEX= UV_FIND_LINKS= $(VENV) uv pip compile --quiet --universal --generate-hashes \
  --python-version 3.10 --no-header --no-emit-index-url --no-emit-find-links

lock: python ## Update the lock files: ARGS="--upgrade", ARGS="--upgrade-package click"
	@$(COMPILE) requirements.txt --group uv --group dev --group docs -o requirements.lock $(ARGS)
	@$(COMPILE) --group policy-lint -o tools/policy-lint.lock $(ARGS)
	@$(COMPILE) --group spark35 -o tools/spark35.lock $(ARGS)
	@$(COMPILE) --group embedded -o xorack/local/requirements.lock $(ARGS)

audit: python ## Find known vulnerabilities of the locked packages: ARGS="-s osv" asks OSV
	@$(VENV) uv tool run --quiet pip-audit==2.10.1 --requirement requirements.lock \
	  --require-hashes --disable-pip --strict --progress-spinner off $(ARGS)

clean: ## Remove all built files except .venv
	@rm -rf cdk.out node_modules tests/engines/node_modules tools/browser/node_modules tools/javascript/node_modules site .demo .bench spark-warehouse metastore_db derby.log build dist *.egg-info \
	  .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	@find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## Remove all built files and .venv
	@rm -rf .venv .venv-*
