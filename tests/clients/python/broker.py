"""A broker of the test's own on a data directory of the test's own: started, waited for, stopped cleanly.

BROKER=kafka takes Apache Kafka instead of corelog, which says whether the test itself is right; a test that needs one or the other says its
`kind`. CORELOG_BIN names the binary.
"""

import os
import random
import signal
import socket
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CORELOG = os.environ.get("CORELOG_BIN") or os.path.join(HERE, "..", "..", "..", "target", "release", "corelog")


def free_port():
    """Below the ephemeral range, so that no client's socket takes it in between."""
    for _ in range(100):
        port = random.randrange(20000, 32000, 2)
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)):
                return port
    raise RuntimeError("no free port found")


class Broker:
    """`home`/data is the log directory. As a context manager it runs inside the block; leaving it is a clean stop."""

    def __init__(self, home, overrides=(), kind=None):
        self.home = home
        self.kind = kind or os.environ.get("BROKER", "corelog")
        self.port = free_port()
        self.overrides = list(overrides)
        self.process = None

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    def __enter__(self):
        log = open(os.path.join(self.home, "broker.log"), "ab")
        if self.kind == "kafka":
            command = [os.path.join(HERE, "..", "kafka", "kafka.sh"), "run", str(self.port), self.home, *self.overrides]
        else:
            given = [f"listeners=PLAINTEXT://127.0.0.1:{self.port}", f"log.dirs={self.home}/data", "admin.listener=", *self.overrides]
            command = [CORELOG, "serve", *(x for o in given for x in ("--override", o))]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.process.kill()
        raise AssertionError(f"the broker did not start: {self.last_words()}")

    def __exit__(self, kind, _value, _traceback):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "none within 30 s"
        # The JVM's status for SIGTERM is 143.
        if kind is None and status not in (0, 143):
            raise AssertionError(f"exit status of a clean stop: {status}: {self.last_words()}")

    def last_words(self):
        with open(os.path.join(self.home, "broker.log"), errors="replace") as f:
            return " | ".join(f.read().splitlines()[-4:])
