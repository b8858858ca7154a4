"""Cases with a time limit each, one line of PASS, FAIL or SKIP a case, and a closing count.

A case is a function marked with @case; it fails by raising and skips by raising Skip.
"""

import os
import signal
import sys
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


def run_cases(suite, cleanup=None):
    """Runs the cases whose names contain one of the words in ONLY (all without it); exits with 1 if one failed."""
    words = [w for w in os.environ.get("ONLY", "").split(",") if w]
    passed = failed = skipped = 0
    signal.signal(signal.SIGALRM, _alarm)
    for name, limit_s, function in CASES:
        if words and not any(w in f"{suite}/{name}" for w in words):
            continue
        start = time.monotonic()
        signal.alarm(limit_s)
        try:
            function()
            passed += 1
            line = f"PASS {suite}/{name}"
        except Skip as e:
            skipped += 1
            line = f"SKIP {suite}/{name}: {e}"
        except TooLong:
            failed += 1
            line = f"FAIL {suite}/{name}: took more than {limit_s} s"
        except Exception as e:
            failed += 1
            at = traceback.extract_tb(e.__traceback__)[-1]
            line = f"FAIL {suite}/{name}: {type(e).__name__}: {short(str(e), 400)} ({os.path.basename(at.filename)}:{at.lineno})"
            if os.environ.get("TRACE"):
                traceback.print_exc()
        finally:
            signal.alarm(0)
        print(f"{line} [{time.monotonic() - start:.1f} s]", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.stdout.flush()
    if cleanup and not os.environ.get("KEEP"):
        cleanup()
    # Clients keep threads of their own; what they would do after the last case is not tested.
    os._exit(1 if failed else 0)
