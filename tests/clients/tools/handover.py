#!/usr/bin/env python3
"""Groups go from broker to broker with the data directory: what corelog wrote, Apache Kafka serves and its tool prints, and the other way
round."""

import glob
import json
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
from harness import Skip, case, equal, expect, run_cases
from sidebyside import LIBS, SETTINGS, Driver

SCRATCH = tempfile.mkdtemp()

# Two topics, a group that only commits, one whose members left, one with members that are still there when the broker stops.
WRITE = """
kafka-topics --create --topic orders --partitions 3 --replication-factor 1 --config retention.ms=-1
produce orders:0 10 1700000000000
produce orders:1 20 1700000000000
produce orders:2 5 1700000000000
commit simple orders:0=4 orders:1=20
commit simple orders:1=11
commit deleted orders:0=4
kafka-consumer-groups --delete --group deleted
member gone group.id=left topics=orders client.id=gone
await-lag left 0
leave gone
await-group left Empty 0
member one group.id=alive topics=orders client.id=one group.instance.id=box-1 session.timeout.ms=60000
member two group.id=alive topics=orders client.id=two group.instance.id=box-2 session.timeout.ms=60000
await-group alive Stable 2
await-lag alive 0
"""
LOOK = """
kafka-consumer-groups --list --state | sort
kafka-consumer-groups --describe --all-groups --offsets | sort
kafka-consumer-groups --describe --all-groups --members --verbose | sort
kafka-consumer-groups --describe --all-groups --state --verbose | sort
"""
# A group reads on where it stood, and commits; a static member that comes back has its partitions without a new generation.
GO_ON = """
produce orders:1 3 1700000100000
kafka-console-consumer --topic orders --group left --max-messages 3 --timeout-ms 20000 --formatter-property print.offset=true
kafka-consumer-groups --describe --group left | sort
kafka-consumer-groups --reset-offsets --group simple --topic orders --to-earliest --execute | sort
"""


def run(broker, commands):
    driver = Driver(broker.bootstrap, broker.home)
    out = []
    for command in commands.strip().split("\n"):
        got = driver.run(command)
        expect(not any("exit status" in x for x in got), f"{command}: {got}")
        out.append(got)
    # Ends without a word, as a process that is killed: its members are still in their groups.
    driver.close()
    return out


def hand_over(name, first, second):
    """Groups are written to `first`, which stops; `second` is started on a copy of its directory."""
    if not glob.glob(f"{LIBS}/kafka-tools-*.jar") or not shutil.which("java"):
        raise Skip("needs Kafka's jars (install.sh java)")
    homes = [os.path.join(SCRATCH, name, kind) for kind in (first, second)]
    for home in homes:
        os.makedirs(home)
    with Broker(homes[0], SETTINGS, kind=first) as b:
        run(b, WRITE)
        want = run(b, LOOK)
    shutil.copytree(f"{homes[0]}/data", f"{homes[1]}/data", ignore=shutil.ignore_patterns(".lock"))
    with Broker(homes[1], SETTINGS, kind=second) as b:
        got = run(b, f"await-group alive Stable 2\n{LOOK.strip()}")[1:]
        for asked, g, w in zip(LOOK.strip().split("\n"), got, want):
            equal(without_host(g), without_host(w), f"{second} on the directory of {first}: {asked}")
        on = run(b, GO_ON)
    equal(on[1], ["Offset:20\trecord0000", "Offset:21\trecord0001", "Offset:22\trecord0002", "Processed a total of 3 messages"], "records after the hand-over")
    equal([x.split()[3:6] for x in on[2] if x.startswith("left")], [["10", "10", "0"], ["23", "23", "0"], ["5", "5", "0"]], "offsets after reading on")
    equal([x.split()[3] for x in on[3] if x.startswith("simple")], ["0", "0", "0"], "offsets after the reset")


def without_host(lines):
    """The coordinator's port has another width."""
    return [re.sub(r" +", " ", x) for x in lines]


@case(limit_s=120)
def kafka_serves_the_groups_that_corelog_wrote():
    hand_over("there", "corelog", "kafka")


@case(limit_s=120)
def corelog_serves_the_groups_that_kafka_wrote():
    hand_over("back", "kafka", "corelog")


@case(limit_s=120)
def kafka_dump_log_decodes_the_offsets_topic():
    home = os.path.join(SCRATCH, "there", "corelog")
    files = sorted(glob.glob(f"{home}/data/__consumer_offsets-*/*.log"))
    if not files:
        raise Skip("the first case left no directory")
    done = subprocess.run([f"{ROOT}/kafka/kafka.sh", "tool", "DumpLogSegments", "--offsets-decoder", "--files", ",".join(files)], capture_output=True, text=True)
    equal(done.returncode, 0, f"exit status ({done.stderr[-200:]})")
    offsets, groups = {}, {}
    for line in done.stdout.splitlines():
        m = re.search(r" key: (\{.*?\}\}?) payload: (.*)$", line)
        if not m:
            continue
        key, value = json.loads(m[1]), None if m[2] == "<DELETE>" else json.loads(m[2])
        data = key["data"]
        if int(key["type"]) == 2:
            groups[data["group"]] = value and value["data"]
        else:
            at = (data["group"], data["topic"], data["partition"])
            offsets[at] = value and (value["data"]["offset"], value["data"]["leaderEpoch"])
    want = {("simple", "orders", 0): (4, -1), ("simple", "orders", 1): (11, -1), ("deleted", "orders", 0): None}
    for p, offset in enumerate((10, 20, 5)):
        want |= {("left", "orders", p): (offset, 0), ("alive", "orders", p): (offset, 0)}
    equal(offsets, want, "last offset for each key")
    equal([m["groupInstanceId"] for m in groups["alive"]["members"]], ["box-1", "box-2"], "members of a group")
    equal((groups["alive"]["protocol"], groups["left"]["members"]), ("range", []), "protocol, members")


if __name__ == "__main__":
    run_cases("handover", cleanup=lambda: shutil.rmtree(SCRATCH))
