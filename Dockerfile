# One image for everything: agent, controller, the scan pod, and `rekindle status` of the chart's test.
#
#   docker build --tag REGISTRY/rekindle:0.1.0 .
#
# A base that cannot change is named by its digest: --build-arg BASE=python:3.11-slim@sha256:...
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /build
# Every file that the lock names, each compared with its hash.
COPY requirements/dev.lock requirements/dev.lock
RUN python -m pip wheel --no-cache-dir --no-deps --require-hashes --wheel-dir /wheels --requirement requirements/dev.lock
COPY pyproject.toml README.md LICENSE ./
COPY detectors detectors
COPY recover recover
COPY chaos chaos
# From here on nothing is fetched: of the locked files only those are installed that the extras need.
RUN python -m pip wheel --no-deps --no-index --find-links /wheels --wheel-dir /wheels .
RUN python -m venv /opt/rekindle
RUN /opt/rekindle/bin/python -m pip install --no-index --find-links /wheels "rekindle[agent,controller,cli]"

FROM ${BASE}
COPY --from=build /opt/rekindle /opt/rekindle
ENV PATH=/opt/rekindle/bin:$PATH PYTHONUNBUFFERED=1
# The controller runs so. The agent is root, which its pod says, and the scan pod is the gang's own user.
USER 65532:65532
ENTRYPOINT ["rekindle"]
