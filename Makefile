.DEFAULT_GOAL := help
.PHONY: setup setup-all demo test test-first test-rest test-alone test-nightly test-skipped test-user test-fronts test-train fresh check docs site committed filter release grammars-report docs-test every-command nightly bench bench-generate bench-serve paper outside evaluate answers leaderboard scoreboard soak clean help

# Without compiled modules each command and each test process would compile them again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PYTEST = $(BIN)/pytest --dist loadgroup -n
MORE := $$(($$(nproc) + 1))  # for tests that often wait
SKIPPED := build/skipped-tests
PACKAGES := $(wildcard packages/*/pyproject.toml)
NATIVE := $(wildcard packages/*/src/*/native/*/*.c packages/*/src/*/native/*/*.h packages/*/hatch_build.py)

# It ends within five minutes on two cores, downloads included.
DEMO := --sampler gcs --count 1000 --seed 7

.venv/.packages: pyproject.toml $(PACKAGES) scripts/setup.sh
	@scripts/setup.sh
	@touch $@

.venv/.native: .venv/.packages scripts/native.py $(NATIVE)
	@$(BIN)/python scripts/native.py >/dev/null
	@touch $@

setup: .venv/.native ## prepare .venv and the default system (root installs what is missing)
	@$(BIN)/shioenv system build

setup-all: setup ## as root: also install what every test needs (TORCH=1: torch, in .venv)
	@scripts/setup.sh all $(if $(TORCH),torch)

demo: setup ## the main job: 1,000 inputs executed and scored into ./demo-dataset, then shown
	@$(BIN)/shioenv generate demo-dataset $(DEMO) || { status=$$?; [ $$status != 2 ] || \
		echo "rm -r demo-dataset makes room for a new one" >&2; exit $$status; }
	@echo
	@$(BIN)/shioenv dataset stats demo-dataset
	@echo
	@$(BIN)/shioenv dataset show demo-dataset --count 5

TESTED := $(if $(PACKAGE),packages/$(PACKAGE)/tests)

# PACKAGE=shioenv-model: that package's tests alone.
test: ## the whole test suite: first the tests that need no system, then the others
	@status=0; $(MAKE) --no-print-directory test-first || status=1; \
	$(MAKE) --no-print-directory test-rest || status=1; exit $$status

test-first: .venv/.native ## the tests that need no system
	@$(PYTEST) $$(nproc) --layer=first --skipped-to=$(SKIPPED).first $(TESTED)

test-rest: setup ## the tests that need a system
	@$(PYTEST) $(MORE) --layer=rest --skipped-to=$(SKIPPED).rest $(TESTED); status=$$?; \
	cat $(SKIPPED).[fr]*st > $(SKIPPED); exit $$status

test-nightly: setup ## the tests that are too long for `make test`
	@$(PYTEST) $(MORE) --layer=nightly --timeout=900 $(TESTED)

# PACKAGE=shioenv-model: that one.
test-alone: .venv/.native ## the tests of each package, in environments without those that it does not need
	@$(BIN)/python scripts/alone.py $(PACKAGE)

# After `make setup-all`. SKIPPED=FILE: the ids that another run wrote.
test-skipped: setup ## the tests that were skipped; fails where setup-all left one without its program
	@test -e $(SKIPPED) || { echo "no $(SKIPPED): make test writes it" >&2; exit 2; }
	@[ ! -s $(SKIPPED) ] || $(PYTEST) $(MORE) --complete @$(SKIPPED)

# Where root and an ordinary user take other ways: sandboxes, previews, shells, packaging. At most four minutes on
# two idle cores, with the system that a user builds first.
BY_USER := tests/packaging \
	$(addprefix packages/shioenv-agents/tests/,adversarial/test_preview_attacks.py conformance/test_entered.py \
	system/test_copies.py system/test_preview.py system/test_preview_terminal.py unit/preview) \
	$(addprefix packages/shioenv/tests/,spec adversarial/test_hostile_lines.py adversarial/test_sentinels.py \
	system/test_doctor_refused.py system/test_system_build.py \
	$(patsubst %,conformance/test_%.py,beside broken_sandboxes host_files killed_from_outside live machine_shown \
	namespaces priorities processes runner shared_memory state_recorded terminal terminal_handed))

test-user: setup ## the tests that depend on who runs them: sandboxes, previews, shells, packaging
	@$(PYTEST) $(MORE) $(BY_USER)

# MACHINES="debian-12:root debian-13:user": these of the four. Or root+user: root, then test-user.
fresh: ## as root: what README.md has made, in Debian 12 and 13 made anew, by root and by a user
	@scripts/fresh.sh $(MACHINES)

test-fronts: setup ## each agent framework's front against the real package, in environments of their own
	@scripts/fronts.sh

test-train: setup ## what needs torch: sequence models, in an environment of their own
	@scripts/test-train.sh

check: .venv/.native ## lint, format and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

docs: .venv/.native ## write the generated pages of docs/
	@PYTHONPATH=tests $(BIN)/python -m support.cli_reference docs/reference
	@$(BIN)/python scripts/site/api.py > docs/reference/python.md.new
	@mv docs/reference/python.md.new docs/reference/python.md
	@$(BIN)/python scripts/measurements.py

.site/.made: pyproject.toml
	@echo "making .site (pip)"
	@$${PYTHON:-python3} -m venv .site
	@.site/bin/python -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
	@.site/bin/python -m pip install -q --disable-pip-version-check --group site
	@touch $@

site: .site/.made ## build the documentation site into build/site/html; a broken link fails
	@.site/bin/python scripts/site/website.py build/site
	@echo "open build/site/html/index.html"

committed: .venv/.native ## compile what becomes part of a system's files, by Debian 12's compiler
	@$(BIN)/python scripts/committed.py

filter: .venv/.native ## compile the system-call filters from their lists, by libseccomp
	@$(BIN)/python scripts/filter.py

# PEOPLE=FILE: inputs that people wrote, one a line, to be compared with on the same page.
grammars-report: setup ## measure the grammars on the default system and write docs/grammars.md
	@$(BIN)/shioenv grammar report --markdown --seed 7 > docs/grammars.md.new; status=$$?; \
	[ -z "$(PEOPLE)" ] || { echo; $(BIN)/shioenv grammar report --markdown --seed 7 --compare-with "$(PEOPLE)"; } >> docs/grammars.md.new; \
	if [ -s docs/grammars.md.new ]; then mv docs/grammars.md.new docs/grammars.md; \
	else rm docs/grammars.md.new; fi; exit $$status

SIZE := reduced
# SIZE=paper ENGINE=ray: the paper's numbers of inputs, on the nodes of a cluster. The same command resumes.
paper: setup ## run the paper's experiments and draw its figures: under an hour on two cores
	@$(BIN)/shioenv reproduce paper --out build/paper $(if $(filter paper,$(SIZE)),--paper-size) --engine $(or $(ENGINE),local)

bench: setup ## what a run costs: bare bash and other sandboxes beside it, in one table
	@$(BIN)/python benchmarks/bench.py

bench-generate: setup ## records a second: the usual settings beside the paper's, and without scores
	@$(BIN)/python benchmarks/generate.py

bench-serve: setup ## what a line costs over OpenAI's protocol, over Cowrie before it, and over SSH
	@scripts/environment.sh .fronts/openai openai 'openai>=1.50'
	@.fronts/openai/bin/python benchmarks/serve.py
	@$(BIN)/python benchmarks/serve_ssh.py

JUDGED := sandbox trivial errors memory-plain:evaluation/memory memory:evaluation/memory default \
	default:stages=bashkit cowrie just-bash bashkit
RECORDS := 30000

# OUTSIDE=FOLDER: checkouts named oils, brush, bashkit, intercode, tldr. HALF=work during development.
HALF := held
outside: setup ## judge the default model by the cases of public shell projects in OUTSIDE
	@$(BIN)/python benchmarks/outside.py "$(OUTSIDE)" --half $(HALF)

evaluate: setup ## judge every predictor that runs here by the public test suite, and write its page
	@mkdir -p evaluation
	@[ -f evaluation/suite ] || $(BIN)/shioenv suite record public-test --out evaluation/suite
	@$(BIN)/shioenv generate evaluation/memory --count $(RECORDS) --seed 11 --budget 1 --noise-runs 1
	@$(BIN)/shioenv evaluate --suite evaluation/suite --out evaluation/answers \
		$(JUDGED:%=--predictor %) || [ $$? = 1 ]
	@$(BIN)/shioenv evaluate report evaluation/answers
	@$(BIN)/shioenv evaluate table evaluation/answers > docs/experiments/evaluation.md.new
	@mv docs/experiments/evaluation.md.new docs/experiments/evaluation.md

answers: setup ## record the frozen answers anew on the built system, and the values of `shioenv reproduce`: 15 minutes on an idle host
	@$(BIN)/python scripts/answers.py

leaderboard: setup ## ask predictors of the leaderboard anew by the frozen answers, and write its page
	@$(BIN)/python benchmarks/leaderboard.py record

# A row that is in build/conformance is not asked again.
scoreboard: setup ## as root: hold emulators, busybox, toybox and uutils to the machine, and write their page
	@for name in busybox toybox uutils uutils-13; do \
		system=debian-12-$$name; [ $$name != uutils-13 ] || system=debian-13-uutils; \
		$(BIN)/shioenv system show $$system >/dev/null 2>&1 || scripts/other_system.sh $$name || exit; \
	done
	@$(BIN)/python benchmarks/conformance.py

soak: setup ## the long checks of truth and safety, at full size: about two hours on two idle cores
	@for check in sanitizers determinism flags completeness fidelity composition fuzz leaks faults lines sessions forging planted minimal visiting previewing; do \
		echo "== soak/$$check.py"; $(BIN)/python soak/$$check.py || failed="$$failed $$check"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

# PAGES="docs/how-to/policy.md": these. SINCE=REVISION: those that changed since then. WITHIN=SECONDS: begin nothing
# later. FULL=1: the numbers that pages show. HAVE="mirror, network": what this host has, where no program finds out.
docs-test: setup ## run the commands and programs of docs/how-to and docs/tutorial
	@$(BIN)/python scripts/docs_test.py $(if $(SINCE),--since $(SINCE)) $(if $(FULL),--full) \
		$(if $(WITHIN),--within $(WITHIN)) $(if $(HAVE),--have "$(HAVE)") $(PAGES)

every-command: setup ## execute every program without a grammar, and judge the model's sure answers
	@$(BIN)/python soak/every_command.py >/dev/null

nightly: ## as root: what is too long for .ci/run: fresh on all machines, long tests, each package alone, every command, all pages
	@status=0; for target in fresh test-nightly test-alone every-command; do $(MAKE) --no-print-directory $$target || status=$$?; done; \
	$(MAKE) --no-print-directory docs-test FULL=1 HAVE="$(if $(HAVE),$(HAVE),mirror, an idle machine)" && exit $$status

release: ## build what a package index gets into dist/, try it, and say what to tag
	@scripts/release.sh

clean: ## remove what was made in this clone (built systems stay in the cache)
	@rm -rf .venv .site .alone demo-dataset evaluation build dist packages/*/src/*/native/bin
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis

help: ## show this
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 17
