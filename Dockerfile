# syntax=docker/dockerfile:1
#
# Two images of one binary:
#
#   rondo    everything that runs nobody else's code (the default)
#   runner   the same with a Go tool chain, for the tool runner and the scorer: what tasks may use in their sandboxes is
#            what this image has in /usr. Derive from it to add what your own tasks need.
#
# The tool runner and the scorer make sandboxes of Linux namespaces as an ordinary user. They need no privileged container
# and no capability, but the container engine must not stand in the way:
#
#   --security-opt seccomp=unconfined       its filter forbids new user namespaces
#   --security-opt apparmor=unconfined      its profile forbids mounts, also inside of a user namespace
#   --security-opt systempaths=unconfined   parts of /proc are hidden, and the kernel then refuses a new /proc
#
# and the host must allow user namespaces to ordinary users (kernel.unprivileged_userns_clone=1 on some Debian
# kernels, kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu). Each sandbox drops all rights again and filters system
# calls by itself. compose.yaml sets all of this for these two services alone.

ARG GO_VERSION=1.26.8
ARG DEBIAN=bookworm

FROM golang:${GO_VERSION}-${DEBIAN} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ENV CGO_ENABLED=0
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -ldflags="-s -w" -o /rondo ./cmd/rondo

FROM debian:${DEBIAN}-slim AS rondo
# ca-certificates: inference servers and buckets behind TLS. busybox: the health check.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates busybox \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --home-dir /var/lib/rondo --create-home rondo \
 && install --directory --owner rondo --group rondo /var/cache/rondo
COPY --from=build /rondo /usr/local/bin/rondo
USER 10001:10001
WORKDIR /var/lib/rondo
ENV RONDO_DIR=/var/lib/rondo RONDO_TOOLCHAIN_CACHE=/var/cache/rondo RONDO_METRICS_LISTEN=:9100
EXPOSE 9100
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=6 \
    CMD ["busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:9100/healthz"]
ENTRYPOINT ["rondo"]
CMD ["help"]

FROM rondo AS runner
COPY --from=build /usr/local/go /usr/local/go
ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The last stage is what a plain `docker build .` makes.
FROM rondo
