# Every target sets up what it needs, is safe to repeat, and is fast the second time.

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := build/compiled
PROTOS := $(wildcard proto/radixgate/v1/*.proto proto/externalscaler/*.proto)

.DEFAULT_GOAL := help
.PHONY: help install compiled up test test-fast test-fault lint fmt proto proto-check bench bench-attention bench-autoscaling bench-demand bench-engine bench-kv bench-eviction bench-index bench-gateway bench-simulator chart-readme dashboard test-kube test-fidelity clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Create the virtual environment in .venv with everything in it

$(STAMP): pyproject.toml constraints.txt
	@echo "installing into $(VENV); the first time this takes minutes, for torch is large"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

up: $(STAMP) ## Run Redis, a gateway and two workers with a real model; Ctrl-C stops all
	@$(BIN)/radixgate up

test: $(STAMP) ## Run all tests, except most orders in which parts can fail
	$(BIN)/python -m pytest -m "not long"

test-fast: $(STAMP) ## Run the pure unit and property tests (under a minute)
	$(BIN)/python -m pytest -m "not slow" -q

test-fault: $(STAMP) ## Kill and hang gateways, workers and Redis under load, in every order
	$(BIN)/python -m pytest tests/fault --durations=0

test-kube: $(STAMP) ## Install the chart with Helm into a small cluster of processes, and scale it
	$(BIN)/python -m pytest tests/kube --durations=0

test-fidelity: $(STAMP) ## Compare the simulator with three live workers; wants a quiet machine
	$(BIN)/python -m pytest tests/sim/test_fidelity.py -s --durations=0

lint: $(STAMP) proto-check ## Check format, lint, types, import layers and that the stubs are fresh
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fmt: $(STAMP) ## Format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: $(STAMP) ## Make the Python stubs from the .proto files
	$(call protoc,proto)

proto-check: $(STAMP) # Fails when the committed stubs differ from what `make proto` would write
	@fresh=$$(mktemp -d) && trap 'rm -rf $$fresh' EXIT && $(call protoc,$$fresh) && \
	for stub in $$(cd $$fresh && ls */*_pb2* */*/*_pb2*); do \
		cmp -s $$fresh/$$stub proto/$$stub || { echo "proto/$$stub is stale: run 'make proto' and commit"; exit 1; }; \
	done

dashboard: $(STAMP) ## Write the Grafana dashboard of deploy/dashboard into the Helm chart
	$(BIN)/python -m deploy.dashboard > deploy/helm/radixgate/files/dashboard.json

chart-readme: $(STAMP) ## Write the table of values in the Helm chart's README
	$(BIN)/python deploy/helm/readme.py

define protoc
PATH=$(abspath $(BIN)):$$PATH $(BIN)/python -m grpc_tools.protoc -Iproto \
	--python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS)
endef

bench: $(STAMP) ## Measure what a cache hit is worth; like all benchmarks it prints JSON
	@$(BIN)/python -m bench.prefix_reuse

bench-engine: $(STAMP) ## Compare the whole engine with transformers on a CPU, and llama.cpp if installed
	@$(BIN)/python -m bench.engine

bench-kv: $(STAMP) ## Compare the KV formats at one budget of bytes; draws docs/kv_formats.svg
	@$(BIN)/python -m bench.kv_formats

bench-eviction: $(STAMP) ## Replay public traces with each eviction policy
	@$(BIN)/python -m bench.eviction

bench-index: $(STAMP) ## Measure routing decisions and the upkeep of the index
	@$(BIN)/python -m bench.index

bench-gateway: $(STAMP) ## Measure what the gateway adds to a request, and how soon it knows of evictions
	@$(BIN)/python -m bench.gateway

bench-demand: $(STAMP) ## Measure what it costs a gateway to know the demand that scaling follows
	@$(BIN)/python -m bench.demand

bench-autoscaling: $(STAMP) ## Let a load outgrow its workers in a cluster of processes; draws docs/autoscaling.svg
	@$(BIN)/python -m bench.autoscaling

compiled: $(COMPILED)/.built ## Compile the modules that decide, into build/compiled; wants a C compiler

$(COMPILED)/.built: $(STAMP) deploy/compiled.py $(shell find proto gateway worker sim cli -name '*.py')
	@echo "compiling into $(COMPILED); that takes two minutes"
	@rm -rf $(COMPILED)
	@HATCH_BUILD_HOOKS_ENABLE=true $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --target $(COMPILED) .
	@touch $@

bench-simulator: $(COMPILED)/.built ## Measure what simulating 100,000 requests over 16 workers costs
	@PYTHONPATH=$(COMPILED):. $(BIN)/python -P -m bench.simulator

bench-attention: $(STAMP) ## Measure attention over paged KV beside torch's own
	@$(BIN)/python -m bench.attention

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
