#!/bin/bash
# Kills, restarts and harasses target/release/corelog (or CORELOG_BIN).
#   run.sh --smoke    a few rounds of each, for CI
#   run.sh            a hundred kills, then with 1 GiB in one partition and with 1,000 partitions, then of groups, then shards, then hostile input
# Ends with `N passed, N failed`; exit status 1 if anything failed. Each program prints its seed; `corelog-crash kill --help` says how to repeat one.
set -u
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.." || exit 2
cargo build --release --quiet --package corelog-crash || exit 2
passed=0 failed=0

program() { # NAME ARG...
  local name=$1
  shift
  echo "== $name: corelog-crash $*"
  if target/release/corelog-crash "$@"; then passed=$((passed + 1)); echo "PASS crash/$name"; else failed=$((failed + 1)); echo "FAIL crash/$name"; fi
}

if [ "${1:-}" = --smoke ]; then
  program kill kill --rounds 10
  program kill_with_100_partitions kill --rounds 3 --partitions 50
  program groups groups --rounds 10
  program shards shards
  program hostile hostile --connections 2000 --frames 1000
  program kill_classic kill --rounds 3 --engine classic
  program groups_classic groups --rounds 3 --engine classic
  program hostile_classic hostile --connections 2000 --frames 1000 --engine classic
else
  program kill kill --rounds 100
  program kill_with_1_gib kill --rounds 10 --fill-mib 1024
  program kill_with_1000_partitions kill --rounds 10 --partitions 500
  program groups groups --rounds 100
  program shards shards
  program hostile hostile
  program kill_classic kill --rounds 20 --engine classic
  program groups_classic groups --rounds 20 --engine classic
  program shards_classic shards --engine classic
  program hostile_classic hostile --engine classic
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
