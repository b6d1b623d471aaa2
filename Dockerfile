# The node daemon and the fleet service as one image, for linux/amd64 and linux/arm64.
#
#   docker build -t gpufault .              # or: buildah bud -t gpufault .
#
# The same image again, from the same commit and base, by name and digest:
#
#   buildah bud --timestamp "$(git log -1 --format=%ct)" --build-arg BASE_IMAGE=docker.io/library/python@sha256:… .
#   docker buildx build --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" --output type=oci,rewrite-timestamp=true …
#
# Both stages are made from one base, so the environment that the first one makes runs in the second. It needs a Python
# from 3.11 on with venv, and glibc 2.34 (Debian 12, Ubuntu 22.04). Every package comes by the hashes of the lock files,
# those that build the wheel too.
ARG BASE_IMAGE=docker.io/library/python:3.13-slim-bookworm
FROM ${BASE_IMAGE} AS build

# Bytecode is the same each time: sets in it are sorted by hashes.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONHASHSEED=0
WORKDIR /src
COPY requirements.lock requirements-image.lock ./
# --without-pip: nothing in the image installs anything. The cache is the builder's, none of it is in a layer.
RUN --mount=type=cache,target=/var/cache/pip,sharing=locked \
    python3 -m venv /opt/tools \
    && /opt/tools/bin/pip install --cache-dir=/var/cache/pip --require-hashes --requirement requirements-image.lock \
    && python3 -m venv --without-pip /opt/gpufault \
    && /opt/tools/bin/pip --python /opt/gpufault/bin/python \
      install --cache-dir=/var/cache/pip --no-compile --require-hashes --requirement requirements.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY exporter exporter
COPY signatures signatures
COPY deploy/image/ask.py /opt/gpufault/ask.py
# unchecked-hash: the image does not change, so no import looks whether its source did
RUN /opt/tools/bin/python -P -m build --no-isolation --wheel \
    && /opt/tools/bin/pip --python /opt/gpufault/bin/python \
      install --no-cache-dir --no-compile --no-index --no-deps dist/gpufault-*.whl \
    && rm /opt/gpufault/lib/python3*/site-packages/gpufault-*.dist-info/direct_url.json \
    && /opt/gpufault/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/gpufault/lib /opt/gpufault/ask.py \
    && /opt/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
      --output-format JSON --output-file /opt/gpufault/sbom.cdx.json /opt/gpufault/bin/python \
    && cp --dereference /opt/gpufault/bin/python3 /opt/gpufault/bin/python-filecaps


FROM ${BASE_IMAGE}

ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="gpufault" \
      org.opencontainers.image.description="GPU crash exporter: why do GPU jobs crash on this fleet?" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

COPY --from=build /opt/gpufault /opt/gpufault
COPY deploy/gpufault.yaml /etc/gpufault/config.yaml
# State lives here: mount a volume that outlives the container and that 65534 may write.
# The attribute is cap_dac_read_search,cap_syslog=ep (capability.h: revision 2, effective; bits 2 and 34, a 4 in both
# words), for the chart's profile nonroot-filecaps; on a copy of the interpreter, which starts only where both are to be
# had.
RUN install --directory --owner=65534 --group=65534 --mode=0700 /var/lib/gpufault \
    && python3 -c 'import os, struct; os.setxattr("/opt/gpufault/bin/python-filecaps", "security.capability", struct.pack("<5I", 0x02000001, 4, 0, 4, 0))'

ENV PATH=/opt/gpufault/bin:$PATH
USER 65534:65534
EXPOSE 9873 9874
STOPSIGNAL SIGTERM
# Of `gpufault run`, for engines that look; the kubelet has probes of its own. OCI's format has no place for it.
HEALTHCHECK --interval=30s --timeout=10s CMD ["/opt/gpufault/bin/python", "-I", "/opt/gpufault/ask.py", "127.0.0.1:9873/-/healthy"]
ENTRYPOINT ["gpufault"]
CMD ["run", "--config.file=/etc/gpufault/config.yaml"]
