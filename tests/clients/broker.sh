# Starting and stopping the broker under test; sourced by run.sh.  CORELOG_BIN names the binary.
here_broker=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CORELOG_BIN=${CORELOG_BIN:-$here_broker/../../target/release/corelog}

# A free port below the ephemeral range.
free_port() {
  local port
  for _ in $(seq 100); do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port; return 0; }
  done
  echo "no free port found" >&2
  return 1
}

# start_broker PORT DATA_DIR LOG [override...]: sets broker_pid, returns when the port answers.
start_broker() {
  local port=$1 data=$2 log=$3 more=()
  shift 3
  for o in "$@"; do more+=(--override "$o"); done
  "$CORELOG_BIN" serve --override "listeners=PLAINTEXT://127.0.0.1:$port" --override "log.dirs=$data" --override "admin.listener=" "${more[@]}" >>"$log" 2>&1 &
  broker_pid=$!
  for _ in $(seq 200); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
    kill -0 "$broker_pid" 2>/dev/null || break
    sleep 0.05
  done
  echo "the broker does not answer on port $port:" >&2
  tail -5 "$log" >&2
  return 1
}

# stop_broker: a clean stop; fails when it takes longer than 20 s or ends with an error.
stop_broker() {
  kill -TERM "$broker_pid" 2>/dev/null || return 1
  for _ in $(seq 200); do
    kill -0 "$broker_pid" 2>/dev/null || { wait "$broker_pid"; return; }
    sleep 0.1
  done
  kill -KILL "$broker_pid"
  return 1
}
