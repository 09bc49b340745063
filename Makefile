# Needs Python 3.10 or later, git and make; everything else is installed into $(VENV).
# pip's own settings (PIP_INDEX_URL and the like) apply, for instance to choose a build of torch.

PYTHON ?= python3
VENV = .venv
BIN = $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP = $(BIN)/python -m pip --disable-pip-version-check
PYTEST_ARGS =
N = 10000
CORE_VENV = .venv-core-$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
WIDE =
SUITE = --doctest-modules gradir exporters schemas release tests
# The releases of torch to test on: those between which its private names changed, and the newest there is.
TORCH = 2.5.1 2.8.0 2.11.0 2.13.0 newest
# The releases of JAX to test on, such as JAX="0.8.1 0.10.2 newest"; newest is what pip finds for $(PYTHON).
JAX = 0.10.2
JAX_SUITE = $(wildcard tests/test_jax_*.py) --doctest-modules gradir/frontends/jax
WITH_SUPPORT = PYTHONPATH=tests/support
ANY_TORCH = $(addprefix tests/test_,private_names.py torch_releases.py capture.py verify.py run_once.py recorder.py recorder_threads.py \
	sources.py files.py cli.py cli_check.py pytest_plugin.py cli_explain.py cli_forward.py cuts.py diff_cuts.py \
	flow_cuts.py flow_diffs.py flow_places.py forward_built_inside.py forward_exports.py forward_graph.py forward_results.py forward_writes.py gradient_flow_fixture.py \
	explain.py explain_cleared.py explain_forms.py explain_functions.py explain_hooks.py explain_loops.py \
	explain_models.py explain_optimizers.py explain_outside.py explain_sizes.py explain_values.py explain_writes.py \
	explain_zeros.py export_archive.py export_capture.py)

# Without compiled modules kept, every process of the tests compiles all of gradir, and pytest all of its plugins.
unexport PYTHONDONTWRITEBYTECODE

.SUFFIXES:
.PHONY: help demo test test-bare bare-suite quick test-deep bench fuzz fuzz-mutants check types types-windows lint written prose schema goldens
.PHONY: verification verification-wide reviewing gallery reference site tutorials
.PHONY: node page model-explorer test-core core-suite core-mutants test-torch torch-suite test-jax jax-suite
.PHONY: verification-jax bench-jax changelog release-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "make %-17s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.ready ## capture a transformer, export it, diff it against a variant; writes demo/
	$(BIN)/python examples/demo.py

test: check ## every check and the whole test suite; PYTEST_ARGS="..." reaches pytest
	$(BIN)/python -m pytest -n auto --dist worksteal --record-tools --durations=20 $(SUITE) $(PYTEST_ARGS)

test-bare: $(VENV)/.ready-test ## the demo, and the tests that asked for a tool in make test, where PATH has only Python, git, make and POSIX
	$(BIN)/python tests/support/bare_path.py $(MAKE) demo bare-suite

quick: check ## every check and the tests of files that start no program and import no framework, in a minute
	$(BIN)/python -m pytest -n auto --dist worksteal --quick $(SUITE) $(PYTEST_ARGS)

test-deep: $(VENV)/.ready-test ## the tests of properties with a thousand examples each
	$(BIN)/python -m pytest -n auto --dist worksteal -m hypothesis --hypothesis-profile deep tests $(PYTEST_ARGS)

bench: $(VENV)/.ready-test ## measure beside the peers; some minutes
	$(BIN)/python benchmarks/capture.py
	$(BIN)/python benchmarks/explaining.py
	$(BIN)/python benchmarks/versions.py $(if $(BEFORE),--before $(BEFORE))
	$(BIN)/python benchmarks/codecs.py
	$(BIN)/python benchmarks/exporters.py
	$(BIN)/python benchmarks/matching.py
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/lone_rank.py
	$(BIN)/python benchmarks/ranks.py

fuzz: $(VENV)/.ready-test ## run the coverage-guided fuzzer of the decoders for two minutes
	$(PIP) install --quiet atheris
	$(BIN)/python tests/fuzz/decoders.py .fuzz -max_total_time=120 -max_len=4096

fuzz-mutants: ## read mutants of documents, without torch: make fuzz-mutants N=100000 KINDS="json diff" PYTHON=python3.13
	$(MAKE) core-mutants VENV=$(CORE_VENV)

check: types types-windows lint written prose ## lint, formatting, types, the layer rule, schema drift and prose; --jobs=2 runs them beside each other

types: $(VENV)/.ready-test
	$(BIN)/mypy
	$(BIN)/mypy schemas
	$(BIN)/mypy action
	$(BIN)/mypy release

types-windows: $(VENV)/.ready-test
	$(BIN)/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32

lint: $(VENV)/.ready-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions action.yml action/comment/action.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --offline --quiet .github action.yml action
	$(BIN)/lint-imports --no-logo

written: $(VENV)/.ready-test
	$(BIN)/python schemas/gir_schemas.py --check
	$(BIN)/python docs/build_reference.py --check

prose: ## measure the prose of pages and docstrings; fail when a figure is above its limit
	$(PYTHON) tests/support/prose.py

schema: $(VENV)/.ready-test ## write schemas/ from the model
	$(BIN)/python schemas/gir_schemas.py --write

reference: $(VENV)/.ready-test ## write docs/reference.md from the docstrings
	$(BIN)/python docs/build_reference.py

tutorials: $(VENV)/.ready-test ## rewrite what the commands of docs/tutorials print
	$(BIN)/python tests/support/tutorials.py

site: $(VENV)/.ready-test ## build the documentation with a live page of every example and review into site/
	GRADIR_JAX_PYTHON=$(firstword $(wildcard .venv-jax-*/bin/python)) $(BIN)/python docs/live_pages.py .site/live
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'site/index.html opens from the disk, and asks no host for anything'

goldens: $(VENV)/.ready-test ## write the golden files; review what changed
	$(BIN)/python -m pytest -n auto tests --update-goldens $(PYTEST_ARGS)

verification: $(VENV)/.ready-test ## rewrite docs/verification-models.txt, and try every operator of torch
	$(WITH_SUPPORT) $(BIN)/python tests/verification/real_models.py
	$(BIN)/python -W ignore tests/verification/operators.py

verification-wide: .verification-wide/packages/.ready $(VENV)/.ready-test ## compare all of transformers, timm and torch with torch itself; WIDE="--only bert" reaches it; an hour
	$(WITH_SUPPORT):tests/verification:.verification-wide/packages nice -n 5 $(BIN)/python -m wide $(WIDE)

reviewing: $(VENV)/.ready-test ## rewrite the generated parts of docs/reviewing.md
	$(WITH_SUPPORT) $(BIN)/python tests/verification/real_changes.py

gallery: $(VENV)/.ready-test tests/node/node_modules/.package-lock.json ## draw docs/gallery anew (needs dot and Chromium)
	$(BIN)/python docs/gallery/build.py
	GRADIR_JAX_PYTHON=$(firstword $(wildcard .venv-jax-*/bin/python)) $(BIN)/python docs/gallery/first_sight.py

node: tests/node/node_modules/.package-lock.json viewer/node_modules/.package-lock.json ## install Mermaid's parser, Cytoscape.js and axe-core for the tests, and what builds viewer/ (needs npm)

page: viewer/node_modules/.package-lock.json ## build the page of the exporter html from viewer/ (needs npm)
	npm run --silent --prefix viewer build

model-explorer: .model-explorer/.ready $(VENV)/.ready-test ## let Model Explorer's own viewer load the export of every example (needs node)
	$(BIN)/python -m pytest tests/test_model_explorer_viewer.py --no-tool-skips $(PYTEST_ARGS)

test-core: ## the tests that need no torch, without torch: make test-core PYTHON=python3.13
	$(MAKE) core-suite VENV=$(CORE_VENV)

test-torch: $(addprefix torch-suite-,$(TORCH)) ## the tests that hold on every torch from 2.5 on, on five; make test-torch TORCH=2.8.0

torch-suite-%:
	$(MAKE) torch-suite VENV=.venv-torch-$* TORCH=$*

test-jax: $(addprefix jax-suite-,$(JAX)) ## the tests of JAX, without torch: make test-jax JAX="0.8.1 newest"; needs Python 3.11 or later

jax-suite-%:
	$(MAKE) jax-suite VENV=.venv-jax-$* JAX=$*

verification-jax: ## rewrite docs/verification-jax.txt
	$(MAKE) jax-verification VENV=.venv-jax-$(JAX)

bench-jax: ## measure the capture of JAX beside its own tracing
	$(MAKE) jax-bench VENV=.venv-jax-$(JAX)

changelog: $(VENV)/.ready ## put the files of changes/ together in CHANGELOG.md: make changelog VERSION=0.2.0
	$(PIP) install --quiet --group release
	$(BIN)/python -m towncrier build --version $(VERSION) --yes

release-check: $(VENV)/.ready ## build what a release publishes, and try it as who installs it would; some minutes
	$(PIP) install --quiet --group release
	$(BIN)/python release/check.py $(RELEASE_ARGS)

clean: ## remove what the targets above made
	rm -rf .site site .venv .venv-core-* .venv-torch-* .venv-jax-* .model-explorer .verification-wide demo dist tests/node/node_modules viewer/node_modules viewer/.tests
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .fuzz
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

bare-suite:
	$(BIN)/python -m pytest -n auto --dist worksteal --tool-tests $(SUITE) $(PYTEST_ARGS)

core-suite: $(VENV)/.ready-core
	$(BIN)/python -m pytest -n auto --doctest-ignore-import-errors $(SUITE) $(PYTEST_ARGS)

core-mutants: $(VENV)/.ready-core
	$(BIN)/python tests/fuzz/mutants.py $(N) $(if $(KINDS),--kinds $(KINDS))

torch-suite: $(VENV)/.ready-torch
	$(BIN)/python -m pytest -n auto $(ANY_TORCH) $(PYTEST_ARGS)

jax-suite: $(VENV)/.ready-jax
	$(BIN)/python -m pytest -n 2 --dist worksteal --no-tool-skips $(JAX_SUITE) $(PYTEST_ARGS)

jax-environments: $(addprefix jax-environment-,$(JAX))

jax-environment-%:
	$(MAKE) .venv-jax-$*/.ready-jax VENV=.venv-jax-$* JAX=$*

jax-verification: $(VENV)/.ready-jax
	$(WITH_SUPPORT) $(BIN)/python tests/verification/jax_verification.py

jax-bench: $(VENV)/.ready-jax
	$(WITH_SUPPORT) $(BIN)/python benchmarks/jax_capture.py

# A stamp is made last, so an interrupted installation starts again. Groups need pip 25.1.
$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("gradir needs Python 3.10 or later: make PYTHON=..." if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	@echo 'Installing gradir and torch into $(VENV): some minutes the first time, depending on the build of torch.'
	$(PIP) install --quiet --group torch --editable .
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(PIP) install --quiet --no-compile --group check --group test --group docs
	@touch $@

$(VENV)/.ready-core: pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(PIP) install --quiet --group test-core --editable .
	@touch $@

$(VENV)/.ready-torch: pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(PIP) install --quiet torch$(patsubst %,==%,$(TORCH:newest=)) numpy --group test --editable .
	@touch $@

$(VENV)/.ready-jax: pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(PIP) install --quiet --no-compile jax$(patsubst %,==%,$(JAX:newest=)) --group test-jax --editable .
	@touch $@

tests/node/node_modules/.package-lock.json: tests/node/package.json tests/node/package-lock.json
	npm ci --prefix tests/node --no-audit --no-fund
	@touch $@

viewer/node_modules/.package-lock.json: viewer/package.json viewer/package-lock.json
	npm ci --prefix viewer --no-audit --no-fund
	@touch $@

# The viewer is 6 MB; what its package depends on would be 680 MB more, and the viewer does not need it.
.model-explorer/.ready: Makefile | $(VENV)/.ready
	rm -rf .model-explorer
	$(PIP) install --quiet --no-deps --no-compile --target .model-explorer ai-edge-model-explorer==0.1.34
	@touch $@

# Without what they depend on: the only build of torchvision there is would bring a torch for CUDA.
.verification-wide/packages/.ready: pyproject.toml | $(VENV)/.ready
	rm -rf .verification-wide/packages
	$(PIP) install --quiet --no-deps --no-compile --target .verification-wide/packages --group wide
	@touch $@
