# make demo     set up, then validate, benchmark and report on benchmark_config.yaml
# make test     set up, then lint, types, import contracts and all tests
# make install  set up alone: .venv/bin/torchscale works afterwards
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := results/demo

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types contracts unit campaign clean

help:
	@sed -n 's/^# //p' Makefile

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	sh scripts/system-packages.sh report
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	sh scripts/system-packages.sh tests
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: install
	-$(BIN)/torchscale validate
	$(BIN)/torchscale benchmark benchmark_config.yaml --output-dir $(DEMO)
	$(BIN)/torchscale report --source $(DEMO) --format html --format pdf

test: lint types contracts unit

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

contracts: $(VENV)/.installed-dev
	$(BIN)/lint-imports --no-cache

unit: $(VENV)/.installed-dev
	$(BIN)/pytest -n auto --dist worksteal -m "not quiet"
	$(BIN)/pytest -m quiet

# The long measurements behind the figures in docs/tested-on.md; hours, on a quiet machine.
campaign: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/fidelity.py --processes 10
	$(BIN)/python benchmarks/fidelity.py --model resnet18 --image-size 64 --batch-size 8
	$(BIN)/python benchmarks/fidelity.py --launches --pairs 20
	for strategy in fsdp tensor pipeline; do \
	  $(BIN)/python benchmarks/fidelity.py --model tiny-decoder --strategy $$strategy --ranks 2 --batch-size 8 --processes 10; \
	done
	$(BIN)/python benchmarks/overhead.py --pairs 10
	$(BIN)/python benchmarks/sweep_efficiency.py --repeats 5
	$(BIN)/python benchmarks/collectives.py --pairs 30
	$(BIN)/python benchmarks/telemetry.py --pairs 30
	$(BIN)/python benchmarks/signals.py --processes 10
	$(BIN)/python benchmarks/diagnosis.py
	$(BIN)/python benchmarks/trace_analysis.py
	PYTHONPATH=. $(BIN)/python benchmarks/comparison.py
	PYTHONPATH=. $(BIN)/python benchmarks/large_report.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
