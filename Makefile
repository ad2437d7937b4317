# Needs Rust; redis-server (7.0 or newer), and for the tests Python 3.10 or newer and Node, are installed by apt or brew where they are missing.
# `make` alone lists the targets.

# Flags for the command that a target runs: make demo ARGS='--seed 7'
ARGS =

TESTS := cargo $(shell cargo nextest --version >/dev/null 2>&1 && echo nextest run || echo test --no-fail-fast) --locked
# Most tests wait longer than they compute: for a lease, for an outage to end, for a container.
TESTS_AT_ONCE := $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))
export NEXTEST_TEST_THREADS := $(TESTS_AT_ONCE)
# Those that another version of Redis could upset: what the protocol says, and the scripts against the model.
DATABASE_TESTS := --test protocol --test equivalence
# The server as the tests' build has it: by itself, many dependencies would be built a second time.
SERVER := cargo build --locked --bin berth --test harness

.PHONY: help demo test check test-local test-containers python test-adapters test-example example chaos proof bench serve redis-server python3 node
.NOTPARALLEL:

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1: \2/p' Makefile

demo: redis-server ## a whole training job on this machine, with its own server, workers and trainer
	cargo run --release --locked -- demo $(ARGS)

test: check test-local test-containers python test-example ## every check and test but those of test-adapters; those of the protocol on a local Redis, then on one in a container

check: ## formatting and lints
	cargo fmt --check
	cargo clippy --all-targets --locked -- -D warnings

test-local: redis-server node target/python/.ready
	BERTH_TEST_DATABASE=local $(TESTS)
	cargo test --doc --locked

# As many containers as tests run at once, each for one test after another.
test-containers:
	@if docker info >/dev/null 2>&1; then \
	  export BERTH_TEST_DATABASE=container BERTH_TEST_CONTAINERS=berth-tests-$$$$; \
	  trap 'docker ps -aqf "name=^$$BERTH_TEST_CONTAINERS-" | xargs -r docker rm -fv >/dev/null' EXIT INT TERM; \
	  echo "BERTH_TEST_DATABASE=container $(TESTS) $(DATABASE_TESTS)"; \
	  $(TESTS) $(DATABASE_TESTS); \
	else \
	  printf '\n*** NOT RUN: the tests of the protocol on a database in a container: no container engine answers ***\n\n' >&2; \
	fi

python: redis-server target/python/.ready ## the Python client: types, tests against this server, wheel, a fresh installation
	$(SERVER)
	cd clients/python && ../../target/python/bin/mypy && BERTH_BIN=$(CURDIR)/target/debug/berth ../../target/python/bin/pytest -q -n $(TESTS_AT_ONCE) $(ARGS)
	target/python/bin/python -m build -q --wheel --outdir target/python/dist clients/python
	python3 -m venv --clear target/python/fresh
	target/python/fresh/bin/pip install -q ./clients/python
	target/python/fresh/bin/python -c 'import berth, berth.aio, berth.fake'

# A virtual environment with the client, as it is being edited, and what its tests need.
target/python/.ready: clients/python/pyproject.toml | python3
	python3 -m venv target/python
	target/python/bin/pip install -q -e './clients/python[dev]'
	touch $@

# Gigabytes of PyTorch: not a part of `make test`, in which these tests say that they did not run.
test-adapters: redis-server python3 ## the adapters, each with the real framework where PyPI has it
	python3 -m venv target/adapters
	target/adapters/bin/pip install -q -e './clients/python[adapters]'
	$(SERVER)
	cd clients/python && BERTH_BIN=$(CURDIR)/target/debug/berth ../../target/adapters/bin/pytest tests/adapters $(ARGS)

# A virtual environment of its own, with JAX from PyPI.
EXAMPLE := $(CURDIR)/target/example
EXAMPLE_TOOLS = python3 -m venv $(EXAMPLE) && $(EXAMPLE)/bin/pip install -q -r examples/grpo/requirements.txt

test-example: redis-server python3 ## the GRPO example's own tests, and a short job in which everything is killed
	@if $(EXAMPLE_TOOLS); then \
	  set -ex; $(SERVER); cd examples/grpo; $(EXAMPLE)/bin/mypy; \
	  BERTH_BIN=$(CURDIR)/target/debug/berth $(EXAMPLE)/bin/python -m pytest $(ARGS); \
	else \
	  printf '\n*** NOT RUN: the GRPO example: Python 3.10 or newer with JAX cannot be had here ***\n\n' >&2; \
	fi

example: redis-server python3 ## GRPO on a small transformer with everything killed on the way, and its figures: see examples/grpo
	$(EXAMPLE_TOOLS)
	cargo build --release --locked
	cd examples/grpo && BERTH_BIN=$(CURDIR)/target/release/berth $(EXAMPLE)/bin/python study.py --directory $(EXAMPLE)/study $(ARGS)

# BERTH_CHAOS_SECONDS=600 make chaos; with BERTH_CHAOS_SEED=N the same schedule again. Without nextest, which would end a long one.
chaos: redis-server ## everything is killed, stopped and cut off, and nothing is lost: BERTH_CHAOS_SECONDS, BERTH_CHAOS_SEED
	cargo test --locked --test chaos -- --nocapture $(ARGS)

# BERTH_PROOF_BATCHES=20 make proof. Without nextest, which shows a table only at the end.
proof: redis-server ## every bound from 0 to 5, each for BERTH_PROOF_BATCHES batches (100): whole batches, no violation, no discard
	BERTH_PROOF_BATCHES=$${BERTH_PROOF_BATCHES:-100} cargo test --release --locked --test proof -- --nocapture $(ARGS)

bench: redis-server ## throughput and latency of a server on this machine
	cargo run --release --locked -- bench $(ARGS)

serve: redis-server ## a server on http://127.0.0.1:8080, its data in ./berth-data
	cargo run --release --locked -- serve $(ARGS)

# $(call install,APT PACKAGES,BREW PACKAGES)
install = echo 'installing $(1)'; \
	  if command -v apt-get >/dev/null; then \
	    if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi; \
	    $$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qy $(1); \
	  elif command -v brew >/dev/null; then \
	    brew install $(2); \
	  else \
	    echo 'neither apt nor brew is here: install $(1) by hand, then try again' >&2; exit 1; \
	  fi

redis-server:
	@command -v redis-server >/dev/null || { $(call install,redis-server,redis); }

# Debian's python3 comes without what a virtual environment needs.
python3:
	@python3 -c 'import venv, ensurepip' 2>/dev/null || { $(call install,python3 python3-venv,python3); }

node:
	@command -v node >/dev/null || { $(call install,nodejs,node); }
