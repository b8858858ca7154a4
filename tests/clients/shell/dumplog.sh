#!/bin/bash
# Kafka's own DumpLogSegments reads every file of a stopped broker's data directory.   dumplog.sh DATA_DIR
set -u
SUITE=dump-log
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
data=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

dump() { timeout 120 "$here/../kafka/kafka.sh" tool DumpLogSegments "$@" >"$scratch/out" 2>&1; }
# What the tool prints when it is not content, whatever its exit code. That -1 is followed by a segment's first offset, which it
# says of every segment but the one at 0, is no complaint.
complaints='(Exception|isvalid: false|Found timestamp mismatch|Found out of order timestamp|Index position .* is not|Mismatches in|^ *[0-9]+ is followed by|invalid bytes)'

check() { # NAME FILES ARG...
  local name=$1 files=$2
  shift 2
  wanted "$name" || return 0
  [ -n "$files" ] || { fail "$name" "no such file in $data"; return; }
  if ! dump "$@" --files "$files"; then fail "$name" "$(tail -3 "$scratch/out")"
  # Lines of records hold what clients sent, so they are no complaints.
  elif grep -av '^| offset' "$scratch/out" | grep -aqE "$complaints"; then fail "$name" "$(grep -av '^| offset' "$scratch/out" | grep -aE -m1 "$complaints")"
  else pass "$name"; fi
}
all() { find "$data" -path '*/__cluster_metadata-0' -prune -o -name "*.$1" -size "${2:-+0}" -print | sort | paste -sd, -; }

check batches "$(all log)"
check deep_iteration "$(all log)" --deep-iteration
check printed_records "$(all log)" --print-data-log
check index_entries "$(all index)"
check index_sanity "$(all index)" --index-sanity-check
check index_against_log "$(all index)" --verify-index-only
check time_index_entries "$(all timeindex)"
check time_index_sanity "$(all timeindex)" --index-sanity-check
snapshots=$(all snapshot)
if [ -n "$snapshots" ]; then check producer_snapshots "$snapshots"; fi
metadata=$(find "$data/__cluster_metadata-0" \( -name '*.log' -o -name '*.checkpoint' \) -size +0 2>/dev/null | sort | paste -sd, -)
check cluster_metadata "$metadata" --cluster-metadata-decoder
check cluster_metadata_deep "$metadata" --deep-iteration
dump --cluster-metadata-decoder --files "$metadata"
contains cluster_metadata_names_a_topic "$(grep -am1 TOPIC_RECORD "$scratch/out")" '"type":"TOPIC_RECORD"'
closing
