# Regatta's targets. `make` alone lists them.
#
# Set variables on the command line: make campaign CONFIG=my.yaml. Paths may contain spaces, but no dollar sign and no
# quotation mark. All recipes run in this folder; from elsewhere: make -C /path/to/regatta ...

VENV ?= .venv
PYTHON ?=
CONFIG = config/config.yaml
PROFILE = profiles/local
ARGS =
FILE =
BENCHMARK =
FOR = paper
NAME =
A =
B =

# A path that begins with a dash would be parsed as an option.
ifneq ($(filter -%,$(firstword $(VENV))),)
override VENV := ./$(VENV)
endif
ifneq ($(filter -%,$(firstword $(CONFIG))),)
override CONFIG := ./$(CONFIG)
endif
ifneq ($(filter -%,$(firstword $(FILE))),)
override FILE := ./$(FILE)
endif

# Use only what is installed in VENV: no user site-packages, no PYTHONPATH from a shell start-up file.
export VENV PYTHON CONFIG PROFILE FILE BENCHMARK FOR NAME A B
export PYTHONNOUSERSITE = 1
unexport PYTHONPATH PYTHONHOME

SHELL = /bin/sh
INSTALL = @sh requirements/install.sh "$$VENV"
# Not bin/codespell etc.: those scripts contain the path at which the environment was created.
IN_VENV = @"$$VENV/bin/python3" -m
# Omit --configfile for the default campaign, so that `make campaign` and `snakemake --profile ...` are equivalent.
ifneq ($(CONFIG),config/config.yaml)
CONFIGFILE = --configfile "$$CONFIG"
endif
SNAKEMAKE_OPTIONS = $(CONFIGFILE) --profile "$$PROFILE" $(ARGS)
WORKFLOW_FILES = Snakefile workflow/Snakefile workflow/rules
PYTEST = PYTHONDONTWRITEBYTECODE= "$$VENV/bin/python3" -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL = help
.NOTPARALLEL:
.SUFFIXES:
.PHONY: bench campaign clean-env compare env env-dev env-driver figures format gate help index lint lock new-benchmark
.PHONY: plan report submit test test-all test-site try watch

help: ## list targets and variables
	@echo "make TARGET [VARIABLE=value ...]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' Makefile
	@echo "Variables:"
	@echo "  CONFIG      campaign file (current: $$CONFIG)"
	@echo "  PROFILE     Snakemake profile: local or slurm (current: $$PROFILE)"
	@echo "  VENV        Python environment (current: $$VENV); Regatta never changes one that it did not create"
	@echo "  PYTHON      interpreter for a new environment, such as python3.12 (3.11 or newer)"
	@echo "  FOR         paper (figures one column wide) or slides (16:9)"
	@echo "  A, B        two campaigns to compare: names, results folders or files"
	@echo "  ARGS        additional arguments for Snakemake (campaign, plan, gate), pytest (test), uv (lock), compare.py, watch.py, index_results.py, run_all.py (bench)"
	@echo "If a run fails, make prints the run's exit status ('Error 3') and exits with 2:"
	@echo "  1  unexpected error, or gate failed         3  some planned measurements have no record"
	@echo "  2  user error: campaign, command line       4  nothing measured"
	@echo "  5  gate undecided: too few or too noisy launches"
	@echo "  To get that status, run python3 workflow/scripts/run_campaign.py CONFIG --profile PROFILE"

campaign: ## run a campaign: measure what is not yet in the results, then build the report
	$(INSTALL) campaign
	@exec "$$VENV/bin/python3" workflow/scripts/run_campaign.py "$$CONFIG" $(SNAKEMAKE_OPTIONS)

submit: ## run a campaign from a Slurm job, so that no login session has to stay open
	$(INSTALL) driver
	@exec "$$VENV/bin/python3" workflow/scripts/submit.py "$$CONFIG" --profile "$$PROFILE" $(ARGS)

plan: ## show what would run, why, and how long it would take; nothing runs
	$(INSTALL) driver
	@exec "$$VENV/bin/python3" workflow/scripts/run_campaign.py "$$CONFIG" plan $(SNAKEMAKE_OPTIONS)

gate: ## run a campaign, then fail if a cell is not ok or slower than in gate.baseline_campaign
	$(INSTALL) campaign
	@exec "$$VENV/bin/python3" workflow/scripts/run_campaign.py "$$CONFIG" gate $(SNAKEMAKE_OPTIONS)

compare: ## compare two campaigns, and fail if a cell of B is slower: A=before B=after
	$(INSTALL) driver
	@"$$VENV/bin/python3" workflow/scripts/compare.py $(ARGS) -- "$$A" "$$B"

try: ## show what `read` of a program finds in a saved output: FILE=old.log, BENCHMARK=name
	$(INSTALL) driver
	@"$$VENV/bin/python3" workflow/scripts/try_output.py "$$CONFIG" "$$FILE" $(if $(BENCHMARK),--benchmark "$$BENCHMARK")

new-benchmark: ## write a benchmark outside this folder, its campaign and its test: NAME=../bench/my_step
	$(INSTALL) driver
	@"$$VENV/bin/python3" workflow/scripts/new_benchmark.py -- "$$NAME"

report: ## rebuild the report from existing measurements, also while the campaign runs
	$(INSTALL) driver
	@"$$VENV/bin/python3" workflow/scripts/rebuild_report.py -- "$$CONFIG"

figures: ## write each figure of the report as PDF, SVG and PNG, with its data and a caption: FOR=paper or slides
	$(INSTALL) driver
	@"$$VENV/bin/python3" workflow/scripts/export_figures.py --for "$$FOR" -- "$$CONFIG"

watch: ## show a running campaign in the terminal; Ctrl-C ends the view, not the campaign
	$(INSTALL) driver
	@"$$VENV/bin/python3" workflow/scripts/watch.py $(ARGS) -- "$$CONFIG"

index: ## list all campaigns in results/index.html, with the history of key figures
	$(INSTALL) driver
	@"$$VENV/bin/python3" workflow/scripts/index_results.py $(ARGS)

test: ## run the unit, rank and workflow tests
	$(INSTALL) driver rank dev
	@$(PYTEST) -m "not install and not system" --ignore tests/cluster --ignore tests/browser $(ARGS)

# axe-core checks pages for accessibility. The lock has its hash, and no registry's address.
AXE = requirements/node_modules/.package-lock.json
$(AXE): requirements/package-lock.json
	@npm ci --prefix requirements --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null

test-site: $(AXE) ## run the Slurm cluster, browser, installation and system tests (needs root, debootstrap, chromium, npm)
	$(INSTALL) driver rank dev
	@$(PYTEST) -m "cluster or browser or install or system" --ignore tests/bench $(ARGS)

test-all: test test-site ## run all tests, the random ones with more examples
test-all: export REGATTA_THOROUGH = 1

lint: ## check style and spelling, that tests assert values, and that no package grows
	$(INSTALL) driver dev
	$(IN_VENV) ruff check --output-format concise .
	$(IN_VENV) ruff format --check --output-format concise .
	$(IN_VENV) snakefmt --check $(WORKFLOW_FILES)
	$(IN_VENV) codespell_lib
	@"$$VENV/bin/python3" tests/sentence_count.py --quiet
	@"$$VENV/bin/python3" tests/code_lines.py --check

format: ## format all code
	$(INSTALL) driver dev
	$(IN_VENV) ruff check --fix --quiet --output-format concise .
	$(IN_VENV) ruff format --quiet .
	$(IN_VENV) snakefmt $(WORKFLOW_FILES)

bench: ## measure Regatta's overhead against its goals (docs/figures.md); ARGS=--write updates the table
	$(INSTALL) driver rank dev
	@exec "$$VENV/bin/python3" benchmarks/run_all.py $(ARGS)

env: ## create the environment
	$(INSTALL) driver rank

env-driver: ## create the environment without torch, for a cluster's login node
	$(INSTALL) driver

env-dev: ## create the environment with tests and linters
	$(INSTALL) driver rank dev

clean-env: ## remove the environment if Regatta created it
	@fail() { echo "$$*. Nothing was removed." >&2; exit 1; }; \
	[ -n "$$VENV" ] && [ -d "$$VENV/.regatta" ] || fail "$$VENV was not created by Regatta"; \
	[ ! -L "$${VENV%/}" ] || fail "$$VENV is a link. Specify its target: make clean-env VENV='$$(cd "$$VENV" && pwd -P)'"; \
	[ -O "$$VENV/.regatta" ] || fail "$$VENV belongs to $$(ls -ld "$$VENV/.regatta" | awk '{print $$3}')"; \
	[ -e "$$VENV/.regatta/made" ] || [ -e "$$VENV/.regatta/installing" ] || [ "$$(ls -A "$$VENV")" = .regatta ] || \
		fail "$$VENV contains a folder .regatta, but was not created by Regatta"; \
	path=$$(CDPATH= cd "$$VENV" && pwd -P); \
	case $$(pwd -P)/ in "$${path%/}"/*) fail "$$VENV contains the current folder" ;; esac
	rm -rf "$$VENV"

# Each set is constrained to the versions of the previous sets, so all three fit into one environment, and each package
# has one version for every Python. Valid pins are kept; to update them: make lock ARGS=--upgrade
COMPILE = cd requirements && uv pip compile --quiet --generate-hashes --universal --python-version 3.11 \
	--fork-strategy fewest --no-emit-index-url --custom-compile-command 'make lock' $(ARGS)
lock: ## pin requirements/*.in in *.lock, and axe-core; needs uv and npm
	$(COMPILE) driver.in -o driver.lock
	$(COMPILE) rank.in -c driver.lock -o rank.lock
	$(COMPILE) dev.in -c driver.lock -c rank.lock -o dev.lock
	npm install --prefix requirements --package-lock-only --omit-lockfile-registry-resolved
