#!/usr/bin/env python3
"""Kafka's tools print against corelog what they print against Apache Kafka.

The files *.txt here are scripts: a comment, commands, `----`, what they print on Apache Kafka 4.3.1, an empty line. Ids, ports,
times and measured numbers are replaced on both sides. Each file has a broker of its own.

    sidebyside.py                     compares corelog with the files (CORELOG_BIN names the binary)
    sidebyside.py --record            runs Apache Kafka and rewrites the files
    BROKER=kafka sidebyside.py        compares Apache Kafka with what was recorded of it
"""

import difflib
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "python"))
from broker import Broker
from harness import Skip, case, run_cases

LIBS = os.environ.get("KAFKA_LIBS") or os.path.join(ROOT, ".env", "kafka")
RECORD = sys.argv[1:] == ["--record"]
SCRATCH = tempfile.mkdtemp()
SETTINGS = ("node.id=1", "group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000", "offsets.topic.num.partitions=5",
            "num.partitions=1", "auto.create.topics.enable=false")

# What differs from run to run: (pattern, replacement).
REPLACED = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"((?:Cluster ID|ClusterId|TopicId|DirectoryId): *|\"directoryId\" *: *\")[\w-]{22}\b", r"\1ID"),
    (r'"(timestamp|commitTimestamp|currentStateTimestamp)":\d+', r'"\1":TIME'),
    (r'"topicId":"(?!A{22})[\w-]{22}"', '"topicId":"ID"'),
    (r"console-consumer-\d+", "console-consumer-N"),
    (r"^(\d+ +127\.0\.0\.1 )\d+", r"\1PORT"),
    (r"(HighWatermark: +)\d+", r"\1N"),
    (r"Epoch: \d+$", "Epoch: N"),
    # A controller's listener, which corelog does not need.
    (r', "endpoints": \["CONTROLLER://HOST:PORT"\]', ""),
    # NodeId, DirectoryId, LogEndOffset, Lag, times, Status
    (r"^(\d+\s+\S{22}\s+)\d+ *(\s+\d+\s+)\S.*\S(\s+\w+\s*)$", r"\1N\2TIMES\3"),
    # eligible.leader.replicas.version, which is not built yet, gives every topic this setting.
    (r"(Configs: .*?)min\.insync\.replicas=1,?", r"\1"),
    (r"\}Processed", "}\nProcessed"),
    # One record a line where a formatter ends none.
    (r'\}\{"key":', '}\n{"key":'),
    # kafka-consumer-perf-test: what was read stays, how fast does not.
    (r"^[-\d]{10} [:\d]{12}, [-\d]{10} [:\d]{12}, ([\d.]+), [\d.]+, (\d+), .*", r"START, END, \1, RATE, \2, RATES"),
]
# Java's stack traces say where the tool was, not what the broker did.
TRACE = re.compile(r"^\s+(at [\w.$/]+\(|\.\.\. \d+ more)|^Caused by: ")
# Features of Kafka that corelog does not finalise, for they are not built yet.
FEATURES = r"(eligible\.leader\.replicas|group|kraft|share|streams|transaction)\.version"
# APIs that corelog does not serve yet.
APIS = ("SaslHandshake|SaslAuthenticate|AddPartitionsToTxn|AddOffsetsToTxn|EndTxn|WriteTxnMarkers|TxnOffsetCommit|DescribeAcls|CreateAcls|DeleteAcls|"
        "CreateDelegationToken|RenewDelegationToken|ExpireDelegationToken|DescribeDelegationToken|DescribeClientQuotas|AlterClientQuotas|"
        "DescribeUserScramCredentials|AlterUserScramCredentials|DescribeTransactions|ListTransactions|ConsumerGroupHeartbeat|ConsumerGroupDescribe|"
        "ShareGroupHeartbeat|ShareGroupDescribe|ShareFetch|ShareAcknowledge|AddRaftVoter|RemoveRaftVoter|InitializeShareGroupState|ReadShareGroupState|"
        "WriteShareGroupState|DeleteShareGroupState|ReadShareGroupStateSummary|StreamsGroupHeartbeat|StreamsGroupDescribe|DescribeShareGroupOffsets|"
        "AlterShareGroupOffsets|DeleteShareGroupOffsets")
# Lines that are left out on both sides, by name: (tool, pattern of the line, why).
LEFT_OUT = [
    ("kafka-broker-api-versions", rf"^\s+({APIS})\(", "not built yet"),
    ("kafka-broker-api-versions", r"^\s+(ApiVersions|DeleteGroups)\(", "served in one version more, that of Kafka 4.4"),
    ("kafka-features", FEATURES, "not built yet"),
    ("kafka-features", r"(metadata.version can be upgraded to 30\.|operation\(s\) failed)", "counts and follows the features above"),
    ("kafka-configs", r"^  min\.insync\.replicas=1 sensitive=false synonyms=\{D", "set by eligible.leader.replicas.version, not built yet"),
    ("kafka-console-consumer", r'"value":\{"version":3,"data":\{"protocolType":"","generation":0,', "a new group's record, which corelog writes with the first generation"),
    ("kafka-console-consumer", r"^Processed a total of [34]\d messages", "counts these records"),
    ("kafka-console-consumer", "KIP-848", "the client's advertisement, once a process"),
]


def normal(text, home):
    text = text.replace(f"{home}/data", "DATA").replace(home, "HOME")
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text, flags=re.M)
    return text


class Driver:
    """Tools.java on a broker: a command in, what it printed out."""

    def __init__(self, bootstrap, home):
        self.home = home
        self.process = subprocess.Popen(
            [os.path.join(ROOT, "kafka", "kafka.sh"), "java", os.path.join(HERE, "Tools.java"), bootstrap, home],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")

    def run(self, command):
        command, *filters = command.split(" | ")
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        lines = []
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"the driver ended at {command!r}: {''.join(lines)[-300:]}")
            if line.startswith("\x01"):
                break
            lines.append(line.rstrip("\n"))
        status = int(line[1:])
        tool = command.split()[0]
        lines = normal("\n".join(lines), self.home).split("\n")
        out = [x.rstrip() for x in lines if x.strip() and not TRACE.search(x) and not any(t == tool and re.search(p, x) for t, p, _ in LEFT_OUT)]
        for f in filters:
            if f == "sort":
                out.sort()
            else:
                raise AssertionError(f"no filter {f}")
        if status:
            out.append(f"exit status {status}")
        return out

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)


def blocks(path):
    """(comments, commands, expected) for each block of a script; blocks end with an empty line."""
    for block in re.split(r"\n\n+", open(path).read().strip("\n")):
        head, _, expected = block.partition("----")
        head = head.strip("\n").split("\n")
        yield [x for x in head if x.startswith("#")], [x for x in head if not x.startswith("#")], expected.strip("\n").split("\n") if expected.strip("\n") else []


def compare(path):
    if not glob.glob(f"{LIBS}/kafka-tools-*.jar") or not shutil.which("java"):
        raise Skip("needs Kafka's jars (install.sh java)")
    home = os.path.join(SCRATCH, os.path.basename(path))
    os.makedirs(home)
    written, wrong = [], []
    with Broker(home, SETTINGS) as b:
        driver = Driver(b.bootstrap, home)
        for comments, commands, expected in blocks(path):
            got = []
            for command in commands:
                got += driver.run(command)
            written.append("\n".join([*comments, *commands, "----", *got]))
            if got != expected:
                wrong.append(commands[-1])
                if not RECORD:
                    print("\n".join([f"  $ {x}" for x in commands] + [f"  {x}" for x in difflib.unified_diff(expected, got, "Apache Kafka", "corelog", lineterm="", n=1)]), flush=True)
        driver.close()
    if RECORD:
        with open(path, "w") as f:
            f.write("\n\n".join(written) + "\n")
    elif wrong:
        raise AssertionError(f"{len(wrong)} of {len(written)} outputs are not Apache Kafka's: {'; '.join(wrong)}")


if __name__ == "__main__":
    if RECORD:
        os.environ["BROKER"] = "kafka"
    for script in sorted(glob.glob(os.path.join(HERE, "*.txt"))):
        case(lambda script=script: compare(script), limit_s=240, name=os.path.basename(script)[:-4])
    run_cases("sidebyside", cleanup=lambda: shutil.rmtree(SCRATCH))
