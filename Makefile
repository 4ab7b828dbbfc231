# `make` alone lists the targets. PYTHON=python3.12 names another Python, LESSON=04 one lesson,
# LAB_FLAGS=--no-browser whatever JupyterLab should be told.
PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install -c constraints.txt
LAB_FLAGS ?=
LESSON ?=
# Tests of its optimizers use torchao from a folder of its own: in .venv it would disturb transformers.
TORCHAO := 0.18.0
OLD := This course needs Python 3.11 or newer: say where one is, as in PYTHON=python3.12.

# Threads that wait for one another sleep instead of spinning: on busy cores the small models train 20 times faster.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: help lab run test build compare classroom constraints clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

# The two variables keep a kernel named python3 of the user's own from taking the place of the course's.
lab: .venv/learner ## Open JupyterLab on lesson 00, in work/, your own copy
	@$(PY) tools/workspace.py
	cd work && JUPYTER_PATH= JUPYTER_PREFER_ENV_PATH=1 ../$(PY) -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_FLAGS)

run: .venv/learner ## Run every lesson, or LESSON=04: seconds, peak memory, result
	$(PY) tools/run.py $(LESSON)

test: .venv/maintainer .torchao/$(TORCHAO) ## Run every test
	$(PY) -m ruff check .
	$(PY) -m pytest

build: .venv/maintainer ## Rebuild notebooks and pictures from sources/, or LESSON=04 alone
	$(PY) tools/build.py $(LESSON)

compare: .venv/learner ## Measure anew what lesson 10 compares: 10 to 25 minutes on two cores
	$(PY) benchmarks/compare.py

classroom: .venv/maintainer ## Make classroom/, for teaching with nbgrader: exercises/README.md says how
	@$(PY) tools/classroom.py

constraints: .venv/maintainer ## Write constraints.txt from what .venv holds
	$(PY) -m pip freeze --all --exclude-editable --exclude pip | sed 's/+.*//' > constraints.txt

clean: ## Remove .venv and caches; work/ is kept
	rm -rf .venv .torchao .pytest_cache .ruff_cache *.egg-info

.venv/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and '$(OLD)')"
	$(PYTHON) -m venv .venv && touch $@

.venv/learner: .venv/python requirements.txt constraints.txt pyproject.toml
	$(PIP) -r requirements.txt setuptools
	$(PIP) --no-deps --no-build-isolation -e . && touch $@

.venv/maintainer: .venv/learner requirements-dev.txt
	$(PIP) -r requirements-dev.txt && touch $@

# Without it, as without a network, its tests say so and are skipped.
.torchao/$(TORCHAO): .venv/python
	-rm -rf .torchao && $(PIP) --no-deps --target .torchao torchao==$(TORCHAO) && touch $@
