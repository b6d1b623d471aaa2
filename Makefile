# Everything a developer or CI does, from nothing but make and Python 3.11 or newer with venv.

# Two environments of the same locked packages. DEV has the checkout itself, editable, for editors and linters.
# INSTALLED has the wheel, as users get it: tests run there, so that a file missing from the wheel fails.
# DEMO has only what the node daemon needs, then what the fleet page needs.
DEV := .venv
INSTALLED := .venv/installed
DEMO := .venv/demo
# SITE_TOOLS has what builds the documentation's site.
SITE_TOOLS := .venv/site

# A python3 without ensurepip (Debian's python3-venv) cannot make an environment, so it does not count.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; \
	done)

# Folders are in the list too: their time changes when a file goes away.
SOURCES := pyproject.toml hatch_build.py README.md LICENSE $(shell find exporter signatures -not -path '*/__pycache__*')

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# pytest keeps tests with their asserts rewritten as bytecode: without it, each worker spends 25 s on that in each run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help .package-tools lab test torture deploy-test go-tools soak demo lint format types docs screenshots site wheel deb rpm release release-check lock bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# Twice as many workers as processors: many tests wait for a daemon.
WORKERS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

lab: ## record crashes on this machine's GPU, for tests/lab/recordings; needs root and CUDA
	python3 tests/lab/record.py build/recording

test: $(INSTALLED)/.ready ## all tests except heavy ones, on the installed wheel; ARGS='tests/cli -x' passes these to pytest
	PYTHONSAFEPATH=1 $(INSTALLED)/bin/pytest -m 'not heavy' --numprocesses $(WORKERS) --dist worksteal $(ARGS)

torture: $(INSTALLED)/.ready ## hostile scenarios against the real daemon, including 1,000 kills
	GPUFAULT_TORTURE_KILLS=1000 PYTHONSAFEPATH=1 $(INSTALLED)/bin/pytest -m torture $(ARGS)

deploy-test: $(INSTALLED)/.ready go-tools ## tests of deploy/, with the real Prometheus, Alertmanager, Slurm and Helm if installed
	PYTHONSAFEPATH=1 $(INSTALLED)/bin/pytest -m deploy --numprocesses 2 --dist loadfile $(ARGS)

# Their modules are pinned by version here, and by hash in the checksum database that go asks.
HELM := .tools/helm@v3.22.0
NFPM := .tools/nfpm@v2.45.0
TOOLS := $(HELM) $(NFPM) .tools/crane@v0.22.1 .tools/operator \
	.tools/compose-spec@v2.16.2 .tools/node-problem-detector@v1.34.0

go-tools: $(if $(shell go version 2>&1 | grep -E 'go1\.(2[6-9]|[3-9][0-9])'),$(TOOLS)) ## Helm and others from their Go modules, for deploy-test; nothing without Go 1.26

.tools/helm@%:
	GOBIN='$(abspath $(@D))' go install helm.sh/helm/v3/cmd/helm@$*
	mv $(@D)/helm $@

.tools/nfpm@%:
	GOBIN='$(abspath $(@D))' go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$*
	mv $(@D)/nfpm $@

.tools/crane@%:
	GOBIN='$(abspath $(@D))' go install github.com/google/go-containerregistry/cmd/crane@$*
	mv $(@D)/crane $@

.tools/compose-spec@%:
	GOBIN='$(abspath $(@D))' go install github.com/compose-spec/compose-go/v2/cmd@$*
	mv $(@D)/cmd $@

# `go install` would ask for the list of all its versions, which not every proxy has. What is left out needs systemd's
# headers or a cloud: the monitor of custom plug-ins stays.
.tools/node-problem-detector@%:
	mkdir -p .tools/npd
	printf 'module npd\n\ngo 1.26\n\nrequire k8s.io/node-problem-detector $*\n' >.tools/npd/go.mod
	go build -C .tools/npd -mod=mod -o '$(abspath $@)' \
		-tags disable_stackdriver_exporter,disable_system_log_monitor,disable_system_stats_monitor \
		k8s.io/node-problem-detector/cmd/nodeproblemdetector
	rm -r .tools/npd

.tools/operator: $(wildcard tests/deploy/operator/*)
	go build -C tests/deploy/operator -o '$(abspath $@)'

# The checkout itself, on the packages that it needs: nothing is built, and no development package is installed. Those of
# the fleet page are installed while the node's page is there already.
demo: $(DEMO)/bin/gpufault ## the pages of a node and of a simulated fleet on this machine: no GPU, no root
	@$(DEMO)/bin/gpufault demo --fleet.prepare 'make --silent $(DEMO)/.fleet' $(ARGS)

lint: $(DEV)/.ready ## ruff: rules and format
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .

format: $(DEV)/.ready ## ruff: fix what it can
	$(DEV)/bin/ruff check --fix .
	$(DEV)/bin/ruff format .

types: $(DEV)/.ready ## mypy, strict
	$(DEV)/bin/mypy

docs: $(DEV)/.ready ## generate reference pages and the copies in the chart
	$(DEV)/bin/python docs/generate.py
	$(DEV)/bin/gpufault signatures docs
	$(DEV)/bin/python deploy/render.py

screenshots: $(DEV)/.ready ## the pictures of the pages in README.md, with Chromium
	$(DEV)/bin/python docs/screenshots.py

site: $(INSTALLED)/.ready $(SITE_TOOLS)/.locked ## the documentation as a site, in dist/site; ARGS='--version 0.2.0 --repository https://…'
	$(SITE_TOOLS)/bin/python deploy/site/site_pages.py dist/site --gpufault $(INSTALLED)/bin/gpufault $(ARGS)

wheel: dist/.built ## the wheel, in dist/

deb: .package-tools $(INSTALLED)/.ready $(NFPM) ## Debian packages of the node daemon and of the correlator, in dist/, for this machine's Python
	$(INSTALLED)/bin/python -P deploy/packages/build.py dist/*.whl dist --nfpm '$(abspath $(NFPM))'

rpm: .package-tools $(INSTALLED)/.ready $(NFPM) ## the same as .rpm
	$(INSTALLED)/bin/python -P deploy/packages/build.py dist/*.whl dist --format rpm --nfpm '$(abspath $(NFPM))'

# Building takes minutes before it needs them.
.package-tools:
	@command -v help2man >/dev/null && command -v dpkg-deb >/dev/null || { echo >&2 '$(NO_PACKAGE_TOOLS)'; exit 1; }

release: .package-tools $(HELM) $(NFPM) ## every file of a release: TAG=v0.2.0 FOLDER=files, and REGISTRY, SITE, REPOSITORY, SECURITY
	$(PYTHON) deploy/release/build.py '$(TAG)' '$(FOLDER)' --packages --helm '$(abspath $(HELM))' --nfpm '$(abspath $(NFPM))' \
		--registry '$(REGISTRY)' --site '$(SITE)' --repository '$(REPOSITORY)' --security '$(SECURITY)'

release-check: $(INSTALLED)/.ready go-tools ## a release built here, and installed from local index, registry and repositories
	PYTHONSAFEPATH=1 $(INSTALLED)/bin/pytest -m release $(ARGS)

lock: $(DEV)/bin/uv ## update the lock files from pyproject.toml
	$(DEV)/bin/$(LOCK) pyproject.toml --all-extras --output-file requirements.lock
	$(DEV)/bin/$(LOCK) pyproject.toml --output-file requirements-base.lock --constraints requirements.lock
	$(DEV)/bin/$(LOCK) pyproject.toml --extra fleet --output-file requirements-fleet.lock --constraints requirements.lock
	$(DEV)/bin/$(LOCK) pyproject.toml --all-extras --output-file requirements-dev.lock --group dev --constraints requirements.lock
	$(DEV)/bin/$(LOCK) --output-file requirements-image.lock --group image --constraints requirements-dev.lock
	$(DEV)/bin/$(LOCK) --output-file requirements-site.lock --group site --constraints requirements-dev.lock

bench: $(INSTALLED)/.ready ## the benchmarks, on the installed wheel
	$(if $(wildcard benchmarks/__main__.py),$(INSTALLED)/bin/python benchmarks $(ARGS),@echo 'no benchmarks yet')

soak: $(INSTALLED)/.ready ## the daemon under constant load for 30 minutes; ARGS='--minutes 5'
	$(INSTALLED)/bin/python benchmarks/soak.py $(ARGS)

clean: ## remove everything that make created, including environments
	rm -rf $(DEV) .tools dist .bench .state .hypothesis .mypy_cache .pytest_cache .ruff_cache

# --universal: one file for every Python from 3.11 on and for x86_64 and aarch64. No index is written down:
# a mirror is the business of the machine that installs, the hashes hold wherever the files come from.
LOCK = uv pip compile --universal --python-version 3.11 --generate-hashes --upgrade \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --quiet

NO_PACKAGE_TOOLS := help2man or dpkg-dev is missing: apt-get install help2man dpkg-dev

NO_PYTHON := No Python 3.11 or newer with venv, neither python3 nor python3.13 to python3.11. \
	On Debian and Ubuntu: apt-get install python3 python3-venv. Elsewhere: make PYTHON=/path/to/python3

$(DEV)/.locked $(INSTALLED)/.locked: requirements-dev.lock
	@test -n "$(PYTHON)" || { echo >&2 '$(NO_PYTHON)'; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --require-hashes --requirement $<
	touch $@

$(DEMO)/.locked: requirements-base.lock
	@test -n "$(PYTHON)" || { echo >&2 '$(NO_PYTHON)'; exit 1; }
	@echo 'Installing the packages of the node daemon into $(@D) …'
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install --progress-bar off --require-hashes --requirement $<
	@touch $@

$(SITE_TOOLS)/.locked: requirements-site.lock
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --require-hashes --requirement $<
	touch $@

# The command, on the checkout itself.
$(DEMO)/bin/gpufault: $(DEMO)/.locked
	@echo '$(CURDIR)' >"$$($(DEMO)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/gpufault.pth"
	@printf '#!/bin/sh\nexec "%s" -P -m exporter.cli.main "$$@"\n' '$(CURDIR)/$(DEMO)/bin/python' >$@
	@chmod +x $@

$(DEMO)/.fleet: requirements-fleet.lock $(DEMO)/.locked
	@$(@D)/bin/pip install --quiet --require-hashes --requirement $<
	@touch $@

$(DEV)/.ready: $(DEV)/.locked pyproject.toml
	$(DEV)/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(DEV)/bin/uv: $(DEV)/.locked
	$(DEV)/bin/pip install --quiet 'uv>=0.9'

dist/.built: $(INSTALLED)/.locked $(SOURCES)
	rm -f dist/*.whl
	$(INSTALLED)/bin/python -P -m build --no-isolation --wheel --outdir dist
	touch $@

$(INSTALLED)/.ready: $(INSTALLED)/.locked dist/.built
	$(INSTALLED)/bin/pip install --quiet --no-deps --no-index --force-reinstall dist/*.whl
	touch $@
