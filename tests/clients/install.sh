#!/bin/bash
# Brings what the client programs need, by package name, into tests/clients/.env (nothing else on the machine is touched,
# but for kcat, which is a package of the distribution).   install.sh [python|shell|java|node|go|rust ...]   (default: all)
# A runtime that the machine lacks is named and left out; an install that fails is an error.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
env=$here/.env
mkdir -p "$env"
failed=0

have() { command -v "$1" >/dev/null || { echo "$2: no $1 on this machine, left out"; return 1; }; }

python() {
  have python3 python || return 0
  [ -x "$env/python/bin/python" ] || python3 -m venv "$env/python"
  "$env/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/python/requirements.txt"
}
shell() {
  command -v kcat >/dev/null && return 0
  have apt-get shell || return 0
  apt-get install -y -q kcat >"$env/kcat.log" 2>&1 || { apt-get update -q >>"$env/kcat.log" 2>&1; apt-get install -y -q kcat >>"$env/kcat.log" 2>&1; }
}
java() {
  have java java || return 0
  have mvn java || return 0
  KAFKA_LIBS=$env/kafka "$here/kafka/kafka.sh" install
}
node() {
  have npm node || return 0
  (cd "$here/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
}
go() {
  have go go || return 0
  (cd "$here/go" && command go build -o "$env/franz" .)
}
rust() {
  have cargo rust || return 0
  CARGO_TARGET_DIR=$env/rust cargo build --quiet --release --manifest-path "$here/rust/Cargo.toml"
}

[ $# -gt 0 ] || set -- python shell java node go rust
for runtime in "$@"; do
  case $runtime in
    python | shell | java | node | go | rust) ;;
    *) echo "unknown runtime $runtime" >&2; exit 2 ;;
  esac
  if (set -e; "$runtime"); then echo "$runtime: ready"; else echo "$runtime: could not be installed" >&2; failed=1; fi
done
exit $failed
