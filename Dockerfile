# Two images: `docker build --target serve` serves exports, the last stage trains too.
# Both run as a user without rights; the root file system may be read-only:
#   docker run --read-only --tmpfs /tmp -v runs:/work -v data:/data IMAGE --recipe digits
FROM python:3.12.11-slim-bookworm AS base
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    HOME=/work \
    TMPDIR=/tmp \
    HETERO_TF_DATA=/data \
    TF_CPP_MIN_LOG_LEVEL=3
RUN useradd --uid 1000 --home-dir /work --shell /usr/sbin/nologin hetero \
    && install --directory --owner hetero --group hetero /work /data
WORKDIR /source
COPY setup.py README.md LICENSE ./
COPY hetero_tf hetero_tf
COPY recipes recipes

# TensorFlow for the CPU and the server; no data sets, no training.
FROM base AS serve
# Bounds as in setup.py; hadolint would pin single versions.
# hadolint ignore=DL3013
RUN pip install "tensorflow-cpu>=2.20,<3" "keras>=3.10,<4" "absl-py>=2.1" "pyyaml>=6.0,<7" \
    "prometheus-client>=0.20,<1" "starlette>=1.10,<2" "uvicorn>=0.30,<1" \
    && pip install --no-deps .
WORKDIR /work
USER 1000:1000
VOLUME ["/work"]
EXPOSE 8501
ENTRYPOINT ["hetero_tf", "serve"]
CMD ["--host", "0.0.0.0", "--out", "/work/export"]

FROM base AS train
# hadolint ignore=DL3013
RUN pip install ".[litert,onnx,plot,serve,tensorboard]"
WORKDIR /work
USER 1000:1000
VOLUME ["/work", "/data"]
ENTRYPOINT ["hetero_tf"]
CMD ["--help"]
