# Targets to build, test and install Sheen. `make help` lists them.
CARGO ?= cargo
DEMO ?= ./demo

.PHONY: help build demo demo-stop demo-kill test soak bench bench-real performance lint install deb install-io-uring clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

build: ## the sheen program and the C library, optimised: target/release/{sheen,liblustreapi.so}
	$(CARGO) build --release -p sheen -p sheen-llapi

demo: ## a file system with four layouts under ./demo (DEMO), filled and checked; stays mounted; needs 6 GB
	@scripts/demo-space.sh "$(DEMO)"
	@scripts/deps.sh run
	$(CARGO) build --release -p sheen -p sheen-bench --bin sheen --bin demo
	@target/release/demo $(DEMO)

demo-stop: ## stops the demonstration's file system; its data is preserved
	@target/release/sheen down --dir $(DEMO)/fs

demo-kill: ## kills servers under a running copy, which only pauses
	@scripts/deps.sh run
	$(CARGO) build --release -p sheen
	@scripts/demo-kill.sh target/release/sheen

test: ## the gate: every test that must pass, about 8 minutes (docs/testing.md)
	@scripts/deps.sh test
	@scripts/test.sh

soak: ## random seeds and long races for SOAK_MINUTES (60), with a report in target/soak
	@scripts/soak.sh

bench: ## speed against the baseline, without a record
	$(CARGO) build --release -p sheen -p sheen-bench
	target/release/speed

bench-real: ## IOR, mdtest and fio where installed, against libfuse's passthrough_hp (BENCH_REAL: options)
	$(CARGO) build --release -p sheen -p sheen-bench
	target/release/real $(BENCH_REAL)

performance: ## measures tables of docs/performance.md again (PERFORMANCE: names; all take some hours)
	$(CARGO) build --release -p sheen -p sheen-bench
	scripts/performance $(PERFORMANCE)

lint: ## format, warnings, licences and advisories of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) deny --log-level error check

install: build ## programs, C library, manual pages, completions, units: /usr/local; mount.sheen: /sbin
	@DESTDIR="$(DESTDIR)" packaging/install.sh

deb: build ## Debian packages of all that, for /usr: target/deb (docs/install.md)
	@packaging/deb/build.sh

install-io-uring: ## FUSE over io_uring after each boot, which makes mounts faster (docs/administration.md)
	install -d "$(DESTDIR)/etc/modprobe.d"
	echo 'options fuse enable_uring=1' >"$(DESTDIR)/etc/modprobe.d/sheen.conf"

clean: ## removes the build results
	$(CARGO) clean
