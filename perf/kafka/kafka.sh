#!/bin/bash
# Apache Kafka's broker for comparison runs, in the foreground (JDK 17 or later).
#   kafka.sh install JARS                  bring the jars from Maven into JARS
#   kafka.sh run JARS PORT DIR [K=V...]    a broker on PORT, its controller on PORT+1, its data in DIR/data, with more properties
# HEAP sets the heap; by default it is what Kafka's own start script gives a broker.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
heap=${HEAP:--Xms1g -Xmx1g}
pom=$here/../../tests/clients/kafka/pom.xml

java_with() { # HEAP CLASS ARG...
  local heap=$1
  shift
  # What kafka-run-class.sh gives a broker.
  exec java $heap -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \
    -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true \
    -Dlog4j2.configurationFile="$here/log4j2.properties" -cp "$jars/*" "$@"
}

case ${1:-} in
  install)
    mvn -q -f "$pom" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$2" ;;
  run)
    jars=$2 port=$3 dir=$4
    shift 4
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
END
    for property in "$@"; do echo "$property" >>"$dir/server.properties"; done
    if [ ! -f "$dir/data/meta.properties" ]; then
      cluster=$(java_with -Xmx256m kafka.tools.StorageTool random-uuid)
      (java_with -Xmx256m kafka.tools.StorageTool format -t "$cluster" -c "$dir/server.properties") >"$dir/format.out"
    fi
    java_with "$heap" kafka.Kafka "$dir/server.properties" ;;
  *)
    sed -n '2,5p' "$0"
    exit 2 ;;
esac
