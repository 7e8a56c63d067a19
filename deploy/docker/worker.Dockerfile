# The worker. PyPI's torch for Linux on x86-64 computes on NVIDIA GPUs and on CPUs.
#   docker build -f deploy/docker/worker.Dockerfile -t radixgate-worker:0.1.0 .
# For CPUs alone, much smaller, from an index with torch's CPU wheels:
#   ... --build-arg EXTRA=worker --build-arg PIP_EXTRA_INDEX_URL=<that index> ...
FROM python:3.11.14-slim-trixie@sha256:193fdd0bbcb3d2ae612bd6cc3548d2f7c78d65b549fcaa8af75624c47474444d AS base

FROM base AS build
ARG EXTRA=gpu
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /src
COPY . .
RUN python -m venv /opt/radixgate \
    && /opt/radixgate/bin/pip install --no-cache-dir -c constraints.txt ".[${EXTRA}]"

FROM base
ARG EXTRA=gpu
# Triton compiles the start of its kernels with a C compiler. Any version does.
# hadolint ignore=DL3008
RUN if [ "$EXTRA" = gpu ]; then \
        apt-get update \
        && apt-get install -y --no-install-recommends gcc libc6-dev \
        && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=build /opt/radixgate /opt/radixgate
ENV PATH=/opt/radixgate/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
EXPOSE 50052 9091
ENTRYPOINT ["radixgate"]
