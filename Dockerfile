# Two images:
#
#   rondo    everything that runs nobody else's code: the static binary on busybox (the default)
#   runner   Debian with a Go tool chain, for the tool runner and the scorer: what tasks may use in their sandboxes is
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

# The programs are built from the sources here. A release has built them already: `--build-arg PROGRAMS=released` takes them from a folder for
# each platform, such as linux/amd64 (.goreleaser.yaml).

ARG GO_VERSION=1.26.8
ARG DEBIAN=bookworm
ARG BUSYBOX=1.37.0
ARG PROGRAMS=built

FROM golang:${GO_VERSION}-${DEBIAN} AS go

FROM go AS built
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ENV CGO_ENABLED=0
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -ldflags="-s -w" -o /out/ ./cmd/rondo ./cmd/rondo-sandbox-init

FROM scratch AS released
ARG TARGETPLATFORM
COPY ${TARGETPLATFORM}/ /out/

FROM ${PROGRAMS} AS programs

FROM busybox:${BUSYBOX}-musl AS rondo
# A volume that is mounted first where the image has a folder belongs to the folder's owner: /auth is where compose.yaml has keys made.
RUN echo 'rondo:x:10001:10001::/var/lib/rondo:/bin/false' >> /etc/passwd \
 && mkdir -p /var/lib/rondo /auth/nats /auth/tls /auth/s3 \
 && for user in intake querysampler generator toolrunner scorer advantagecalculator trainerfeeder weightpublisher archiver deadletters indexupdater teacher \
        policy trainer gateway dashboard admin; do mkdir -p /auth/users/$user; done \
 && chown -R 10001:10001 /var/lib/rondo /auth
# For inference servers and buckets behind TLS.
COPY --from=go /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=programs /out/rondo /usr/local/bin/
USER 10001:10001
WORKDIR /var/lib/rondo
ENV RONDO_DIR=/var/lib/rondo RONDO_METRICS_LISTEN=:9100
EXPOSE 9100
ENTRYPOINT ["rondo"]
CMD ["help"]

FROM debian:${DEBIAN}-slim AS runner
RUN useradd --uid 10001 --home-dir /var/lib/rondo --create-home rondo \
 && install --directory --owner rondo --group rondo /var/cache/rondo
COPY --from=go /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=go /usr/local/go /usr/local/go
# Only for the health check; it is not in /usr, where sandboxes would see it.
COPY --from=rondo /bin/busybox /opt/busybox/
COPY --from=programs /out/ /usr/local/bin/
USER 10001:10001
WORKDIR /var/lib/rondo
ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/busybox \
    RONDO_DIR=/var/lib/rondo RONDO_METRICS_LISTEN=:9100 RONDO_TOOLCHAIN_CACHE=/var/cache/rondo
EXPOSE 9100
ENTRYPOINT ["rondo"]
CMD ["help"]

# The last stage is what a plain `docker build .` makes.
FROM rondo
