#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test but the slow ones (labels: ctest -L slow runs those).
set -euo pipefail
cd "$(dirname "$0")/.."
bash launch/install_deps.sh
echo "building (log: build/build.log) ..."
bash launch/build.sh
exec ctest --test-dir build --output-on-failure -LE slow "$@"
