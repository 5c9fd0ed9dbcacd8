# Run `make` to see what there is. Needs Python 3.11 or 3.12 (with venv); everything else is installed into .venv.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export PYTHON VENV DEVICE TORCH_INDEX MODEL EXIT LR STAGE
PORT ?= 8800
RUN := $(or $(VENV),.venv)/bin/python
export MARLAAS_WEB_PORT ?= $(PORT)
ifdef MODEL
export MARLAAS_MODEL := $(MODEL)
endif

.PHONY: help setup demo up down test bench bench-live bench-api bench-pages bench-console bench-service bench-usage soak screenshots

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[1mmake %-13s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  Settings: PORT=8800  MODEL=tiny-math|smollm2-135m|DIRECTORY|HUB/NAME  DEVICE=cpu|cuda  PYTHON=…  TORCH_INDEX=…"

setup: ## Install what running needs into .venv (quick when nothing changed)
	@deploy/install.sh run

demo: setup ## Three tenants train at once on this machine; leaves the site up. EXIT=1 ends with the jobs; LR=0 is the control run
	@exec $(RUN) -m deploy.demo

up: setup ## Start the site and its engine, and watch them until Ctrl-C
	@exec $(RUN) -m deploy.supervisor up

down: ## Stop what `make up` or `make demo` started
	@if [ -x $(RUN) ]; then exec $(RUN) -m deploy.supervisor down; else echo "Nothing is installed, so nothing runs."; fi

test: ## Run every test (half an hour on two cores). STAGE=unit|portal|postgres|browser|stack|torch|engine runs one stage
	@deploy/install.sh test
	@exec $$(deploy/install.sh which-test) -m tests.run $(STAGE)

bench: setup ## Measure all scheduling regimes on this machine; writes var/bench/. ARGS="--workload peer-tool" and the like for others
	@exec $(RUN) -m engine.bench --json var/bench/bench.json $(ARGS)

bench-live: ## Two hundred watchers over twenty jobs: from a step's stamp to their sockets; writes var/bench/live.json
	@deploy/install.sh test
	@exec $$(deploy/install.sh which-test) -m tests.load.live --json var/bench/live.json $(ARGS)

bench-api: ## Fifty programs ask at once while a job runs: the 99th percentile over the median; writes var/bench/api.json
	@deploy/install.sh test
	@exec $$(deploy/install.sh which-test) -m tests.load.api --json var/bench/api.json $(ARGS)

bench-pages: ## Charts of 32 × 10,000 points, a run of 10,000 steps, a list of 10,000 jobs; writes var/bench/pages.json (needs Chromium)
	@deploy/install.sh test
	@exec $$(deploy/install.sh which-test) -m tests.load.pages --json var/bench/pages.json $(ARGS)

bench-console: ## The operators' console over 32 jobs on the real engine: each page's time, and axe; writes var/bench/console.json. ARGS=--fakes: no models
	@deploy/install.sh test
	@exec $$(deploy/install.sh which-test) -m tests.load.console --json var/bench/console.json $(ARGS)

bench-service: ## Ten minutes of 200 watchers, 50 API clients and 8 jobs on the real engine; writes var/bench/service.json. ARGS=--fakes: no models
	@deploy/install.sh test
	@exec $$(deploy/install.sh which-test) -m tests.load.service --json var/bench/service.json $(ARGS)

bench-usage: ## The usage page over 5,000,000 ledger entries; writes var/bench/usage.json. ARGS="--postgres" takes PostgreSQL
	@deploy/install.sh test
	@exec $$(deploy/install.sh which-test) -m tests.load.usage --json var/bench/usage.json $(ARGS)

screenshots: ## Every page, wide and narrow, light and dark, into var/screenshots/ (needs Chromium)
	@deploy/install.sh test
	@exec $$(deploy/install.sh which-test) -m tests.browser.screenshots var/screenshots

soak: ## The tests that take too long for `make test`
	@deploy/install.sh test
	@exec $$(deploy/install.sh which-test) -m tests.run soak
