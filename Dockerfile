# lostwax without a network: fill wheels/ first (tools/wheels.sh), then `docker build -t lostwax .`; it asks nobody.
#   docker run --rm --network none -v "$PWD:/work" lostwax audit recipe.py --out audit
FROM python:3.12-slim
COPY wheels /wheels
RUN cd /wheels && sha256sum --check --quiet SHA256SUMS \
 && pip install --no-cache-dir --no-index --find-links /wheels "lostwax[tables,boosting]" && rm -rf /wheels
RUN useradd --create-home auditor
USER auditor
WORKDIR /work
ENTRYPOINT ["lostwax"]
