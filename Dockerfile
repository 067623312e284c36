# A static binary on an image that has nothing but CA certificates. `make image` builds it; needs BuildKit.
# Several platforms: docker buildx build --platform linux/amd64,linux/arm64 …
# The two images it is made of are tags here, which can change. A build that has to be repeatable names digests:
#   make image BUILD_IMAGE=rust@sha256:… BASE_IMAGE=gcr.io/distroless/static-debian12@sha256:…
# (docker buildx imagetools inspect rust:1.95-bookworm shows it). They stand in nobody's repository, since a digest that is never
# renewed keeps its holes.
ARG BUILD_IMAGE=rust:1.95-bookworm
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
# .dockerignore leaves only what is compiled and the Makefile; benches/ because Cargo.toml names a file there.
COPY . .
ARG TARGETARCH
# The tag of a release; there is no git here.
ARG VERSION=dev
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,id=target-${TARGETARCH},target=/target \
    case "${TARGETARCH}" in \
      amd64) target=x86_64-unknown-linux-gnu ;; \
      arm64) target=aarch64-unknown-linux-gnu ;; \
      *) echo "no build for architecture '${TARGETARCH}': want amd64 or arm64" >&2; exit 1 ;; \
    esac && \
    make static CARGO_TARGET_DIR=/target STATIC_TARGET="${target}" CCM_VERSION="${VERSION#dev}" && \
    install -D "/target/${target}/release/cloud-controller-manager" /out/cloud-controller-manager && \
    ln -s cloud-controller-manager /out/cloud-node-manager && \
    ln -s cloud-controller-manager /out/health-probe-proxy && \
    ln -s cloud-controller-manager /out/acr-credential-provider

FROM ${BASE_IMAGE}
ARG BASE_IMAGE
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="cloud-controller-manager" \
      org.opencontainers.image.description="Connects a Kubernetes cluster to its cloud: nodes, routes and load balancers." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
# Under the other names, which are links, it is cloud-node-manager, health-probe-proxy or acr-credential-provider and nothing else.
COPY --from=build /out/ /usr/local/bin/
# Threads share one heap: each of their own keeps what it has freed, with 5,000 Nodes about 15 MiB.
ENV MALLOC_ARENA_MAX=1
USER 65532:65532
EXPOSE 10258
ENTRYPOINT ["/usr/local/bin/cloud-controller-manager"]
