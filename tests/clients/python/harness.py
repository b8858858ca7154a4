"""Cases with a time limit each, one line of PASS, FAIL or SKIP a case, and a closing count.

A case is a function marked with @case; it fails by raising and skips by raising Skip.
"""

import collections
import concurrent.futures
import os
import signal
import sys
import threading
import time
import traceback
import uuid

CASES = []


class Skip(Exception):
    pass


class TooLong(BaseException):
    pass


def case(function=None, limit_s=60, name=None):
    if function is None:
        return lambda f: case(f, limit_s, name)
    CASES.append((name or function.__name__, limit_s, function))
    return function


def topic_name(tag):
    return f"t-{tag}-{uuid.uuid4().hex[:8]}"


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def equal(got, want, what):
    if got != want:
        raise AssertionError(f"{what}: got {short(got)}, want {short(want)}")


def short(x, length=160):
    s = repr(x)
    return s if len(s) <= length else f"{s[:length]}... ({len(s)})"


def until(f, limit_s, what, every_s=0.1):
    end = time.monotonic() + limit_s
    while True:
        got = f()
        # A message without a value is false in some clients.
        if got is not None and got is not False:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"waited {limit_s} s in vain for {what} (last: {short(got)})")
        time.sleep(every_s)


def _alarm(_signal, _frame):
    raise TooLong()


def wanted(suite):
    """The cases whose names contain one of the words in ONLY; all without it."""
    words = [w for w in os.environ.get("ONLY", "").split(",") if w]
    return [c for c in CASES if not words or any(w in f"{suite}/{c[0]}" for w in words)]


class Tally:
    def __init__(self, suite):
        self.suite = suite
        self.counts = collections.Counter()
        self.lock = threading.Lock()

    def run(self, name, limit_s, function):
        """Runs a case and prints its line."""
        start = time.monotonic()
        try:
            function()
            how, why = "PASS", ""
        except Skip as e:
            how, why = "SKIP", f": {e}"
        except TooLong:
            how, why = "FAIL", f": took more than {limit_s} s"
        except Exception as e:
            at = traceback.extract_tb(e.__traceback__)[-1]
            how, why = "FAIL", f": {type(e).__name__}: {short(str(e), 400)} ({os.path.basename(at.filename)}:{at.lineno})"
            if os.environ.get("TRACE"):
                traceback.print_exc()
        with self.lock:
            self.counts[how] += 1
            print(f"{how} {self.suite}/{name}{why} [{time.monotonic() - start:.1f} s]", flush=True)

    @property
    def failed(self):
        return self.counts["FAIL"]

    def close(self):
        print(f"{self.counts['PASS']} passed, {self.failed} failed, {self.counts['SKIP']} skipped", flush=True)


def run_cases(suite, cleanup=None):
    """Runs the wanted cases, each with its limit of time; exits with 1 if one failed."""
    tally = Tally(suite)
    signal.signal(signal.SIGALRM, _alarm)
    for name, limit_s, function in wanted(suite):
        signal.alarm(limit_s)
        try:
            tally.run(name, limit_s, function)
        finally:
            signal.alarm(0)
    tally.close()
    if cleanup and not os.environ.get("KEEP"):
        cleanup()
    # Clients keep threads of their own; what they would do after the last case is not tested.
    os._exit(1 if tally.failed else 0)


def run_together(suite, at_once):
    """Runs the wanted cases, some of them at once: each has to bound its own waits. The number that failed."""
    tally = Tally(suite)
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda c: tally.run(*c), wanted(suite)))
    tally.close()
    return tally.failed
