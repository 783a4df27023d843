# The operator's image, from the root of the repository:
#
#   docker build -t meshwright/operator:0.1.0 .
#
# docs/images.md says how to use another base, a package index of your own, or another builder.

# Any image with Python 3.11 or newer as `python3`, and its modules venv and ensurepip.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
# A configuration of pip, where there is one, is lent to the step that needs it and stays in no layer.
ENV PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
ARG HATCHLING=1.33.0
# The environment of the image, at its place, so that what is installed beside it starts it.
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=pip-ca.pem \
    python3 -m venv /opt/meshwright && \
    /opt/meshwright/bin/python -m pip install --quiet hatchling==${HATCHLING}
WORKDIR /source
COPY crds/pyproject.toml crds/pyproject.toml
COPY operator/pyproject.toml operator/pyproject.toml
RUN python3 -c "import tomllib; \
    needs = {need for name in ('crds', 'operator') for need in tomllib.load(open(name + '/pyproject.toml', 'rb'))['project']['dependencies']}; \
    print(*sorted(need for need in needs if not need.startswith('meshwright')), sep='\n')" > requirements.txt
COPY crds crds
COPY operator operator
RUN /opt/meshwright/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels ./crds ./operator && \
    /opt/meshwright/bin/python -m pip install --quiet --no-deps --no-index --no-compile --prefix /own /wheels/*.whl && \
    /opt/meshwright/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /own -p /opt/meshwright /own

FROM ${BASE}
# Python reads its compiled files without asking for the dates of the sources: neither changes in an image.
ENV PATH=/opt/meshwright/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN echo 'meshwright:x:65532:65532::/tmp:/usr/sbin/nologin' >> /etc/passwd && echo 'meshwright:x:65532:' >> /etc/group
# First what changes seldom: packages of others, in the versions that constraints.txt pins. Some carry files for newer
# Pythons, which do not compile.
COPY constraints.txt /opt/meshwright/constraints.txt
COPY --from=build /source/requirements.txt /opt/meshwright/requirements.txt
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=pip-ca.pem \
    export PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_DISABLE_PIP_VERSION_CHECK=1 && \
    cd /opt/meshwright && python3 -m venv . && \
    bin/python -m pip install --quiet --no-cache-dir --no-compile --only-binary :all: -c constraints.txt -r requirements.txt && \
    bin/python -m pip uninstall --quiet --yes pip setuptools && \
    (bin/python -m compileall -qq --invalidation-mode unchecked-hash lib || true)
# Then our own.
COPY --from=build /own /opt/meshwright
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Meshwright operator" \
    org.opencontainers.image.description="Runs TrainingJobs on Kubernetes" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
# By number, since a kubelet that must see to it that nobody is root does not look names up.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["meshwright"]
CMD ["run"]
