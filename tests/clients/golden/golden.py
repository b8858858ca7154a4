#!/usr/bin/env python3
"""What Apache Kafka left is served record for record, and what Apache Kafka would write is written byte for byte.

Needs nothing but Python. With confluent-kafka the records are also decoded and compared with what Kafka's own tool printed;
with Kafka's jars that tool reads the directory after the broker's clean stop.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "python"))
from broker import Broker
from harness import Skip, case, equal, expect, run_cases
from wire import EARLIEST, LATEST, Connection, batches

ARCHIVE = os.path.join(ROOT, "..", "data", "golden", "kafka-4.3.1.tar.gz")
PYTHON = os.path.join(ROOT, ".env", "python", "bin", "python")
LIBS = os.environ.get("KAFKA_LIBS") or os.path.join(ROOT, ".env", "kafka")
USER_PARTITIONS = ("codecs-0", "codecs-1", "codecs-2", "codecs-3", "codecs-4", "compacted-0", "rolled-0", "append-time-0",
                   "append-time-1", "append-time-2", "trimmed-0", "txn-0")
LOG_START = {"trimmed-0": 20}
# The files are from December 2026: neither retention nor the cleaner may touch them, whenever the test runs.
AS_IT_IS = ("log.retention.check.interval.ms=86400000", "log.cleaner.enable=false")
SCRATCH = tempfile.mkdtemp()


def unpack(name):
    home = os.path.join(SCRATCH, name)
    with tarfile.open(ARCHIVE) as t:
        t.extractall(home, filter="data")
    return home


def log_bytes(directory):
    return b"".join(open(p, "rb").read() for p in sorted(glob.glob(os.path.join(directory, "*.log"))))


def split(name):
    topic, partition = name.rsplit("-", 1)
    return topic, int(partition)


def dumped(home, name):
    """Records that kafka-dump-log printed: offset, timestamp, key, value, names of headers; control records left out."""
    path = os.path.join(home, "dump", f"{name}.txt")
    if not os.path.exists(path):
        return None
    form = re.compile(r"\| offset: (\d+) (?:CreateTime|LogAppendTime): (\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: -?\d+ headerKeys: \[(.*?)\](.*)")
    out = []
    for line in open(path, errors="replace"):
        m = form.match(line)
        if not m or "endTxnMarker" in line:
            continue
        offset, ms, key_size, value_size, headers, rest = m.groups()
        key = re.search(r" key: (.*?)(?: payload: |$)", rest)
        value = re.search(r" payload: (.*)$", rest)
        out.append((
            int(offset), int(ms), None if key_size == "-1" else (key.group(1) if key else ""),
            None if value_size == "-1" else (value.group(1) if value else ""), headers,
        ))
    return out


@case(limit_s=120)
def a_directory_of_kafka_is_opened_and_served():
    home = unpack("open")
    before = {p: log_bytes(f"{home}/data/{p}") for p in USER_PARTITIONS}
    wrong = []
    with Broker(home, AS_IT_IS) as b:
        c = Connection(b.bootstrap)
        for name in USER_PARTITIONS:
            topic, partition = split(name)
            await_leader(c, topic, partition)
            stored = list(batches(before[name]))
            start, end = LOG_START.get(name, 0), stored[-1][1] + 1 if stored else 0
            for what, which, want in (("earliest", EARLIEST, start), ("latest", LATEST, end)):
                error, _, offset = c.list_offset(topic, partition, which)
                if (error, offset) != (0, want):
                    wrong.append(f"{name}: {what} offset is {offset} (error {error}), want {want}")
            at, got = start, b""
            while at < end:
                error, high_watermark, log_start, data = c.fetch(topic, partition, at)
                some = list(batches(data))
                if error or not some:
                    wrong.append(f"{name}: fetch at {at}: error {error}, {len(data)} bytes")
                    break
                if (high_watermark, log_start) != (end, start):
                    wrong.append(f"{name}: high watermark {high_watermark}, log start {log_start}, want {end}, {start}")
                got += b"".join(x for _, _, x in some)
                at = some[-1][1] + 1
            want = b"".join(x for _, last, x in stored if last >= start)
            if got != want:
                wrong.append(f"{name}: the {len(got)} bytes fetched are not the {len(want)} that Kafka stored")
            if start:
                error = c.fetch(topic, partition, start - 1)[0]
                if error != 1:
                    wrong.append(f"{name}: a fetch before the log start gave error {error}, want 1 (OFFSET_OUT_OF_RANGE)")
        c.close()
    for name in USER_PARTITIONS:
        if log_bytes(f"{home}/data/{name}") != before[name]:
            wrong.append(f"{name}: the log was changed by opening it")
    expect(not wrong, "; ".join(wrong))


READ = """
import sys
from confluent_kafka import Consumer, TopicPartition
bootstrap, level, *names = sys.argv[1:]
for name in names:
    # librdkafka moves a consumer to other partitions only by way of a group coordinator.
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": level, "check.crcs": True,
                  "enable.partition.eof": True, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    topic, partition = name.rsplit("-", 1)
    c.assign([TopicPartition(topic, int(partition), -2)])
    while True:
        m = c.poll(20)
        if m is None:
            sys.exit(f"{name}: nothing for 20 s")
        if m.error():
            if m.error().name() == "_PARTITION_EOF":
                break
            sys.exit(f"{name}: {m.error()}")
        print(repr((name, m.offset(), m.timestamp()[1], m.key(), m.value(), [h for h, _ in m.headers() or []])))
    c.close()
"""


def decoded(b, level, names):
    if not os.path.exists(PYTHON):
        raise Skip("needs confluent-kafka (install.sh python)")
    done = subprocess.run([PYTHON, "-c", READ, b.bootstrap, level, *names], capture_output=True, text=True, timeout=90)
    equal(done.returncode, 0, f"exit status of the reader ({done.stderr.strip()[-200:]})")
    out = {name: [] for name in names}
    for line in done.stdout.splitlines():
        name, offset, ms, key, value, headers = eval(line)  # what the program above printed with repr
        out[name].append((offset, ms, key and key.decode(), value if value is None else value.decode(), ",".join(headers)))
    return out


@case(limit_s=150)
def every_record_is_what_kafka_printed():
    home = unpack("records")
    with Broker(home, AS_IT_IS) as b:
        got = decoded(b, "read_uncommitted", USER_PARTITIONS)
    compared = 0
    for name in USER_PARTITIONS:
        want = dumped(home, name)
        if not want:
            continue  # rolled-0 was dumped by batch; its bytes are compared above
        want = [r for r in want if r[0] >= LOG_START.get(name, 0)]
        compared += len(want)
        equal(len(got[name]), len(want), f"records of {name}")
        for g, w in zip(got[name], want):
            equal(g, w, f"record of {name}")
    equal(len(got["rolled-0"]), 3000, "records of rolled-0")
    expect(compared > 600, f"only {compared} records were compared: the dump was not understood")


@case(limit_s=150)
def read_committed_leaves_out_what_was_aborted():
    home = unpack("committed")
    with Broker(home, AS_IT_IS) as b:
        got = decoded(b, "read_committed", ["txn-0"])["txn-0"]
    equal(len(got), 17, "records of txn-0 under read_committed")
    expect(all(value.startswith("c") for _, _, _, value, _ in got), "an aborted record was delivered")


@case(limit_s=150)
def times_find_the_offsets_that_kafka_indexed():
    home = unpack("times")
    with Broker(home, AS_IT_IS) as b:
        c = Connection(b.bootstrap)
        await_leader(c, "codecs", 3)
        await_leader(c, "rolled")
        records = [r for r in dumped(home, "codecs-3")]
        for i in (0, 1, 50, 99):
            equal(c.list_offset("codecs", 3, records[i][1]), (0, records[i][1], i), f"offset for the time of record {i}")
        equal(c.list_offset("codecs", 3, records[99][1] + 1), (0, -1, -1), "offset for a time after the last")
        # rolled-0: the first batch with each timestamp, over three segments.
        seen = {}
        for base, _, batch in batches(log_bytes(f"{home}/data/rolled-0")):
            seen.setdefault(int.from_bytes(batch[35:43], "big"), base)
        for ms in sorted(seen):
            error, found, offset = c.list_offset("rolled", 0, ms)
            expect(error == 0 and found == ms and seen[ms] <= offset <= seen[ms] + 9, f"offset for {ms}: {offset} at {found}, error {error}")
        c.close()


REPLAYED = {
    "codecs-0": {}, "codecs-1": {}, "codecs-2": {}, "codecs-3": {}, "codecs-4": {}, "trimmed-0": {},
    "rolled-0": {"segment.bytes": "1048576", "index.interval.bytes": "1024"},
}


@case(limit_s=150)
def replayed_batches_leave_the_files_that_kafka_left():
    home = unpack("replay-source")
    target = os.path.join(SCRATCH, "replay")
    os.makedirs(target)
    wrong = []
    with Broker(target) as b:
        c = Connection(b.bootstrap)
        for name, configs in REPLAYED.items():
            topic = "re-" + name[:-2] + "-" + name[-1]
            # Whenever the test runs, these times must be neither too old nor too young.
            c.create_topic(topic, {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1), **configs})
            await_leader(c, topic)
            for base, _, batch in batches(log_bytes(f"{home}/data/{name}")):
                error, offset = c.produce(topic, bytes(8) + batch[8:])
                if (error, offset) != (0, base):
                    wrong.append(f"{name}: batch {base} was answered with error {error}, offset {offset}")
                    break
        c.close()
    expect(not wrong, "; ".join(wrong))
    for name in REPLAYED:
        theirs, ours = f"{home}/data/{name}", f"{target}/data/re-{name[:-2]}-{name[-1]}-0"
        files = sorted(os.path.basename(p) for e in ("log", "index", "timeindex") for p in glob.glob(f"{theirs}/*.{e}"))
        found = sorted(os.path.basename(p) for e in ("log", "index", "timeindex") for p in glob.glob(f"{ours}/*.{e}"))
        if files != found:
            wrong.append(f"{name}: the files are {found}, want {files}")
            continue
        for f in files:
            a, b_ = open(f"{theirs}/{f}", "rb").read(), open(f"{ours}/{f}", "rb").read()
            if a != b_:
                at = next((i for i, (x, y) in enumerate(zip(a, b_)) if x != y), min(len(a), len(b_)))
                wrong.append(f"{name}/{f}: {len(b_)} bytes, want {len(a)}; they differ from byte {at}: {b_[at:at + 12].hex()}, want {a[at:at + 12].hex()}")
    expect(not wrong, "; ".join(wrong))


def await_leader(c, topic, partition=0):
    """A partition that is new, or that is still being recovered, has no leader for a moment."""
    for _ in range(200):
        error = c.list_offset(topic, partition, LATEST)[0]
        if error == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"{topic}-{partition} has no leader after 10 s (error {error})")


@case(limit_s=200)
def kafkas_tool_reads_the_replayed_directory():
    target = os.path.join(SCRATCH, "replay", "data")
    if not glob.glob(f"{LIBS}/kafka-tools-*.jar") or not shutil.which("java"):
        raise Skip("needs Kafka's jars (install.sh java)")
    expect(os.path.isdir(target), "the replay case left no directory")
    done = subprocess.run([f"{ROOT}/shell/dumplog.sh", target], capture_output=True, text=True, env={**os.environ, "ONLY": ""})
    equal(done.returncode, 0, "kafka-dump-log: " + "; ".join(x for x in done.stdout.splitlines() if x.startswith("FAIL")))


if __name__ == "__main__":
    run_cases("golden", cleanup=lambda: shutil.rmtree(SCRATCH))
