# `make` alone lists the targets. PYTHON=python3.12 names another Python, LESSON=04 one lesson,
# LAB_FLAGS=--no-browser whatever JupyterLab should be told.
PYTHON ?= python3
PY := .venv/bin/python
# A folder wheels/, as `make bundle` makes it, stands in for the network.
PIP := $(PY) -m pip --disable-pip-version-check install $(if $(wildcard wheels),--no-index --find-links wheels) -c constraints.txt
LAB_FLAGS ?=
LESSON ?=
# Tests of its optimizers use torchao from a folder of its own: in .venv it would disturb transformers.
TORCHAO := 0.18.0
OLD := This course needs Python 3.11 or newer: say where one is, as in PYTHON=python3.12.

# Threads that wait for one another sleep instead of spinning: on busy cores the small models train 20 times faster.
export OMP_WAIT_POLICY := PASSIVE
# What a terminal cannot show becomes a question mark, and no error.
export PYTHONIOENCODING ?= :replace

.PHONY: help lab run test test-colab test-oldest test-newest test-bundle build compare bench slider gpu sizes classroom colab bundle constraints clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

# The two variables keep a kernel named python3 of the user's own from taking the place of the course's.
lab: .venv/learner ## Open JupyterLab on lesson 00, in work/, your own copy
	@$(PY) tools/workspace.py
	cd work && JUPYTER_PATH= JUPYTER_PREFER_ENV_PATH=1 ../$(PY) -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_FLAGS)

run: .venv/learner ## Run every lesson, or LESSON=04: seconds, peak memory, result
	$(PY) tools/run.py $(LESSON)

test: .venv/maintainer .torchao/$(TORCHAO) ## Run every test
	$(PY) -m ruff check .
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-colab: .venv/maintainer ## Run the lessons with Colab's versions, from the zip of `make colab`
	PYTHONPATH=tools $(PY) tests/environments.py colab

test-oldest: .venv/maintainer ## Run the lessons with the oldest versions that requirements.txt admits
	PYTHONPATH=tools $(PY) tests/environments.py oldest

test-newest: .venv/maintainer ## Run the lessons with the newest versions there are
	PYTHONPATH=tools $(PY) tests/environments.py newest

build: .venv/maintainer ## Rebuild notebooks and pictures from sources/, or LESSON=04 alone
	$(PY) tools/build.py $(LESSON)

compare: .venv/learner ## Measure anew what lesson 10 compares: 10 to 25 minutes on two cores
	$(PY) benchmarks/compare.py

slider: .venv/maintainer ## Measure how long pictures take to follow their sliders in a browser: two minutes
	$(PY) benchmarks/slider.py

gpu: .venv/maintainer ## Check and measure on a CUDA GPU, ten minutes at most: tests, lessons 06 to 10, a table
	$(PY) benchmarks/gpu.py

# Without the waiting policy, as most programs run.
bench: .venv/learner ## Time the steps of optimizers side by side: some minutes
	env -u OMP_WAIT_POLICY $(PY) benchmarks/steps.py

sizes: .venv/maintainer .torchao/$(TORCHAO) ## Measure every kind of optimizer state against its prediction: a few minutes
	$(PY) benchmarks/state_sizes.py

classroom: .venv/maintainer ## Make classroom/, for teaching with nbgrader: exercises/README.md says how
	@$(PY) tools/classroom.py

colab: .venv/maintainer ## Make dist/adafactor-course.zip, to upload to a Colab session
	@$(PY) tools/colab.py

bundle: .venv/learner ## Make a folder in dist/ that installs without a network on machines like this one
	@$(PY) tools/bundle.py

test-bundle: .venv/maintainer ## Install that folder, and run a lesson, with the network cut off
	COURSE_TEST_BUNDLE=1 $(PY) -m pytest tests/test_bundle.py

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
