# Every target makes the environment it needs, in .venv, from nothing but Python 3.11, make and (if there is one) gcc.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
COMPILED_SOURCES := $(wildcard src/barnabas/net/_*.pyx src/barnabas/wire/_*.pyx src/barnabas/wire/_*.pxi src/barnabas/records/_kernel*.pyx src/barnabas/records/_kernel*.pxi src/barnabas/records/_kernel*.h)
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help run run-broker test test-core test-clients test-spark test-pipelines explore sim lint format bench docs sanitize clean

help:
	@echo "make run         metric monitoring on a broker and on Spark, with a summary (needs Java 17); BROKERS=3 for a cluster"
	@echo "make run-broker  a broker, a producer and a consumer, without Spark"
	@echo "make test        everything that must pass: lint, types, layers, tests"
	@echo "make explore     the property tests alone, with new and many more examples"
	@echo "make sim         simulated histories: SEEDS=200 (or 300-399), MINUTES=10, SEED=17 replays one"
	@echo "make lint        ruff, mypy and import-linter alone"
	@echo "make format      rewrite the sources in the house's format"
	@echo "make bench       the measurements of benchmarks/"
	@echo "make docs        rewrite the generated pages and pictures, and build the site in build/site"
	@echo "make sanitize    fuzz the compiled kernel under AddressSanitizer"
	@echo "make clean       remove the environment and everything built"

$(VENV)/.runtime: pyproject.toml setup.py constraints.txt $(COMPILED_SOURCES)
	@echo "preparing $(VENV) (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -e .
	@$(BIN)/barnabas --version
	@touch $@

$(VENV)/.spark: $(VENV)/.runtime
	@echo "installing Spark (once; half a gigabyte)"
	@$(PIP_INSTALL) -e '.[spark]'
	@echo "preparing Spark's start (once; BARNABAS_CLASS_DATA=off leaves it out)"
	@$(BIN)/python -m barnabas.pipelines.class_data
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "installing the tools for development (once)"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@

# Whether there is a Java is asked before anything is installed. BROKERS=3 runs it on a cluster.
run:
	@PYTHONPATH=src $(PYTHON) -m barnabas.pipelines.java || { echo "'make run-broker' shows the broker without Spark" >&2; exit 1; }
	@$(MAKE) --no-print-directory $(VENV)/.spark
	@$(BIN)/python -m examples.demo $(if $(BROKERS),--brokers $(BROKERS))

run-broker: $(VENV)/.runtime
	@$(BIN)/python -m barnabas.cli.demo

# Spark's tests have processes of their own: a driver is shared by all tests of its process, and is theirs alone. All
# four parts wait much, for a JVM or for each other, so that three run at a time; the longest begins first.
test: lint
	@echo "tests: four parts, three at a time, about a quarter of an hour; each is shown when it ends"
	@$(MAKE) --no-print-directory --output-sync=target -j3 test-pipelines test-core test-clients test-spark

test-core: $(VENV)/.dev
	@$(BIN)/pytest -q --ignore=tests/compat --ignore=tests/faults --ignore=tests/pipelines --ignore=tests/spark

test-clients: $(VENV)/.dev
	@$(BIN)/pytest -q tests/compat tests/faults

test-spark: $(VENV)/.dev
	@$(BIN)/pytest -q tests/spark

test-pipelines: $(VENV)/.dev
	@$(BIN)/pytest -q tests/pipelines

# Where a test sets its own number of examples, that number stays.
explore: $(VENV)/.dev
	@BARNABAS_EXAMPLES=explore $(BIN)/pytest -q tests/property

# SEEDS=200 or 300-399; MINUTES=10 without SEEDS runs until then; SEED=17 replays one with its story and the log.
# BROKERS=5 makes them histories of a cluster, on a simulated ZooKeeper.
# MUTANTS=1 looks for the seeds that catch planted bugs, and records them for the tests.
# A second call goes on where the first ended. OPTIONS are passed on: see docs/simulation.md.
SEEDS ?= $(if $(MINUTES),,200)
sim: $(VENV)/.dev
	@$(if $(MUTANTS),$(BIN)/python -m tests.sim.mutants $(OPTIONS),$(BIN)/python -m barnabas.sim $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES))) $(if $(BROKERS),--brokers $(BROKERS)) $(OPTIONS))

lint: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet || { echo "run 'make format'"; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 4

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks

docs: $(VENV)/.dev
	@$(BIN)/python -m barnabas.cli.settings_page > docs/settings.md
	@$(BIN)/python -m barnabas.cli.metrics_page > docs/metrics.md
	@$(BIN)/python -m barnabas.pipelines.reference docs
	@$(BIN)/python -m tests.unit.project.test_pictures
	@$(BIN)/python -m sphinx -q -W --keep-going --fresh-env -c docs/site -d build/doctrees . build/site
	@echo "the site: build/site/index.html"

sanitize: $(VENV)/.dev
	@tests/sanitizer/run.sh

clean:
	rm -rf $(VENV) .cache build src/*.egg-info src/barnabas/*/_*.so
