#!/usr/bin/env bash
# From nothing to a trained model: installs what is missing, builds, prepares a corpus, trains a small GPT-2 on it (about five
# minutes on two cores), and shows what came out. A second run goes on from what exists.
#   launch/quickstart.sh [--data FILE_OR_FOLDER] [key=value ...]        e.g. train.steps=200
set -euo pipefail
origin=$PWD
cd "$(dirname "$0")/.."
say() { printf '%s\n' "$*"; }

text="" overrides=()
while [ $# -gt 0 ]; do
  case "$1" in
    --data) [ $# -ge 2 ] || { say "--data wants a file or a folder" >&2; exit 2; }; text=$(cd "$origin" && realpath -m -- "$2"); shift 2 ;;
    *=*) overrides+=("$1"); shift ;;
    *) say "usage: launch/quickstart.sh [--data FILE_OR_FOLDER] [key=value ...]" >&2; exit 2 ;;
  esac
done

say "1/4 packages"
bash launch/install_deps.sh
say "2/4 build (log: build/build.log)"
bash launch/build.sh wyvern
wyvern=build/wyvern

# The corpus: the Jargon File (public domain, 1.7 MB), unpacked from the Debian package jargon-text.
download_jargon() { apt-get download -qq jargon-text >/dev/null 2>&1; }
update_lists() { if [ "$(id -u)" -eq 0 ]; then apt-get update -qq; else sudo apt-get update -qq; fi >/dev/null 2>&1; }
fetch_jargon() {
  local corpus=data/corpus/jargon.txt work
  if [ ! -s "$corpus" ]; then
    mkdir -p data/corpus
    work=$(mktemp -d)
    chmod 755 "$work"
    if ! (cd "$work" && { download_jargon || { update_lists && download_jargon; }; } && dpkg-deb -x jargon-text_*.deb . &&
          zcat usr/share/doc/jargon-text/jargon.txt.gz > jargon.txt); then
      rm -rf "$work"
      say "could not download the package jargon-text; give a text of your own: launch/quickstart.sh --data FILE" >&2
      return 3
    fi
    mv "$work/jargon.txt" "$corpus"
    rm -rf "$work"
  fi
  echo "$corpus"
}

name=quickstart data=data/quickstart
if [ -n "$text" ]; then
  [ -e "$text" ] || { say "$text: no such file or folder" >&2; exit 2; }
  name=quickstart-$(basename "$text" | tr -c 'A-Za-z0-9\n' '-')
  data=data/$name
fi
say "3/4 data"
if [ -s "$data/manifest.json" ]; then
  say "  reusing $data"
else
  [ -n "$text" ] || text=$(fetch_jargon)
  $wyvern data prepare "$text" --out "$data" --tokenizer bpe:4096
fi

vocab=$(sed -n 's/.*"vocab_size"[: ]*\([0-9]*\).*/\1/p' "$data/manifest.json" | head -n 1)
set -- name="$name" "data.train=$data/train_*.bin" "data.val=$data/val_*.bin" "data.tokenizer=$data/tokenizer.json" "model.vocab_size=${vocab:-4096}" "${overrides[@]}"
say "4/4 train"
[ -d "runs/$name/checkpoints" ] && say "  going on with runs/$name"
code=0
$wyvern train configs/quickstart.yaml "$@" --resume auto || code=$?
[ $code -eq 0 ] || exit $code

say ""
say "a sample:"
$wyvern generate "runs/$name" --count 120 --temperature 0.8 --top-k 50
say ""
say "next:"
say "  $wyvern train configs/quickstart.yaml name=$name data.train='$data/train_*.bin' data.val='$data/val_*.bin' data.tokenizer=$data/tokenizer.json model.vocab_size=${vocab:-4096} train.steps=2000 --resume latest"
say "  $wyvern generate runs/$name --prompt 'A hacker is' --count 100"
say "  $wyvern gradcheck configs/quickstart.yaml"
