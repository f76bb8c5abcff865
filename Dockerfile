# Two images from one file. The worker (the last stage, what `docker build -t seqmark .` makes):
# `docker run seqmark worker -c /etc/seqmark/clicks.toml`. The Spark job: `docker build --target spark .`.
# docs/deploy.md says what is in them, and what can be set when they are built.
#
# "bookworm" by name: it is the Debian that has Java 17. Name a digest for a build that is the same tomorrow.
ARG PYTHON=python:3.11-slim-bookworm

# Has the sources, what builds the wheel, and pip for the stages after it; nothing of it is in an image.
FROM ${PYTHON} AS tools
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY pyproject.toml requirements.lock README.md LICENSE NOTICE ./
COPY packing packing
RUN python -m packing.locked hatchling > /tmp/tools.lock \
    && pip install --require-hashes -r /tmp/tools.lock
COPY seqmark seqmark
COPY schemas schemas
COPY processor processor
COPY spark_sink spark_sink


# What the worker needs, each file by its hash, in an environment without pip. Its Python compiles the kernels that
# the wheel brings along, as `make dist` does, with hatchling from beside it, which reads the tree: every machine that
# is at least their processor loads them.
FROM tools AS build
ARG EXTRAS=""
RUN python -m venv --without-pip /opt/seqmark \
    && python -m packing.locked "seqmark[$EXTRAS]" > /tmp/worker.lock \
    && pip --python /opt/seqmark/bin/python install --require-hashes -r /tmp/worker.lock \
    && PYTHONPATH=$(python -c "import site; print(site.getsitepackages()[0])") \
        /opt/seqmark/bin/python -m packing.kernels /tmp/kernels \
    && SEQMARK_KERNELS=/tmp/kernels pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/seqmark/bin/python install --no-deps /wheels/*.whl


# The same with Spark. pyspark ships as source: what builds it is taken away again.
FROM build AS spark-build
RUN python -m packing.locked setuptools > /tmp/setuptools.lock \
    && python -m packing.locked "seqmark[spark,postgres,report]" > /tmp/spark.lock \
    && pip --python /opt/seqmark/bin/python install --require-hashes -r /tmp/setuptools.lock \
    && pip --python /opt/seqmark/bin/python install --require-hashes --no-build-isolation --use-pep517 \
        -r /tmp/spark.lock \
    && pip --python /opt/seqmark/bin/python uninstall --yes setuptools


FROM ${PYTHON} AS runtime
# Kernels for one more processor, beside the wheel's. "generic" runs on every machine of the architecture; a
# fleet may name its own (--build-arg NUMBA_CPU=skylake). A container takes them that is told the same name:
# docker run -e NUMBA_CPU_NAME=generic.
ARG NUMBA_CPU=generic
ENV PATH=/opt/seqmark/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/var/cache \
    SEQMARK_WORKER__STATE_DIR=/var/lib/seqmark \
    SEQMARK_WORKER__WEB_HOST=0.0.0.0
RUN groupadd --system --gid 10001 seqmark \
    && useradd --system --uid 10001 --gid seqmark --no-create-home --shell /usr/sbin/nologin seqmark \
    && install -d -m 700 -o seqmark -g seqmark /var/lib/seqmark \
    && install -d /etc/seqmark
COPY --from=build /opt/seqmark /opt/seqmark
WORKDIR /var/lib/seqmark
# By root, and closed to everybody's writing: code that is run is taken from nobody else, whatever user the
# container is started as.
RUN NUMBA_CPU_NAME=$NUMBA_CPU python -m seqmark.processor.pipeline.warm && chmod -R go=rX /var/cache/seqmark
USER 10001:10001
VOLUME /var/lib/seqmark
STOPSIGNAL SIGTERM
ENTRYPOINT ["seqmark"]
CMD ["--help"]


FROM runtime AS spark
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-build /opt/seqmark /opt/seqmark
# Kafka's connector comes into the image here, so that a start asks no server for it. By root, as the kernels.
RUN python -c "from seqmark.spark_sink.session import connector_jars; connector_jars(print)" \
    && chmod -R go=rX /var/cache/seqmark
USER 10001:10001
EXPOSE 6067


FROM runtime AS worker
EXPOSE 6066
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('SEQMARK_WORKER__WEB_PORT', '6066')}/health\", timeout=4)"]
