# `pellucid serve` in a container: the base install, without PyTorch, not run as root.
#
#   docker build -t pellucid .
#   docker run --rm -p 8000:8000 -v ./models:/models:ro pellucid --model /models

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY src src
RUN python -m venv /opt/pellucid \
 && /opt/pellucid/bin/pip install --no-cache-dir --disable-pip-version-check .

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin pellucid
COPY --from=build /opt/pellucid /opt/pellucid
ENV PATH=/opt/pellucid/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PELLUCID_MODELS=/models \
    PELLUCID_KEYS=/keys/keys.json
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["python", "-c", \
  "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health/live', timeout=2)"]
ENTRYPOINT ["pellucid", "serve", "--host", "0.0.0.0"]
