# Everything a person or CI does with this tree. `make` alone lists the targets.

CARGO ?= cargo
IMAGE ?= cloud-controller-manager:dev
# Where .ci/envtest and .ci/tools keep what is slow to build, outside the tree.
export CCM_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cloud-controller-manager
CARGO_TARGET_DIR ?= target
# The binary of the image needs no shared library. Its relocations are packed: else they are a megabyte that each start reads.
STATIC_TARGET ?= $(shell uname -m)-unknown-linux-gnu
STATIC_FLAGS := -C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs
# Which features: "--no-default-features --features azure" is without PFX files and completions.
STATIC_FEATURES ?=
# Bytes that the binary of the image may have, with the default features.
STATIC_BYTES ?= 17000000
STATIC_BINARY = $(CARGO_TARGET_DIR)/$(STATIC_TARGET)/release/cloud-controller-manager

# What the tests call besides cargo, each provided once by its script.
TOOLS = KUBEBUILDER_ASSETS="$$(.ci/envtest)" && HELM_PYTHON="$$(.ci/helm)" && PROMTOOL="$$(.ci/promtool)" && KUBECTL="$$(.ci/kubectl)" && \
	CHROMIUM="$$(.ci/chromium)" && export KUBEBUILDER_ASSETS HELM_PYTHON PROMTOOL KUBECTL CHROMIUM

# How long `make soak` plays each sweep.
SOAK_SECONDS ?= 3600

.PHONY: help build static size test unit fuzz e2e shipped soak lint fmt clippy deny advisories docs api-docs demo bench image clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | column -t -s "$$(printf '\t')"

build: ## Build the release binary: target/release/cloud-controller-manager
	$(CARGO) build --locked --release

# An explicit --target: else the flags would hit procedural macros too, which cannot be static.
static: ## Build the binary of the image, which is static: target/*-linux-gnu/release/cloud-controller-manager
	RUSTFLAGS="$(STATIC_FLAGS)" $(CARGO) build --locked --release --target $(STATIC_TARGET) --bin cloud-controller-manager $(STATIC_FEATURES)
	@if ldd $(STATIC_BINARY) 2>&1 | grep '=>'; then echo "the binary is not static" >&2; exit 1; fi

size: static ## Fail when the binary of the image has grown beyond STATIC_BYTES
	@bytes="$$(stat -c %s $(STATIC_BINARY))"; echo "the binary of the image has $$bytes bytes of $(STATIC_BYTES)"; \
	  if [ "$$bytes" -gt $(STATIC_BYTES) ]; then echo "it has grown: find out what by, or raise STATIC_BYTES in the Makefile" >&2; exit 1; fi

demo: ## Run the whole manager on an in-memory cluster and cloud; DEMO_FLAGS=--exit-when-ready ends by itself
	$(CARGO) run --locked --quiet --features sandbox -- demo $(DEMO_FLAGS)

test: ## All tests, the end-to-end suite on a real kube-apiserver included (built once on Debian 12)
	$(TOOLS) && $(CARGO) test --locked --features sandbox --no-fail-fast

unit: ## Tests that need neither kube-apiserver nor etcd
	$(CARGO) test --locked --features sandbox --lib --bins

fuzz: ## The fuzz targets on the stable toolchain; FUZZ_EXECUTIONS=1000000 for longer
	FUZZ_EXECUTIONS="$${FUZZ_EXECUTIONS:-1000}" $(CARGO) test --locked --features sandbox --test fuzz

e2e: ## Only the end-to-end suite
	$(TOOLS) && $(CARGO) test --locked --features sandbox --test e2e

shipped: static ## The end-to-end suite on the binary of the image, with its memory; ONLY=node_managers is enough for that
	CCM_BINARY="$(abspath $(STATIC_BINARY))" $(CARGO) test --locked --features sandbox --test health_probe_proxy --test acr_credential_provider
	$(TOOLS) && CCM_BINARY="$(abspath $(STATIC_BINARY))" $(CARGO) test --locked --features sandbox --test e2e -- $(ONLY)

# Cases of the lists that lie are all played once, however long that takes (an hour and a half on two cores).
soak: ## The sweeps of the tests for longer: storms and kills with ever new seeds for SOAK_SECONDS each, all lists that lie, 10³ histories, 10⁶ fuzz inputs
	KUBEBUILDER_ASSETS="$$(.ci/envtest)" && export KUBEBUILDER_ASSETS CCM_SOAK_SECONDS=$(SOAK_SECONDS) && \
	  $(CARGO) test --locked --features sandbox --test e2e -- killed_at_random && \
	  $(CARGO) test --locked --features sandbox --test azure_services -- storm absence && \
	  CCM_SEQUENCES=1000 $(CARGO) test --locked --features sandbox --test azure_services -- sequences && \
	  $(CARGO) test --locked --features sandbox --test api_server_faults -- random_faults && \
	  FUZZ_EXECUTIONS=1000000 $(CARGO) test --release --locked --features sandbox --test fuzz

lint: fmt clippy api-docs deny ## Formatting, clippy, documentation and dependency rules

fmt: ## Check the formatting
	$(CARGO) fmt --all -- --check

clippy: ## Lints, all of them errors
	$(CARGO) clippy --locked --all-targets --features sandbox -- -D warnings
	$(CARGO) clippy --locked --no-default-features -- -D warnings
	$(CARGO) clippy --locked --no-default-features --features azure -- -D warnings

api-docs: ## Build the API documentation, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --features sandbox --document-private-items

deny: ## Licences, sources and banned crates
	"$$(.ci/cargo-deny)" --all-features check bans licenses sources

advisories: ## Known holes of the dependencies, from RustSec's database; needs the network
	"$$(.ci/cargo-deny)" --all-features check advisories

docs: ## Regenerate the reference pages under docs/reference, what the chart renders to, and the recording of the demo when it is out of date
	HELM_PYTHON="$$(.ci/helm)" && export HELM_PYTHON && UPDATE_DOCS=1 $(CARGO) test --locked --features sandbox --test chart -- kept_results && \
	  UPDATE_DOCS=1 $(CARGO) test --locked --features sandbox --test reference_docs --test guides

bench: ## Benchmarks: counts are asserted, times reported
	$(CARGO) bench --locked --features sandbox

image: ## Build the container image
	docker build -t $(IMAGE) $(foreach image,BUILD_IMAGE BASE_IMAGE,$(if $($(image)),--build-arg $(image)=$($(image)))) .

clean: ## Remove build output
	$(CARGO) clean
