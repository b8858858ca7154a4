"""Members of consumer groups, each a process of a real client, and what they say."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
ENV = os.path.join(ROOT, ".env")
LIBS = os.environ.get("KAFKA_LIBS") or os.path.join(ENV, "kafka")
PYTHON = os.path.join(ENV, "python", "bin", "python")
CLASSES = tempfile.mkdtemp()

ASSIGNORS = {
    "confluent": ("range", "roundrobin", "cooperative-sticky"),
    "java": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "franz-go": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "kafka-python": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "aiokafka": ("range", "roundrobin", "sticky"),
    # A protocol of its own, of which nobody else knows.
    "kafkajs": ("RoundRobinAssigner",),
    # Its rebalance callback knows only whole assignments.
    "kcat": ("range", "roundrobin"),
    "verifiable": ("range", "roundrobin", "sticky"),
}


def missing(client):
    """Why a client can't be run, or None."""
    if client in ("confluent", "kafka-python", "aiokafka"):
        return None if os.path.exists(PYTHON) else "install.sh python"
    if client in ("java", "verifiable"):
        return None if os.path.isdir(LIBS) and shutil.which("javac") else "install.sh java"
    if client == "franz-go":
        return None if os.path.exists(f"{ENV}/franz") else "install.sh go"
    if client == "kafkajs":
        return None if shutil.which("node") and os.path.isdir(f"{ROOT}/node/node_modules/kafkajs") else "install.sh node"
    return None if shutil.which("kcat") else "install.sh shell"


def compile_java():
    """Once, for a member is a process and compiles itself otherwise."""
    with open(f"{CLASSES}/verifiable.properties", "w") as f:
        f.write("heartbeat.interval.ms=300\nfetch.max.wait.ms=100\n")
    subprocess.run(["javac", "-cp", f"{LIBS}/*", "-d", CLASSES, f"{ROOT}/java/Member.java"], check=True)


def java(*args):
    return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={ROOT}/kafka/log4j2.properties",
            "-cp", f"{CLASSES}:{LIBS}/*", *args]


def command(client, bootstrap, options):
    given = [f"{k}={v}" for k, v in options.items()]
    if client in ("confluent", "kafka-python", "aiokafka"):
        return [PYTHON, f"{ROOT}/python/member.py", client, bootstrap, *given]
    if client == "java":
        return java("Member", bootstrap, *given)
    if client == "franz-go":
        return [f"{ENV}/franz", "member", bootstrap, *given]
    if client == "kafkajs":
        return ["node", f"{ROOT}/node/member.js", bootstrap, *given]
    session = options.get("session", 2000)
    if client == "kcat":
        settings = {"partition.assignment.strategy": options["assignor"], "session.timeout.ms": session, "heartbeat.interval.ms": 300,
                    "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100}
        return ["kcat", "-b", bootstrap, "-u", "-G", options["group"], "-f", "read %t %p %o\n",
                *(x for k, v in settings.items() for x in ("-X", f"{k}={v}")), *options["topics"].split(",")]
    simple = {"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor", "sticky": "StickyAssignor"}[options["assignor"]]
    return java("org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", bootstrap, "--topic", options["topics"], "--group-id", options["group"],
                "--command-config", f"{CLASSES}/verifiable.properties", "--session-timeout", str(session), "--reset-policy", "earliest", "--verbose", "--assignment-strategy", f"org.apache.kafka.clients.consumer.{simple}")


class Member:
    """`assigned` and `reads` are what the process has said so far."""

    def __init__(self, client, bootstrap, **options):
        self.client = client
        self.assigned = frozenset()
        self.assignments = 0
        self.reads = []
        self.notes = []
        self.process = subprocess.Popen(command(client, bootstrap, options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, errors="replace")
        said = self.verifiable_said if client == "verifiable" else self.said
        heard = self.kcat_warned if client == "kcat" else self.notes.append
        self.threads = [threading.Thread(target=self.listen, args=x, daemon=True) for x in ((self.process.stdout, said), (self.process.stderr, heard))]
        for t in self.threads:
            t.start()

    def listen(self, stream, hear):
        for line in stream:
            hear(line.rstrip("\n"))

    def said(self, line):
        word, *rest = line.split()
        if word == "read":
            self.reads.append((rest[0], int(rest[1]), int(rest[2])))
        elif word == "assigned":
            self.set_assigned(rest)
        elif word != "left":
            self.notes.append(line)

    def set_assigned(self, names):
        self.assigned = frozenset((t, int(p)) for t, p in (x.rsplit(":", 1) for x in names))
        self.assignments += 1

    def verifiable_said(self, line):
        event = json.loads(line)
        partitions = {f"{p['topic']}:{p['partition']}" for p in event.get("partitions", ())}
        if event["name"] == "partitions_assigned":
            self.set_assigned(partitions)
        elif event["name"] == "partitions_revoked":
            self.set_assigned(())
        elif event["name"] == "record_data":
            self.reads.append((event["topic"], event["partition"], event["offset"]))

    def kcat_warned(self, line):
        m = re.match(r"% Group \S+ rebalanced \(memberid \S+\): (assigned|revoked): (.*)", line)
        if not m:
            self.notes.append(line)
            return
        named = {f"{t}:{p}" for t, p in re.findall(r"(\S+) \[(\d+)\]", m[2])}
        had = {f"{t}:{p}" for t, p in self.assigned}
        self.set_assigned(had | named if m[1] == "assigned" else had - named)

    @property
    def is_alive(self):
        return self.process.poll() is None

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def leave(self):
        """Leaves the group as a well-behaved application does."""
        if self.client in ("kcat", "verifiable"):
            self.process.send_signal(signal.SIGTERM)
        else:
            self.tell("leave")
        self.process.wait(20)
        self.ended()

    def kill(self):
        self.process.kill()
        self.process.wait(20)
        self.ended()

    def ended(self):
        for t in self.threads:
            t.join(20)
        self.assigned = frozenset()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def last_words(self):
        return f"{self.client}: has {sorted(self.assigned)}, read {len(self.reads)}{'' if self.is_alive else ', ended'}; {' | '.join(self.notes[-3:])}"
