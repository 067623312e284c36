# Everything a person or CI does with this tree. `make` alone lists the targets.

CARGO ?= cargo
IMAGE ?= cloud-controller-manager:dev
# The same inputs for property tests each time, so that a change fails what it breaks and nothing else.
export PROPTEST_RNG_SEED ?= 1
# Where the scripts in .ci keep what is slow to build, outside the tree.
export CCM_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cloud-controller-manager
CARGO_TARGET_DIR ?= target
# The binary of the image needs no shared library. Its relocations are packed: else they are a megabyte that each start reads.
STATIC_TARGET ?= $(shell uname -m)-unknown-linux-gnu
STATIC_FLAGS := -C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs
# Where the tree, the crates and the output lie is no part of the binary, so that the same commit gives the same bytes.
PATHS = $(CURDIR)=/src $(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo $(abspath $(CARGO_TARGET_DIR))=/target
# The same of the standard library, whose sources lie in the toolchain if the component rust-src is installed.
STANDARD_LIBRARY = $(shell rustc --print sysroot)/lib/rustlib/src/rust=/rustc/$(shell rustc -vV | sed -n 's/^commit-hash: //p')
STATIC_RUSTFLAGS = $(STATIC_FLAGS) $(patsubst %,--remap-path-prefix=%,$(PATHS) $(STANDARD_LIBRARY))
STATIC_CFLAGS = $(CFLAGS) $(PATHS:%=-ffile-prefix-map=%)
# The tag of the commit, such as v0.2.0; without one it is the version in Cargo.toml.
CCM_VERSION ?= $(shell git describe --tags --exact-match --match 'v[0-9]*' --dirty 2>/dev/null)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null)
# When the commit was made: the date of the image and of the bill of materials.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)
RELEASE = CCM_VERSION="$(CCM_VERSION)" REVISION="$(REVISION)" $(if $(SOURCE_DATE_EPOCH),SOURCE_DATE_EPOCH="$(SOURCE_DATE_EPOCH)")
# Which features: "--no-default-features --features azure" is without PFX files and completions.
STATIC_FEATURES ?=
# Bytes that the binary of the image may have, with the default features.
STATIC_BYTES ?= 19400000
# The linker and C compiler of another architecture are Debian's: gcc-aarch64-linux-gnu, gcc-x86-64-linux-gnu.
STATIC_ARCH = $(firstword $(subst -, ,$(STATIC_TARGET)))
ifneq ($(STATIC_ARCH),$(shell uname -m))
CROSS = CC_$(subst -,_,$(STATIC_TARGET))=$(STATIC_ARCH)-linux-gnu-gcc \
	CARGO_TARGET_$(shell echo $(subst -,_,$(STATIC_TARGET)) | tr a-z A-Z)_LINKER=$(STATIC_ARCH)-linux-gnu-gcc
endif
STATIC_BINARY = $(CARGO_TARGET_DIR)/$(STATIC_TARGET)/release/cloud-controller-manager

# What the tests call besides cargo, each provided once by its script.
TOOLS = KUBEBUILDER_ASSETS="$$(.ci/envtest)" && HELM_PYTHON="$$(.ci/helm)" && PROMTOOL="$$(.ci/promtool)" && KUBECTL="$$(.ci/kubectl)" && \
	CHROMIUM="$$(.ci/chromium)" && export KUBEBUILDER_ASSETS HELM_PYTHON PROMTOOL KUBECTL CHROMIUM

# Profile of tests, demo and benchmarks: `dev` compiles fast after an edit, `ci` (Cargo.toml) runs the simulators fast.
PROFILE ?= dev
TESTS = --locked --profile $(PROFILE) --features sandbox
ifeq ($(PROFILE),ci)
export RUSTC_WORKSPACE_WRAPPER := $(CURDIR)/.ci/optimize-library
endif
# CI names the program that was built with the tests: `cargo run` would build it again, because dependencies of tests add features to others.
DEMO ?= $(CARGO) run --locked --profile $(PROFILE) --features sandbox --

# How long `make soak` plays each sweep.
SOAK_SECONDS ?= 3600

.PHONY: help build tools build-tests check timings bench-counts release-check static windows windows-image windows-smoke clippy-windows size test unit fuzz e2e e2e-azure e2e-matrix verify-azure shipped soak lint fmt clippy deny advisories docs api-docs demo bench bench-shipped man image oci manifest sbom release-dry-run publish reproducible clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | column -t -s "$$(printf '\t')"

build: ## Build the release binary: target/release/cloud-controller-manager
	$(RELEASE) $(CARGO) build --locked --release

# An explicit --target: else the flags would hit procedural macros too, which cannot be static.
static: ## Build the binary of the image, which is static: target/*-linux-gnu/release/cloud-controller-manager
	$(RELEASE) $(CROSS) CFLAGS="$(STATIC_CFLAGS)" RUSTFLAGS="$(STATIC_RUSTFLAGS)" $(CARGO) build --locked --release --target $(STATIC_TARGET) --bin cloud-controller-manager $(STATIC_FEATURES)
	@if ldd $(STATIC_BINARY) 2>&1 | grep '=>'; then echo "the binary is not static" >&2; exit 1; fi

size: static ## Fail when the binary of the image has grown beyond STATIC_BYTES
	@bytes="$$(stat -c %s $(STATIC_BINARY))"; echo "the binary of the image has $$bytes bytes of $(STATIC_BYTES)"; \
	  if [ "$$bytes" -gt $(STATIC_BYTES) ]; then echo "it has grown: find out what by, or raise STATIC_BYTES in the Makefile" >&2; exit 1; fi

demo: ## Run the whole manager on an in-memory cluster and cloud; DEMO_FLAGS=--exit-when-ready ends by itself
	@echo "make demo: the first build takes about four minutes on two cores, later ones seconds" >&2
	$(DEMO) demo $(DEMO_FLAGS)

tools: ## Provide what the tests call besides cargo: kube-apiserver and etcd (built once on Debian 12), Helm, promtool, kubectl, Chromium
	@$(TOOLS)

build-tests: ## Build the tests
	$(CARGO) test $(TESTS) --no-run

test: ## All tests, the end-to-end suite on a real kube-apiserver included (built once on Debian 12)
	$(TOOLS) && CARGO="$(CARGO)" PROFILE="$(PROFILE)" .ci/test

timings: ## Print the slowest tests and the number of tests per binary of the last `make test`, without the end-to-end suite
	@.ci/timings

check: fmt ## What to run all day: formatting, lints of the library, unit tests of changed files, and the checks of structure and language
	$(CARGO) clippy --locked --lib --features sandbox -- -D warnings
	CARGO="$(CARGO)" .ci/changed-tests
	$(CARGO) test $(TESTS) --test project -- structure:: layering::

unit: ## Tests that need neither kube-apiserver nor etcd
	$(CARGO) test $(TESTS) --lib --bins

fuzz: ## The fuzz targets on the stable toolchain; FUZZ_EXECUTIONS=1000000 for longer
	FUZZ_EXECUTIONS="$${FUZZ_EXECUTIONS:-1000}" $(CARGO) test $(TESTS) --test programs -- fuzz::

e2e: ## Only the end-to-end suite
	$(TOOLS) && $(CARGO) test $(TESTS) --test e2e

# KUBEBUILDER_ASSETS_MATRIX: folders with kube-apiserver and etcd, one per version. ONLY=services is shorter.
e2e-matrix: ## The end-to-end suite on each API server of KUBEBUILDER_ASSETS_MATRIX
	$(TOOLS) && CARGO="$(CARGO)" .ci/e2e-matrix $(ONLY)

# MODE=shadow writes nothing; MODE=class creates Services of a class of its own. FLAGS: those of the cluster's manager.
e2e-azure: ## The Service and Node scenarios on your cluster: KUBECONFIG=… AZURE_CONFIG=azure.json MODE=shadow FLAGS=--configure-cloud-routes=false
	@test -n "$(KUBECONFIG)" -a -n "$(AZURE_CONFIG)" || { echo "set KUBECONFIG and AZURE_CONFIG: docs/guides/verify-azure.md" >&2; exit 2; }
	E2E_AZURE_KUBECONFIG="$(abspath $(KUBECONFIG))" E2E_AZURE_CONFIG="$(abspath $(AZURE_CONFIG))" E2E_AZURE_MODE="$(or $(MODE),shadow)" \
	  E2E_AZURE_FLAGS="$(FLAGS)" $(CARGO) test $(TESTS) --test e2e -- $(ONLY)

# Without AZURE_CONFIG the endpoint is a simulated Azure. YES=1 starts without asking. WITHOUT=metadata outside of an Azure machine.
verify-azure: ## Check the assumptions about Azure on yours: AZURE_CONFIG=azure.json RESOURCE_GROUP=scratch; deletes what it creates, writes a report
	$(CARGO) run --locked --quiet --features sandbox -- verify-azure \
	  $(if $(AZURE_CONFIG),--cloud-config=$(AZURE_CONFIG) --resource-group=$(RESOURCE_GROUP),--sandbox) \
	  $(if $(YES),--yes) $(if $(ONLY),--only=$(ONLY)) $(if $(WITHOUT),--without=$(WITHOUT)) --report=$(or $(REPORT),$(CARGO_TARGET_DIR)/azure-assumptions)

shipped: static ## The end-to-end suite on the binary of the image, with its memory; ONLY=node_managers is enough for that
	CCM_BINARY="$(abspath $(STATIC_BINARY))" $(CARGO) test $(TESTS) --test programs -- health_probe_proxy:: acr_credential_provider::
	$(TOOLS) && CCM_BINARY="$(abspath $(STATIC_BINARY))" $(CARGO) test $(TESTS) --test e2e -- $(ONLY)

# Cases of the lists that lie are all played once, however long that takes (an hour and a half on two cores).
soak: ## The sweeps of the tests for longer: storms, partitions, restores and clock jumps with ever new seeds for SOAK_SECONDS each, all lists that lie, 10³ histories with kills, other inputs of property tests, growth to 15,000 Nodes, 10⁶ fuzz inputs
	export CCM_SOAK_SECONDS=$(SOAK_SECONDS) && \
	  $(CARGO) test $(TESTS) --test azure -- azure_services::storm azure_services::absence azure_services::growth jumping_clock azure_nodes::growth && \
	  CCM_SEEDS=0..1000 $(CARGO) test $(TESTS) --test azure -- azure_services::sequences && \
	  $(CARGO) test $(TESTS) --test controllers -- random_faults api_server_faults::partitions restored api_server_faults::clocks && \
	  seed="$$(date +%s)" && echo "PROPTEST_RNG_SEED=$$seed" && \
	  PROPTEST_RNG_SEED="$$seed" $(CARGO) test $(TESTS) --lib --test azure -- properties histories order drift && \
	  FUZZ_EXECUTIONS=1000000 $(CARGO) test --release --locked --features sandbox --test programs -- fuzz::

clippy-windows: ## The same lints for the programs of Windows
	.ci/windows
	$(CARGO) clippy --locked --target x86_64-pc-windows-gnu -- -D warnings

lint: fmt clippy api-docs deny ## Formatting, clippy, documentation and dependency rules

fmt: ## Check the formatting
	$(CARGO) fmt --all -- --check

# With fewer features, and without what dependencies of tests add to others, the compiler's own warnings are enough. The wrapper denies them
# without a second set of dependencies.
clippy: ## Lints with all features; compiler warnings with those of the demo and without the optional ones; all of them errors
	$(CARGO) clippy --locked --all-targets --all-features -- -D warnings
	RUSTC_WORKSPACE_WRAPPER="$(CURDIR)/.ci/deny-warnings" $(CARGO) check --locked --features sandbox
	RUSTC_WORKSPACE_WRAPPER="$(CURDIR)/.ci/deny-warnings" $(CARGO) check --locked --no-default-features
	RUSTC_WORKSPACE_WRAPPER="$(CURDIR)/.ci/deny-warnings" $(CARGO) check --locked --no-default-features --features azure

# Links to private items are for readers of the source.
api-docs: ## Build the documentation of the public API, warnings are errors
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --locked --no-deps --all-features --lib

deny: ## Licences, sources and banned crates
	"$$(.ci/cargo-deny)" --all-features check bans licenses sources

advisories: ## Known holes of the dependencies, from RustSec's database; needs the network
	"$$(.ci/cargo-deny)" --all-features check advisories

docs: ## Regenerate the reference pages under docs/reference, the chart's copies and results, and the runbooks in alerts
	UPDATE_DOCS=1 $(CARGO) test $(TESTS) --test project -- copies_in_the_chart the_text_of_their_runbooks && \
	  HELM_PYTHON="$$(.ci/helm)" && export HELM_PYTHON && UPDATE_DOCS=1 $(CARGO) test $(TESTS) --test project -- rendered_results && \
	  UPDATE_DOCS=1 $(CARGO) test $(TESTS) --test project -- reference_docs::

man: build ## Write manual pages and completions: target/man, target/completions
	@mkdir -p $(CARGO_TARGET_DIR)/man $(CARGO_TARGET_DIR)/completions
	@ccm=$(CARGO_TARGET_DIR)/release/cloud-controller-manager && \
	  for page in $$($$ccm man); do $$ccm man "$$page" > $(CARGO_TARGET_DIR)/man/"$$page".1 || exit 1; done && \
	  for shell in bash fish zsh; do $$ccm completion $$shell > $(CARGO_TARGET_DIR)/completions/cloud-controller-manager.$$shell || exit 1; done

bench: ## Benchmarks: counts, bytes and growth are asserted; times and memory reported
	$(CARGO) bench --locked --features sandbox

bench-counts: ## The benchmarks that count requests and bytes, on the build of the tests; `make bench` has also those that compare times
	$(CARGO) bench $(TESTS) --bench azure_services --bench scale

bench-shipped: static ## The benchmarks with the binary of the image: processor time, memory and seconds are asserted, too
	CCM_BINARY="$(abspath $(STATIC_BINARY))" $(CARGO) bench --locked --features sandbox

release-check: clippy-windows size shipped bench-shipped ## What only a release needs: the binary of the image, its size, end-to-end suite and benchmarks, lints for Windows, and the artifacts for this machine
	artifacts="$$(mktemp -d)" && $(MAKE) release-dry-run RELEASE_TARGETS="$(STATIC_TARGET)" ARTIFACTS="$$artifacts/artifacts" && rm -rf "$$artifacts"

image: ## Build the container image
	docker build -t $(IMAGE) $(foreach name,BUILD_IMAGE BASE_IMAGE REVISION,$(if $($(name)),--build-arg $(name)=$($(name)))) \
	  $(if $(CCM_VERSION),--build-arg VERSION=$(CCM_VERSION)) .

# OCI_BINARIES: one per platform.
OCI_BINARIES ?= $(STATIC_BINARY)
WINDOWS_TARGET := x86_64-pc-windows-gnu
WINDOWS_PROFILE ?= release
windows: ## Build cloud-node-manager, health-probe-proxy and acr-credential-provider for Windows: target/windows (WINDOWS_PROFILE=dev is faster)
	.ci/windows
	$(RELEASE) $(CARGO) build --locked --profile $(WINDOWS_PROFILE) --target $(WINDOWS_TARGET) --bin cloud-controller-manager
	@mkdir -p $(CARGO_TARGET_DIR)/windows
	@for name in cloud-node-manager health-probe-proxy acr-credential-provider; do \
	  cp $(CARGO_TARGET_DIR)/$(WINDOWS_TARGET)/$(if $(filter dev,$(WINDOWS_PROFILE)),debug,$(WINDOWS_PROFILE))/cloud-controller-manager.exe \
	    $(CARGO_TARGET_DIR)/windows/$$name.exe || exit 1; done

windows-image: windows ## Build the container image for Windows Nodes, without a machine with Windows (needs BuildKit)
	docker buildx build --platform windows/amd64 --provenance=false -f manifests/cloud-node-manager/windows/Dockerfile -t $(IMAGE)-windows $(CARGO_TARGET_DIR)/windows

windows-smoke: windows ## Start the programs for Windows under Wine
	.ci/windows-smoke $(CARGO_TARGET_DIR)/windows

oci: static ## Write the container image as an OCI layout, without a daemon: target/oci
	$(RELEASE) .ci/oci-layout $(CARGO_TARGET_DIR)/oci $(OCI_BINARIES)

manifest: ## Write one file per cloud for `kubectl apply -f`, with the image IMAGE: target/manifests/azure.yaml, target/manifests/fake.yaml
	@.ci/manifest "$(IMAGE)" $(CARGO_TARGET_DIR)/manifests

sbom: ## Write the bill of materials (CycloneDX): target/cloud-controller-manager.cdx.json
	@mkdir -p $(CARGO_TARGET_DIR)
	$(RELEASE) .ci/sbom > $(CARGO_TARGET_DIR)/cloud-controller-manager.cdx.json

# ARTIFACTS: the folder, which must not exist. IMAGE_REPOSITORY: where the image is going to be, for the manifests.
ARTIFACTS ?= $(CARGO_TARGET_DIR)/artifacts
RELEASE_TARGETS ?= x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
release-dry-run: ## Write every artifact of a release and their checksums to ARTIFACTS, and publish nothing (two release builds; not in CI)
	$(RELEASE) RELEASE_TARGETS="$(RELEASE_TARGETS)" CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)" .ci/release $(ARTIFACTS)

publish: ## Push the image and the chart of ARTIFACTS to IMAGE_REPOSITORY and CHART_REPOSITORY, and sign both (needs skopeo, helm, cosign)
	.ci/publish $(ARTIFACTS)

reproducible: ## Build the static binary of HEAD twice, in different folders, and compare the bytes (two release builds; not in CI)
	.ci/reproducible

clean: ## Remove build output
	$(CARGO) clean
