#!/usr/bin/env python3
"""Every producer with every codec, read back by every consumer.   cross.py HOST:PORT

All write the same records (the plain form of python/content.py) to a topic of one partition; every consumer prints offset,
timestamp and digest of each, and all must agree with what was to be sent. Topics are created by the first client that can.
kcat takes part in both roles: a process a record when it writes, a line of its own format a record when it reads.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
ENV = os.path.join(ROOT, ".env")
sys.path.insert(0, os.path.join(ROOT, "python"))
from content import digest, record
from harness import Skip, case, equal, expect, run_cases, short, topic_name

BOOTSTRAP = sys.argv[1]
LIBS = os.environ.get("KAFKA_LIBS") or os.path.join(ENV, "kafka")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 120
CLASSES = tempfile.mkdtemp()
WANT = [record(i, plain=True) for i in range(COUNT)]
# A process for each record makes kcat slow as a producer, and a record without key and value it cannot send.
KCAT_WANT = [r for r in WANT[:24] if r.key is not None or r.value]


def java():
    """Compiled once; without a compiler, java does it at every start."""
    start = [f"{ROOT}/kafka/kafka.sh", "java"]
    if not shutil.which("javac"):
        return [*start, f"{ROOT}/java/Client.java"]
    subprocess.run(["javac", "-cp", f"{LIBS}/*", "-d", CLASSES, f"{ROOT}/java/Client.java"], check=True)
    return [*start, "-cp", f"{CLASSES}:{LIBS}/*", "Client"]


def clients():
    python = os.path.join(ENV, "python", "bin", "python")
    if os.path.exists(python):
        yield "confluent", [python, f"{ROOT}/python/confluent.py"]
        yield "kafka-python", [python, f"{ROOT}/python/kpython.py"]
        yield "aiokafka", [python, f"{ROOT}/python/aio.py"]
    if os.path.isdir(LIBS) and shutil.which("java"):
        yield "java", java()
    if os.path.exists(f"{ENV}/franz"):
        yield "franz-go", [f"{ENV}/franz"]
    if os.path.exists(f"{ENV}/rust/release/client-rskafka"):
        yield "rskafka", [f"{ENV}/rust/release/client-rskafka"]
    if shutil.which("node") and os.path.isdir(f"{ROOT}/node/node_modules/kafkajs"):
        yield "kafkajs", ["node", f"{ROOT}/node/client.js"]
    if shutil.which("kcat"):
        yield "kcat", None


CLIENTS = list(clients())


def run(command, what, **more):
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, **more)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{what}: took more than 60 s")
    if done.returncode == 3:
        raise Skip(f"{what}: the client lacks the codec")
    if done.returncode:
        raise AssertionError(f"{what}: exit status {done.returncode}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return done.stdout


def kcat_produce(topic, codec):
    for r in KCAT_WANT:
        headers = [x for name, value in r.headers for x in (b"-H", name.encode() + b"=" + value)]
        base = ["kcat", "-P", "-b", BOOTSTRAP, "-t", topic, "-p", "0", "-z", codec, *headers]
        if r.key is None:
            with tempfile.NamedTemporaryFile() as f:
                f.write(r.value)
                f.flush()
                run([*base, f.name], "kcat produces")
        else:
            # -Z makes null of what is empty.
            null = ["-Z"] if r.value is None else []
            run([*base, *null, "-K", "<key|value>", "-D", "<end of record>"], "kcat produces", input=r.key + b"<key|value>" + (r.value or b""))


def kcat_consume(topic, records):
    """kcat prints bytes as they are, so what it should print is known to the byte."""
    form = "%o %K %S %k %s %h\n"
    got = run(["kcat", "-C", "-q", "-b", BOOTSTRAP, "-t", topic, "-p", "0", "-o", "0", "-c", str(len(records)), "-X", "check.crcs=true", "-f", form], "kcat consumes")
    want = b""
    for i, r in enumerate(records):
        size = [-1 if x is None else len(x) for x in (r.key, r.value)]
        headers = b",".join(name.encode() + b"=" + value for name, value in r.headers)
        want += b"%d %d %d %s %s %s\n" % (i, *size, r.key or b"", r.value or b"", headers)
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise AssertionError(f"kcat reads something else from byte {at}: {short(got[at:at + 60])}, want {short(want[at:at + 60])}")


def consume(name, command, topic, records, times):
    lines = run([*command, "consume", BOOTSTRAP, topic, str(len(records))], f"{name} consumes").decode().splitlines()
    want = [f"{i} {r.timestamp_ms} {digest(r.key, r.value, r.headers)}" for i, r in enumerate(records)]
    if not times:
        lines, want = [[f"{o} {d}" for o, _, d in map(str.split, x)] for x in (lines, want)]
    equal(len(lines), len(want), f"records that {name} reads")
    wrong = [i for i, (a, b) in enumerate(zip(lines, want)) if a != b]
    expect(not wrong, f"{name} reads {len(wrong)} records differently, the first: {wrong and (lines[wrong[0]], want[wrong[0]])}")


def define(producer, command, codec):
    def go():
        topic = topic_name(f"cross-{producer}-{codec}")
        create(topic)
        records = KCAT_WANT if producer == "kcat" else WANT
        if producer == "kcat":
            kcat_produce(topic, codec)
        else:
            run([*command, "produce", BOOTSTRAP, topic, codec, str(COUNT)], f"{producer} produces")

        def wrong(client):
            name, other = client
            try:
                if name == "kcat":
                    kcat_consume(topic, records)
                else:
                    # kcat cannot give records a time.
                    consume(name, other, topic, records, times=producer != "kcat")
            except AssertionError as e:
                return str(e)
            return None

        with ThreadPoolExecutor(4) as readers:
            found = [w for w in readers.map(wrong, CLIENTS) if w]
        expect(not found, "; ".join(found))

    case(go, limit_s=300, name=f"{producer}_{codec}")


def create(topic):
    """An admin of whichever client is there; retention off, for the records' times are long past."""
    if os.path.isdir(LIBS) and shutil.which("java") and not os.path.exists(os.path.join(ENV, "python", "bin", "python")):
        run([f"{ROOT}/kafka/kafka.sh", "tool", "TopicCommand", "--bootstrap-server", BOOTSTRAP, "--create", "--topic", topic, "--partitions", "1", "--config", "retention.ms=-1"], "creating the topic")
    else:
        program = "import sys; sys.path.insert(0, sys.argv[1]); from confluent import Confluent; Confluent(sys.argv[2]).create(sys.argv[3])"
        run([os.path.join(ENV, "python", "bin", "python"), "-c", program, f"{ROOT}/python", BOOTSTRAP, topic], "creating the topic")


if __name__ == "__main__":
    if len(CLIENTS) < 2 or not any(name in ("confluent", "java") for name, _ in CLIENTS):
        print(f"SKIP cross: needs two clients, one of them confluent-kafka or Java ({ROOT}/install.sh)")
        print("0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    for producer, command in CLIENTS:
        for codec in CODECS:
            define(producer, command, codec)
    run_cases("cross", cleanup=lambda: shutil.rmtree(CLASSES))
