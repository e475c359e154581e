# One image for everything: agent, controller, the scan pod, and `rekindle status` of the chart's test.
#
#   docker build --tag REGISTRY/rekindle:0.1.0 .
#
# A release names a base that cannot change, by its digest: make image BASE=python:3.11-slim@sha256:... TAG=...
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /build
# Every file that the lock names, each compared with its hash.
COPY requirements/dev.lock requirements/dev.lock
RUN python -m pip wheel --no-cache-dir --no-deps --require-hashes --wheel-dir /wheels --requirement requirements/dev.lock
# The package chaos breaks jobs on purpose. It stays outside of the image, and its commands say so.
COPY pyproject.toml README.md LICENSE ./
COPY detectors detectors
COPY recover recover
# From here on nothing is fetched: of the locked files only those are installed that the extras need.
RUN python -m pip wheel --no-deps --no-index --find-links /wheels --wheel-dir /wheels .
RUN python -m venv --without-pip /opt/rekindle
RUN python -m pip --python /opt/rekindle/bin/python install --no-compile --no-index --find-links /wheels "rekindle[agent,controller,cli]"
COPY image image
# For the image's list of what it is made of.
ARG BASE
RUN python image/root.py /image

# Nothing of the base but what root.py has chosen: no shell, no pip, no package manager.
FROM scratch
COPY --from=build /image /
# Also the node's programs are looked for by this PATH, as systemctl by the pod that reboots it.
ENV PATH=/opt/rekindle/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONUNBUFFERED=1
# The controller runs so. The agent is root, which its pod says, and the scan pod is the gang's own user.
USER 65532:65532
ENTRYPOINT ["rekindle"]
