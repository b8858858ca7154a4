#!/bin/bash
# Runs the real clients against a broker.   run.sh [--bootstrap HOST:PORT] [python|shell|java|node|go|rust|cross|golden|tools|groups ...]
# Without --bootstrap it starts target/release/corelog (or CORELOG_BIN) on a free port with a new data directory, stops it at the end and
# lets Kafka's kafka-dump-log read what it left. install.sh brings the clients; what is not installed is SKIP. ONLY=word,word
# picks cases by name. Ends with `N passed, N failed, N skipped`; exit status 1 if anything failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
env=$here/.env
bootstrap=""
if [ "${1:-}" = --bootstrap ]; then bootstrap=$2; shift 2; fi
[ $# -gt 0 ] || set -- python shell java node go rust cross golden tools groups
export KAFKA_LIBS=${KAFKA_LIBS:-$env/kafka}
scratch=$(mktemp -d)
broker_pid=""
finish() {
  [ -z "$broker_pid" ] || kill -KILL "$broker_pid" 2>/dev/null
  rm -rf "$scratch"
}
trap finish EXIT
. "$here/broker.sh"

passed=0 failed=0 skipped=0
# program NAME COMMAND...: shows its lines and adds up its closing count; one that ends without a count has failed.
program() {
  local name=$1 count
  shift
  timeout "${LIMIT:-900}" "$@" 2>"$scratch/err" | tee "$scratch/out" | grep -vE '^[0-9]+ passed, '
  count=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$scratch/out" | tail -1)
  if [ -z "$count" ]; then
    echo "FAIL $name: ended without a count: $(tail -3 "$scratch/err")"
    failed=$((failed + 1))
  else
    read -r p _ f _ s _ <<<"${count//,/}"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  fi
}
missing() { skipped=$((skipped + 1)); echo "SKIP $1: not installed ($here/install.sh $2)"; }

# These start brokers of their own.
own_brokers=" golden tools groups "
needs_broker=""
for runtime in "$@"; do [[ $own_brokers == *" $runtime "* ]] || needs_broker=1; done
if [ -z "$bootstrap" ] && [ -n "$needs_broker" ]; then
  [ -x "$CORELOG_BIN" ] || { echo "no broker at $CORELOG_BIN: cargo build --release, or set CORELOG_BIN" >&2; exit 2; }
  port=$(free_port) || exit 2
  start_broker "$port" "$scratch/data" "$scratch/broker.log" group.initial.rebalance.delay.ms=0 || exit 1
  bootstrap=127.0.0.1:$port
  own=1
fi

for runtime in "$@"; do
  case $runtime in
    python)
      if [ -x "$env/python/bin/python" ]; then
        for p in confluent kpython aio; do program "$p" "$env/python/bin/python" "$here/python/$p.py" test "$bootstrap"; done
      else missing python python; fi ;;
    shell)
      if command -v kcat >/dev/null; then program kcat "$here/shell/kcat.sh" test "$bootstrap"; else missing kcat shell; fi ;;
    java)
      if ls "$KAFKA_LIBS"/kafka-clients-*.jar >/dev/null 2>&1 && command -v java >/dev/null; then
        program java "$here/kafka/kafka.sh" java "$here/java/Client.java" test "$bootstrap"
        program tools "$here/shell/tools.sh" test "$bootstrap"
      else missing java java; fi ;;
    node)
      if [ -d "$here/node/node_modules/kafkajs" ]; then program kafkajs node "$here/node/client.js" test "$bootstrap"; else missing kafkajs node; fi ;;
    go)
      if [ -x "$env/franz" ]; then program franz-go "$env/franz" test "$bootstrap"; else missing franz-go go; fi ;;
    rust)
      if [ -x "$env/rust/release/client-rskafka" ]; then program rskafka "$env/rust/release/client-rskafka" test "$bootstrap"; else missing rskafka rust; fi ;;
    cross)
      program cross python3 "$here/cross/cross.py" "$bootstrap" ;;
    golden)
      program golden python3 "$here/golden/golden.py" ;;
    tools)
      program sidebyside python3 "$here/tools/sidebyside.py"
      program handover python3 "$here/tools/handover.py" ;;
    groups)
      if [ -x "$env/python/bin/python" ]; then program groups "$env/python/bin/python" "$here/groups/groups.py"; else missing groups python; fi ;;
    *) echo "unknown runtime $runtime" >&2; exit 2 ;;
  esac
done

if [ -n "${own:-}" ]; then
  if stop_broker; then passed=$((passed + 1)); echo "PASS broker/clean_stop"
  else failed=$((failed + 1)); echo "FAIL broker/clean_stop: $(tail -3 "$scratch/broker.log")"; fi
  broker_pid=""
  if grep -qE ' (WARN|ERROR) |panicked' "$scratch/broker.log"; then
    failed=$((failed + 1)); echo "FAIL broker/no_warnings: $(grep -E -m3 ' (WARN|ERROR) |panicked' "$scratch/broker.log")"
  else passed=$((passed + 1)); echo "PASS broker/no_warnings"; fi
  if ls "$KAFKA_LIBS"/kafka-clients-*.jar >/dev/null 2>&1 && command -v java >/dev/null; then program dump-log "$here/shell/dumplog.sh" "$scratch/data"; else missing dump-log java; fi
fi
[ -z "${KEEP:-}" ] || { cp -r "$scratch" "$KEEP"; echo "kept in $KEEP"; }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
