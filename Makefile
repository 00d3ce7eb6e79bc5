# Two commands do everything on a fresh Debian or Ubuntu machine with a Rust toolchain:
#
#   make demo    a primary and two replicas serve a real workload through one port
#   make test    the tests, on real PostgreSQL servers
#
# Both install what is missing. The demo and the benchmarks compile what is shipped (target/release);
# tests, lints and documentation share target/debug, which takes half the time.

CARGO ?= cargo
# Where that compiles to.
TARGET = $(or $(CARGO_TARGET_DIR),target)
# What tests run: their programs, and the servers of other versions if they can be had.
TEST_ENV = bin="$$(scripts/setup --pg-bin)"; export HIHOOI_TEST_PGBIN="$$bin" HIHOOI_TEST_PG_BIN="$$bin";

.PHONY: help setup build demo test test-long test-versions test-drivers random conversations torture bench bench-connections bench-shares bench-quotas bench-levels bench-blocks bench-schemas bench-instructions bench-cores histories simulations lint docs versions

help:
	@sed -n 's/^#   //p' Makefile
	@echo 'make random  a thousand random cases (RUNS=1000 SEED=1 SHRINK= VERSION=): do replicas follow, and fail statements as elsewhere?'
	@echo 'make conversations  random scripts of protocol messages: answered as by PostgreSQL? (RUNS=1000 SEED=1 SHRINK=)'
	@echo 'make test-long  the tests that take longest and that make test leaves out (ten minutes)'
	@echo 'make test-versions  what replicas follow, on PostgreSQL 14, 16, 17 and 18 (forty minutes; VERSIONS=17 for one)'
	@echo 'make test-drivers  14 drivers and frameworks, each through hihooi (DRIVERS="pgx pg" for some of them)'
	@echo 'make torture runs PostgreSQL 15 regression suite through hihooi (half an hour)'
	@echo 'make bench   measures it beside PgBouncer and plain PostgreSQL (figures: bench/runs)'
	@echo 'make bench-connections  measures logins, TLS and idle clients beside PgBouncer'
	@echo 'make bench-shares  measures which share of reads the primary serves, in YCSB and TPC-C'
	@echo 'make bench-quotas  measures how it scales if each server has a fifth of a processor (root)'
	@echo 'make bench-levels  measures what the consistency levels cost (root)'
	@echo 'make bench-blocks  measures what blocks gain if their reads are routed one by one (root)'
	@echo 'make bench-schemas  measures DDL beside many tables'
	@echo 'make bench-instructions  counts the instructions of its own for a transaction (valgrind)'
	@echo 'make bench-cores  measures the protocol cores (criterion)'
	@echo 'make histories  100,000 transactions at each consistency level under faults, 250,000 at two (half an hour)'
	@echo 'make simulations  the simulations of the papers that take minutes'
	@echo 'make lint    formatting and clippy'
	@echo 'make docs    the API documentation'

setup:
	@scripts/setup

build: setup
	$(CARGO) build --release

demo: build
	scripts/demo

# Smoke tests on the oldest and the newest PostgreSQL, and on one with another ICU than the installed one;
# without them the tests say so.
versions: setup
	-@scripts/fetch-postgres 14 >/dev/null
	-@scripts/fetch-postgres 15 >/dev/null
	-@scripts/fetch-postgres 18 >/dev/null

test: setup versions
	$(TEST_ENV) scripts/test

# The tests that `make test` leaves out since they take so long (LATER in scripts/test).
test-long: setup versions
	$(TEST_ENV) scripts/test --long

# What replicas follow, case by case (crates/hihooi/tests/all/follow), and how they are replaced, on the versions of PostgreSQL
# that `make test` doesn't run it on.
VERSIONS ?= 14 16 17 18
test-versions: setup
	for version in $(VERSIONS); do \
	  scripts/fetch-postgres $$version >/dev/null || exit 1; \
	  bin="$$PWD/.tools/postgresql-$$version/bin"; \
	  HIHOOI_TEST_PGBIN="$$bin" HIHOOI_TEST_PG_BIN="$$bin" scripts/test hihooi/follow hihooi/rebuilding || exit 1; \
	done

# Random cases of DDL and DML, beside a plain server, RUNS of them from SEED on; SHRINK=1 makes those that fail short.
# VERSION names a version of PostgreSQL instead of the installed one.
random: setup
	$(if $(VERSION),scripts/fetch-postgres $(VERSION) >/dev/null)
	$(TEST_ENV) $(if $(VERSION),HIHOOI_PG_BIN="$(PGBIN_OF_VERSION)" HIHOOI_TEST_PGBIN="$(PGBIN_OF_VERSION)") \
	  HIHOOI_RUNS=$(RUNS) HIHOOI_SEED=$(SEED) $(if $(SHRINK),HIHOOI_SHRINK=1) \
	  $(CARGO) test -p hihooi --test all -- --nocapture --exact follow::random
RUNS = 1000
SEED = 1
VERSION =
PGBIN_OF_VERSION = $(CURDIR)/.tools/postgresql-$(VERSION)/bin

# Random conversations between a client and hihooi, compared with those with a plain server.
conversations: setup
	$(TEST_ENV) HIHOOI_RUNS=$(RUNS) HIHOOI_SEED=$(SEED) $(if $(SHRINK),HIHOOI_SHRINK=1) \
	  $(CARGO) test -p hihooi --test all -- --nocapture conversations::

# Drivers and frameworks of Python, Java, JavaScript, Go, Rust and ODBC against one cluster; replicas must serve and be
# equal after each. (A few are in `make test`.) DRIVERS names some, or options such as --plain.
test-drivers: setup
	$(CARGO) build -p hihooi
	$(TEST_ENV) tests/drivers/run $(DRIVERS)
DRIVERS =

# PostgreSQL's own regression suite, test by test; replicas must serve and be equal after each. (A part
# of it is in `make test`, unless its source can't be had, status 77.)
torture: build
	scripts/torture --figures $(TORTURE)

bench:
	@scripts/setup --bench
	$(CARGO) build --release
	scripts/bench

bench-connections:
	@scripts/setup --bench
	$(CARGO) build --release
	scripts/bench connections

bench-instructions:
	@scripts/setup --bench
	$(CARGO) build --release
	scripts/bench instructions

bench-shares bench-quotas bench-levels bench-blocks bench-schemas: setup
	$(CARGO) build --release
	scripts/bench $(@:bench-%=%)

bench-cores: setup
	$(CARGO) bench -p hihooi-certify -p hihooi-mastering -p hihooi-balance -p hihooi-sql \
	  --bench certification --bench selector --bench decision --bench routing
	$(CARGO) build --release -p hihooi -p hihooi-check --example long_history --bin hihooi
	@echo 'check-history, 1,000,000 transactions (target: below 60 s)'
	$(TARGET)/release/examples/long_history 1000000 > $(TARGET)/long.jsonl
	@bash -c 'time $(TARGET)/release/hihooi check-history $(TARGET)/long.jsonl --level strict-serializable'
	@rm -f $(TARGET)/long.jsonl

# Records HISTORY transactions at each consistency level under all faults, and judges them.
histories: build
	scripts/histories $(HISTORY)
HISTORY = 100000

# Figures of the papers that take longer than `make test` should.
simulations: setup
	$(CARGO) test -p hihooi-sim --test all -- --ignored isolation::

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path tests/drivers/rust/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# Examples are among it since dependencies then have the features that tests and lints ask for, so that
# they aren't compiled again.
docs: setup
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items \
	  --lib --bins --examples
