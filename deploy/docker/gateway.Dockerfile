# The gateway, and the command line for tests: neither torch nor a compiler.
#   docker build -f deploy/docker/gateway.Dockerfile -t radixgate-gateway:0.1.0 .
FROM python:3.11.14-slim-trixie@sha256:193fdd0bbcb3d2ae612bd6cc3548d2f7c78d65b549fcaa8af75624c47474444d AS base

FROM base AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/radixgate \
    && /opt/radixgate/bin/pip install --no-cache-dir -c constraints.txt '.[kubernetes]'

FROM base
COPY --from=build /opt/radixgate /opt/radixgate
ENV PATH=/opt/radixgate/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 50051 9090
ENTRYPOINT ["radixgate"]
