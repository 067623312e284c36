# Everything a person or CI does with this tree. `make` alone lists the targets.

CARGO ?= cargo
IMAGE ?= cloud-controller-manager:dev
# Where .ci/envtest and .ci/tools keep what is slow to build, outside the tree.
export CCM_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cloud-controller-manager

.PHONY: help build test unit e2e lint fmt clippy deny docs api-docs demo bench image clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | column -t -s "$$(printf '\t')"

build: ## Build the release binary: target/release/cloud-controller-manager
	$(CARGO) build --locked --release

demo: ## Run the whole manager on an in-memory cluster and cloud; DEMO_FLAGS=--exit-when-ready ends by itself
	$(CARGO) run --locked --quiet --features sandbox -- demo $(DEMO_FLAGS)

test: ## All tests, the end-to-end suite on a real kube-apiserver included (built once on Debian 12)
	KUBEBUILDER_ASSETS="$$(.ci/envtest)" && export KUBEBUILDER_ASSETS && $(CARGO) test --locked --features sandbox

unit: ## Tests that need neither kube-apiserver nor etcd
	$(CARGO) test --locked --features sandbox --lib --bins

e2e: ## Only the end-to-end suite
	KUBEBUILDER_ASSETS="$$(.ci/envtest)" && export KUBEBUILDER_ASSETS && $(CARGO) test --locked --features sandbox --test e2e

lint: fmt clippy api-docs deny ## Formatting, clippy, documentation and dependency rules

fmt: ## Check the formatting
	$(CARGO) fmt --all -- --check

clippy: ## Lints, all of them errors
	$(CARGO) clippy --locked --all-targets --features sandbox -- -D warnings

api-docs: ## Build the API documentation, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --features sandbox --document-private-items

deny: ## Licences, sources and banned crates
	"$$(.ci/cargo-deny)" --all-features check bans licenses sources

docs: ## Regenerate the reference pages under docs/reference
	UPDATE_DOCS=1 $(CARGO) test --locked --features sandbox --test reference_docs

bench: ## Benchmarks: counts are asserted, times reported
	$(CARGO) bench --locked --features sandbox

image: ## Build the container image
	docker build -t $(IMAGE) .

clean: ## Remove build output
	$(CARGO) clean
