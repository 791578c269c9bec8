#!/usr/bin/env bash
# Installs what building and testing Wyvern needs, from the distribution's own packages. Does nothing when all is there.
set -euo pipefail
packages=(g++ cmake ninja-build pkg-config libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libyaml-cpp-dev libhdf5-dev
          libpcre2-dev libxxhash-dev libgtest-dev)
say() { printf '%s\n' "$*" >&2; }

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  say "This script knows Debian and Ubuntu (apt). On another system install the equivalents of:"
  say "  ${packages[*]}"
  say "and run: cmake -S . -B build -G Ninja && cmake --build build"
  exit 3
fi
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0

root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { say "Installing ${missing[*]} needs root, and there is no sudo; install them and run this again."; exit 3; }
  root=(sudo)
fi
say "installing: ${missing[*]}"
"${root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
