#!/usr/bin/env bash
# Fill wheels/ with lostwax and all that it needs, for machines without a network. `tools/wheels.sh [EXTRAS]`; run it
# with the Python and on the kind of machine that will install them. PyTorch for CPUs only: set PIP_FIND_LINKS or an
# index of yours before, as pytorch.org says.
set -euo pipefail
cd "$(dirname "$0")/.."
extras=${1-tables,boosting}
python=${PYTHON:-python3}
mkdir -p wheels
"$python" -m pip wheel --quiet --wheel-dir wheels ${NO_DEPS:+--no-deps} ".${extras:+[$extras]}"
(cd wheels && sha256sum -- *.whl > SHA256SUMS)
du -sh wheels
