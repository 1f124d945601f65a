# A campaign on the CPU; docs/recipes.md says how it is started.
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu
COPY . /src
RUN pip install --no-cache-dir /src
WORKDIR /out
ENTRYPOINT ["backfuzz", "fuzz"]
