#!/bin/bash
# Kafka's own command line tools, each doing its main job against a running broker.   tools.sh test HOST:PORT
set -u
SUITE=tools
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
b=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

tool() { timeout 60 "$here/../kafka/kafka.sh" tool "$@" 2>&1; }

contains kafka_broker_api_versions "$(tool BrokerApiVersionsCommand --bootstrap-server "$b")" "Produce(0):"

t=$(topic tools)
contains kafka_topics_create "$(tool TopicCommand --bootstrap-server "$b" --create --topic "$t" --partitions 3 --replication-factor 1 --config retention.ms=3600000)" "Created topic $t"
contains kafka_topics_list "$(tool TopicCommand --bootstrap-server "$b" --list)" "$t"
described=$(tool TopicCommand --bootstrap-server "$b" --describe --topic "$t")
contains kafka_topics_describe "$described" "PartitionCount: 3"
contains kafka_topics_describe_configs "$described" "retention.ms=3600000"
contains kafka_topics_create_again "$(tool TopicCommand --bootstrap-server "$b" --create --topic "$t")" "already exists"
tool TopicCommand --bootstrap-server "$b" --alter --topic "$t" --partitions 5 >"$scratch/out"
contains kafka_topics_alter "$(tool TopicCommand --bootstrap-server "$b" --describe --topic "$t")" "PartitionCount: 5"

contains kafka_configs_alter "$(tool ConfigCommand --bootstrap-server "$b" --alter --entity-type topics --entity-name "$t" --add-config max.message.bytes=2000000)" "Completed updating config"
contains kafka_configs_describe "$(tool ConfigCommand --bootstrap-server "$b" --describe --entity-type topics --entity-name "$t")" "max.message.bytes=2000000"
tool ConfigCommand --bootstrap-server "$b" --alter --entity-type topics --entity-name "$t" --delete-config max.message.bytes >"$scratch/out"
equal kafka_configs_delete "$(tool ConfigCommand --bootstrap-server "$b" --describe --entity-type topics --entity-name "$t" | grep -c max.message.bytes)" 0
contains kafka_configs_describe_all "$(tool ConfigCommand --bootstrap-server "$b" --describe --all --entity-type topics --entity-name "$t")" "segment.bytes=1073741824"
node=$(tool BrokerApiVersionsCommand --bootstrap-server "$b" | sed -n 's/.*(id: \([0-9]*\) rack.*/\1/p' | head -1)
contains kafka_configs_describe_broker "$(tool ConfigCommand --bootstrap-server "$b" --describe --all --entity-type brokers --entity-name "$node")" "log.dirs="
contains kafka_configs_alter_broker "$(tool ConfigCommand --bootstrap-server "$b" --alter --entity-type brokers --entity-name "$node" --add-config log.retention.ms=604800000)" "Completed updating config"
tool ConfigCommand --bootstrap-server "$b" --alter --entity-type brokers --entity-name "$node" --delete-config log.retention.ms >"$scratch/out"

seq 1000 | sed 's/.*/k&:v&/' >"$scratch/records"
tool ConsoleProducer --bootstrap-server "$b" --topic "$t" --reader-property parse.key=true --reader-property key.separator=: <"$scratch/records" >"$scratch/out"
equal kafka_console_producer "$(cat "$scratch/out")" ""
consumed=$(for p in 0 1 2 3 4; do tool ConsoleConsumer --bootstrap-server "$b" --topic "$t" --partition $p --offset earliest --timeout-ms 3000 --formatter-property print.key=true --formatter-property key.separator=: 2>/dev/null | grep '^k'; done | sort | md5sum)
equal kafka_console_consumer "$consumed" "$(sort "$scratch/records" | md5sum)"

u=$(topic one)
tool TopicCommand --bootstrap-server "$b" --create --topic "$u" --partitions 1 >"$scratch/out"
for codec in none gzip snappy lz4 zstd; do
  echo "by-$codec" | tool ConsoleProducer --bootstrap-server "$b" --topic "$u" --compression-codec $codec >"$scratch/out"
done
equal kafka_console_producer_codecs "$(tool ConsoleConsumer --bootstrap-server "$b" --topic "$u" --partition 0 --offset 1 --max-messages 4 | grep '^by-' | tr '\n' ' ')" "by-gzip by-snappy by-lz4 by-zstd "
printf 'h1:v1,h2:v2\tkey\tvalue\n' | tool ConsoleProducer --bootstrap-server "$b" --topic "$u" --reader-property parse.headers=true --reader-property parse.key=true >"$scratch/out"
contains kafka_console_headers "$(tool ConsoleConsumer --bootstrap-server "$b" --topic "$u" --partition 0 --offset 5 --max-messages 1 --formatter-property print.headers=true --formatter-property print.key=true)" $'h1:v1,h2:v2\tkey\tvalue'

equal kafka_get_offsets "$(tool GetOffsetShell --bootstrap-server "$b" --topic "$u" | tail -1)" "$u:0:6"
equal kafka_get_offsets_earliest "$(tool GetOffsetShell --bootstrap-server "$b" --topic "$u" --time earliest | tail -1)" "$u:0:0"
equal kafka_get_offsets_by_time "$(tool GetOffsetShell --bootstrap-server "$b" --topic "$u" --time 1 | tail -1)" "$u:0:0"
equal kafka_get_offsets_max_timestamp "$(tool GetOffsetShell --bootstrap-server "$b" --topic "$u" --time max-timestamp | tail -1)" "$u:0:5"

echo "{\"version\":1,\"partitions\":[{\"topic\":\"$u\",\"partition\":0,\"offset\":3}]}" >"$scratch/delete.json"
contains kafka_delete_records "$(tool DeleteRecordsCommand --bootstrap-server "$b" --offset-json-file "$scratch/delete.json")" "low_watermark: 3"
equal kafka_get_offsets_after_delete "$(tool GetOffsetShell --bootstrap-server "$b" --topic "$u" --time earliest | tail -1)" "$u:0:3"

contains kafka_producer_perf_test "$(tool ProducerPerformance --bootstrap-server "$b" --topic "$t" --num-records 20000 --record-size 200 --throughput -1 --command-property linger.ms=5 --command-property compression.type=lz4)" "20000 records sent"
total=$(tool GetOffsetShell --bootstrap-server "$b" --topic "$t" | awk -F: '{s += $3} END {print s}')
equal kafka_producer_perf_test_count "$total" 21000
verified=$(tool VerifiableProducer --bootstrap-server "$b" --topic "$u" --max-messages 500 --acks -1)
contains kafka_verifiable_producer "$verified" '"name":"tool_data","sent":500,"acked":500'

contains kafka_log_dirs "$(tool LogDirsCommand --bootstrap-server "$b" --describe --topic-list "$u")" "\"partition\":\"$u-0\""
contains kafka_cluster_id "$(tool ClusterTool cluster-id --bootstrap-server "$b")" "Cluster ID:"
tool TopicCommand --bootstrap-server "$b" --delete --topic "$u" >"$scratch/out"
equal kafka_topics_delete "$(tool TopicCommand --bootstrap-server "$b" --list | grep -cx -- "$u")" 0
closing
