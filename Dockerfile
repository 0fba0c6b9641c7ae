# `colligate serve` for a user without rights. Libraries, weights and tokens are kept in /data:
#     docker build -t colligate . && docker run -p 8420:8420 -e COLLIGATE_TOKEN -v colligate:/data colligate
FROM python:3.13-slim

# llama.cpp's release computes with OpenMP.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --home-dir /data colligate

COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN pip install --no-cache-dir '/source[serve,mcp]' && rm -r /source

ENV COLLIGATE_HOME=/data COLLIGATE_HOST=0.0.0.0 PYTHONUNBUFFERED=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8420
# The first start downloads the model (1.1 GB) before it listens.
HEALTHCHECK --interval=30s --timeout=5s --start-period=15m \
    CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8420/healthz', timeout=4)"]
ENTRYPOINT ["colligate"]
CMD ["serve"]
