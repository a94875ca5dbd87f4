# What one can do here; `make` alone lists it. Each target does its own set-up.

.DEFAULT_GOAL := help
.PHONY: help demo test crash bench peers lint fmt guests install clean

CARGO ?= cargo
# What the demo builds. Where the tests are built already, `--workspace --all-targets` builds nothing twice.
DEMO ?= --package dormouse

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Build, and tell the story of one agent (needs Rust and a C compiler)
	@scripts/build-guests.sh
	$(CARGO) build $(DEMO)
	@scripts/demo.sh

test: ## Build all guests and run every test (needs Python 3.10+ and Node 20+ too)
	@scripts/build-guests.sh --python --js
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	  set -x; $(CARGO) nextest run --workspace && $(CARGO) test --workspace --doc; \
	else \
	  set -x; $(CARGO) test --workspace; \
	fi
	cd guest-examples && CARGO_TARGET_DIR=$(CURDIR)/target/guest-build $(CARGO) test --locked --release --lib

crash: ## Stop the store's machine in 100,000 ways, and fuzz its formats for a while
	ZONE_VFS_CRASH_STATES=100000 ZONE_VFS_THREAD_SEEDS=600 ZONE_VFS_FUZZ_RUNS=20000 \
	  $(CARGO) test --workspace --lib -- crash threads fuzzing --nocapture

bench: ## Measure: resume, fork, pause and host calls, beside plain wasmtime
	@scripts/build-guests.sh --python --js
	$(CARGO) bench --package dormouse-benches --features sqlite
	@mkdir -p docs/plots && cp -v target/bench-report/*.svg docs/plots/

peers: ## Measure the zone store beside AgentFS, SQLite and redb (builds them, which takes a while)
	cd benches/peers && $(CARGO) run --locked --release

lint: ## Check format, lints, licences and advisories
	@scripts/wasm-target.sh
	$(CARGO) fmt --check
	cd benches/peers && $(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@for workspace in guest-examples tests/programs; do \
	  (set -x; cd $$workspace && $(CARGO) fmt --all --check && CARGO_TARGET_DIR=$(CURDIR)/target/guest-build \
	    $(CARGO) clippy --workspace --locked --target wasm32-wasip2 --release -- -D warnings) || exit 1; \
	done
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	  set -x; $(CARGO) deny check; \
	else \
	  echo "lint: cargo-deny is not installed, so licences and advisories were not checked"; \
	fi

fmt: ## Format everything
	$(CARGO) fmt
	cd benches/peers && $(CARGO) fmt
	cd guest-examples && $(CARGO) fmt --all
	cd tests/programs && $(CARGO) fmt --all

guests: ## Build all guests into target/guests
	@scripts/build-guests.sh --python --js

install: ## Install the command `dormouse`
	$(CARGO) install --locked --path host

clean: ## Delete everything that was built
	rm -rf target benches/target guest-examples/target tests/programs/target
