# make demo     set up, then validate, benchmark and report on benchmark_config.yaml
# make test     set up, then lint, types, import contracts and all tests that need no system beside the package
# make test-systems  tests with Nsight Systems, Slurm, pods and a browser, and those on further Pythons
# make fast     lint, types, import contracts and the tests that start no process and need no torch
# make fix      apply the fixes that ruff knows, and format the code
# make pythons  tests of the core on the oldest and the newest further Python of this machine
# make torches  tests that a version of torch can break, on other versions; one alone: make torches TORCH=newest
# make mutants  change modules at random and list the changes that no test notices
# make corpus   analyze every recording and dump in a directory, a row each: make corpus DIR=traces
# make install  set up alone: .venv/bin/torchscale works afterwards
# make site     the documentation as a site in build/site
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := results/demo
# Of Nsight Systems, as in tests/nsight.py.
NSIGHT := 2023.4
# Changes of each module that `make mutants` tries.
SAMPLE := 15
# Two more than there are cores: many tests wait for processes to start, or for one to hang. All tests took 155 % of two
# cores with three workers, and 165 % with four.
WORKERS ?= $(shell expr $$(nproc) + 2)
SIDE_BY_SIDE = -n $(WORKERS) --dist loadscope --no-loadscope-reorder

# Tests start hundreds of processes that import the same modules: Python keeps what it compiled for the first.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-systems fast fix lint types contracts nsight unit unit-fast unit-quiet unit-systems pythons torches mutants corpus campaign faults site clean

help:
	@sed -n 's/^# make/make/p' Makefile

install: $(VENV)/.installed

# System packages and Python's are fetched at the same time; pip says nothing before it is done.
INSTALLING = @echo "Installing torchscale and about 110 packages into $(VENV): 2 GB with PyTorch for CPUs, several more for CUDA. From a cache a minute; else as long as the network takes for them"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(INSTALLING)
	sh scripts/system-packages.sh report & packages=$$!; \
	$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all]' && wait $$packages
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	$(INSTALLING)
	sh scripts/system-packages.sh tests & packages=$$!; \
	$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]' && wait $$packages
	@touch $(VENV)/.installed $@

demo: install
	-$(BIN)/torchscale validate
	$(BIN)/torchscale benchmark benchmark_config.yaml --output-dir $(DEMO)
	$(BIN)/torchscale report $(DEMO) --format html --format pdf

# What is soon done comes first. Type checks run beside the tests, which often wait, but not beside those that judge
# times.
test: $(VENV)/.installed-dev
	$(MAKE) --jobs=2 lint contracts
	$(MAKE) --jobs=2 types unit
	$(MAKE) unit-quiet

test-systems: $(VENV)/.installed-dev nsight
	$(MAKE) --jobs=2 unit-systems pythons

fast: $(VENV)/.installed-dev
	$(MAKE) --jobs=4 --output-sync=target lint types contracts unit-fast

fix: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

contracts: $(VENV)/.installed-dev
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/reach.py --check
	$(BIN)/python scripts/code_figures.py --check

# Long tests come first, and tests that share a launch go to one worker (tests/conftest.py). In CI, tests that fail run
# once more.
unit: $(VENV)/.installed-dev
	$(BIN)/python scripts/once_more.py $(SIDE_BY_SIDE) -m "not quiet and not systems"

unit-systems: $(VENV)/.installed-dev nsight
	$(BIN)/python scripts/once_more.py $(SIDE_BY_SIDE) -m systems

unit-fast: $(VENV)/.installed-dev
	$(BIN)/pytest -q -n auto --dist worksteal -m "not slow" --ignore=tests/worker --ignore=tests/integration

# In the slow directories alone (tests/conftest.py): of all others, to collect the tests takes seconds.
unit-quiet: $(VENV)/.installed-dev
	$(BIN)/python scripts/once_more.py -m quiet tests/integration tests/worker

# Other than the Python of .venv; none is no failure.
pythons: $(VENV)/.installed-dev
	$(BIN)/python scripts/pythons.py

# Each takes 5 GB and three to five minutes. TORCH names one, as newest or 2.10.0.
torches: $(VENV)/.installed-dev
	$(BIN)/python scripts/torches.py $(TORCH)

# Of the modules that judge and that must not lose or reveal anything; more with SAMPLE=40, all with 0.
mutants: $(VENV)/.installed-dev
	$(BIN)/python scripts/mutants.py --sample $(SAMPLE)

# Of any directory; nothing is fetched. OPTIONS takes those of the script, as --json.
corpus: $(VENV)/.installed-dev
	$(BIN)/python scripts/corpus.py $(OPTIONS) $(if $(DIR),$(DIR),$(error name a directory: make corpus DIR=traces))

# The profiler that tests record with. Where it cannot be fetched (no network, no Debian), those tests are skipped here,
# and fail in CI.
nsight:
	-sh scripts/nsight-systems.sh $(NSIGHT)

# The long measurements behind the figures in docs/tested-on.md; hours, on a quiet machine.
campaign: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/fidelity.py --processes 10
	$(BIN)/python benchmarks/fidelity.py --model resnet18 --image-size 64 --batch-size 8
	$(BIN)/python benchmarks/fidelity.py --launches --pairs 20
	for strategy in fsdp tensor pipeline; do \
	  $(BIN)/python benchmarks/fidelity.py --model tiny-decoder --strategy $$strategy --ranks 2 --batch-size 8 --processes 10; \
	done
	$(BIN)/python benchmarks/fidelity_family.py --processes 5
	$(BIN)/python benchmarks/fidelity_family.py --launches 8 --heap
	$(BIN)/python benchmarks/fidelity_copies.py --rounds 8
	$(BIN)/python benchmarks/overhead.py --pairs 10
	$(BIN)/python benchmarks/sweep_efficiency.py --repeats 5
	$(BIN)/python benchmarks/sweep_efficiency.py --cells 60
	$(BIN)/python benchmarks/sweep_efficiency.py --cells 1 --steps 300 --repeats 8
	$(BIN)/python benchmarks/collectives.py --pairs 30
	$(BIN)/python benchmarks/telemetry.py --pairs 30
	$(BIN)/python benchmarks/signals.py --processes 10
	$(BIN)/python benchmarks/diagnosis.py
	$(BIN)/python benchmarks/hang_autopsy.py
	$(BIN)/python benchmarks/job_causes.py
	$(BIN)/python benchmarks/job_causes.py --failures
	$(BIN)/python benchmarks/watch.py
	PYTHONPATH=. $(BIN)/python benchmarks/watch_device.py
	PYTHONPATH=. $(BIN)/python benchmarks/strangers.py
	$(BIN)/python benchmarks/tuning.py
	$(BIN)/python benchmarks/prediction_nodes.py
	$(BIN)/python benchmarks/trace_analysis.py
	PYTHONPATH=. $(BIN)/python benchmarks/comparison.py
	PYTHONPATH=. $(BIN)/python benchmarks/large_report.py
	PYTHONPATH=. $(BIN)/python benchmarks/large_run.py
	PYTHONPATH=. $(BIN)/python benchmarks/summary.py
	for version in 2022.4 2023.4 2024.2; do sh scripts/nsight-systems.sh $$version; done
	$(BIN)/python benchmarks/nsys_recordings.py --kineto
	TORCHSCALE_CAMPAIGN=1 $(BIN)/pytest -m "slow and not quiet"
	TORCHSCALE_CAMPAIGN=1 $(BIN)/pytest tests/config/test_fuzz.py tests/features/trace/readers/test_fuzz.py tests/store/test_damaged_files.py tests/scripts

# Every fault of the table, and the table (build/faults.md): about half an hour.
faults: $(VENV)/.installed-dev
	TORCHSCALE_CAMPAIGN=1 $(BIN)/pytest -m faults --timeout 7200

# Broken links, broken anchors and pages that the navigation lacks are errors (not with --quiet, which counts none).
site: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
