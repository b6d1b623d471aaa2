# The node daemon as an image. Both stages share the interpreter's path, so the environment that the first one makes
# runs in the second. Every package comes by the hashes of the lock files, those that build the wheel too.
FROM python:3.13-slim-bookworm AS build

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements.lock requirements-dev.lock ./
RUN python -m venv /opt/tools \
    && /opt/tools/bin/pip install --require-hashes --requirement requirements-dev.lock
# --without-pip: nothing in the image installs anything
RUN python -m venv --without-pip /opt/gpufault \
    && pip --python /opt/gpufault/bin/python install --require-hashes --requirement requirements.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY exporter exporter
COPY signatures signatures
RUN /opt/tools/bin/python -P -m build --no-isolation --wheel \
    && pip --python /opt/gpufault/bin/python install --no-index --no-deps dist/gpufault-*.whl


FROM python:3.13-slim-bookworm

ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="gpufault" \
      org.opencontainers.image.description="GPU crash exporter: why do GPU jobs crash on this fleet?" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

COPY --from=build /opt/gpufault /opt/gpufault
COPY deploy/gpufault.yaml /etc/gpufault/config.yaml
# State lives here: mount a volume that outlives the container and that 65534 may write.
RUN install --directory --owner=65534 --group=65534 --mode=0700 /var/lib/gpufault

ENV PATH=/opt/gpufault/bin:$PATH
USER 65534:65534
EXPOSE 9873
STOPSIGNAL SIGTERM
ENTRYPOINT ["gpufault"]
CMD ["run", "--config.file=/etc/gpufault/config.yaml"]
