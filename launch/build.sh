#!/usr/bin/env bash
# Configures and builds in build/ (Release). Arguments are passed to the build: targets.
set -euo pipefail
cd "$(dirname "$0")/.."
log=build/build.log
mkdir -p build
if ! { cmake -S . -B build -G Ninja "${CMAKE_ARGS[@]:--DCMAKE_BUILD_TYPE=Release}" && cmake --build build --parallel "$(nproc)" --target "${@:-all}"; } >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "the build failed; the whole log is $log" >&2
  exit 1
fi
