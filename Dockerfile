# Two images from one file. The worker (the last stage, what `docker build -t seqmark .` makes):
# `docker run seqmark worker -c /etc/seqmark/clicks.toml`. The Spark job: `docker build --target spark .`.
#
# Stages, so that the build tools stay out of the images. There is no Java in the worker's: it needs none.
# "bookworm" by name: it is the Debian that has Java 17.

FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/seqmark
ENV PATH=/opt/seqmark/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements.lock ./
# setuptools first, by its hash: pyspark ships as source and is built with it (see the Makefile).
RUN awk '/^[a-z]/ { keep = /^setuptools==/ } keep' requirements.lock > /tmp/build.lock \
    && pip install --require-hashes -r /tmp/build.lock \
    && pip install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY packing packing
COPY seqmark seqmark
COPY schemas schemas
COPY processor processor
COPY spark_sink spark_sink
RUN pip install --no-deps --no-build-isolation .


FROM python:3.11-slim-bookworm AS runtime
# "generic": kernels compiled on the machine that builds the image must run on the one that starts it.
# A fleet of equal machines may build with its own name (--build-arg NUMBA_CPU=skylake).
ARG NUMBA_CPU=generic
ENV PATH=/opt/seqmark/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CPU_NAME=$NUMBA_CPU \
    XDG_CACHE_HOME=/var/cache \
    SEQMARK_WORKER__STATE_DIR=/var/lib/seqmark \
    SEQMARK_WORKER__WEB_HOST=0.0.0.0
RUN groupadd --system --gid 10001 seqmark \
    && useradd --system --uid 10001 --gid seqmark --no-create-home --shell /usr/sbin/nologin seqmark \
    && install -d -m 700 -o seqmark -g seqmark /var/lib/seqmark \
    && install -d -o seqmark -g seqmark /etc/seqmark
COPY --from=build /opt/seqmark /opt/seqmark
WORKDIR /var/lib/seqmark
# Compiled here, so that a worker is ready in seconds and not in a minute. By root, and closed to everybody's
# writing: code that is run is taken from nobody else, whatever user the container is started as.
RUN python -m seqmark.processor.pipeline.warm && chmod -R go=rX /var/cache/seqmark
USER seqmark
VOLUME /var/lib/seqmark
STOPSIGNAL SIGTERM
ENTRYPOINT ["seqmark"]
CMD ["--help"]


FROM runtime AS spark
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
# Kafka's connector comes into the image here, so that a start asks no server for it. By root, as the kernels.
RUN python -c "from seqmark.spark_sink.session import connector_jars; connector_jars(print)" \
    && chmod -R go=rX /var/cache/seqmark
USER seqmark
EXPOSE 6067


FROM runtime AS worker
EXPOSE 6066
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('SEQMARK_WORKER__WEB_PORT', '6066')}/health\", timeout=4)"]
