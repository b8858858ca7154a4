#!/bin/bash
# Apache Kafka's tools and, to compare with, its broker.
#   kafka.sh install                 bring the jars
#   kafka.sh tool CLASS ARG...       run a tool by the simple name of its class, e.g. TopicCommand
#   kafka.sh java ARG...             run java with the jars on its class path
#   kafka.sh start PORT DIR          a broker on PORT (its controller on PORT+1) with DIR/data, formatted if it is new
#   kafka.sh run PORT DIR [K=V...]   the same in the foreground, with more properties
#   kafka.sh stop DIR
# KAFKA_LIBS says where the jars are; by default tests/clients/.env/kafka.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
libs=${KAFKA_LIBS:-$here/../.env/kafka}

with_jars() { java -Xmx"${HEAP:-256m}" -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile="$here/log4j2.properties" -cp "$libs/*" "$@"; }

# Tools move between packages from release to release, so they are looked up once per set of jars.
class_of() {
  local index=${TMPDIR:-/tmp}/kafka-classes-$(id -u)-$(echo "$libs" | cksum | cut -d" " -f1)
  if [ ! -s "$index" ]; then
    for jar in "$libs"/kafka*.jar; do unzip -Z1 "$jar"; done | grep -E '^(kafka|org/apache/kafka)/.*\.class$' | grep -v '\$' >"$index.$$"
    mv "$index.$$" "$index"
  fi
  local found
  found=$(grep -m1 -E "/$1\.class$" "$index") || { echo "no class $1 in $libs" >&2; return 1; }
  found=${found%.class}
  echo "${found//\//.}"
}

case ${1:-} in
  install)
    mkdir -p "$libs"
    mvn -q -f "$here/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$libs"
    echo "$(ls "$libs" | wc -l) jars in $libs" ;;
  tool) class=$(class_of "$2"); shift 2; with_jars "$class" "$@" ;;
  java) shift; with_jars "$@" ;;
  start)
    port=$2 dir=$3
    mkdir -p "$dir"
    "$0" run "$port" "$dir" >"$dir/out" 2>&1 &
    echo $! >"$dir/pid"
    for _ in $(seq 100); do
      (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && exit 0
      sleep 0.3
    done
    tail -5 "$dir/out" >&2
    exit 1 ;;
  run)
    port=$2 dir=$3
    shift 3
    mkdir -p "$dir"
    cat >"$dir/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=$dir/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
END
    for property in "$@"; do echo "$property" >>"$dir/server.properties"; done
    storage=$(class_of StorageTool)
    [ -f "$dir/data/meta.properties" ] ||
      with_jars "$storage" format -t "$(with_jars "$storage" random-uuid)" -c "$dir/server.properties" >"$dir/format.out"
    main=$(class_of Kafka)
    exec java -Xmx512m -Dlog4j2.configurationFile="$here/log4j2.properties" -cp "$libs/*" "$main" "$dir/server.properties" ;;
  stop)
    pid=$(cat "$2/pid")
    kill "$pid"
    for _ in $(seq 150); do kill -0 "$pid" 2>/dev/null || exit 0; sleep 0.1; done
    exit 1 ;;
  *) sed -n '2,10p' "$0"; exit 2 ;;
esac
