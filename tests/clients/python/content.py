"""What the test programs send, and how they say what they read.

Every runtime has its own copy of these two functions, so that any producer's records can be checked by any consumer.
Record i is a pure function of i. The *plain* form leaves out what some clients cannot express: header values that are
null and header names that repeat.
"""

import hashlib
import struct
from typing import NamedTuple, Optional

TIME_BASE_MS = 1_700_000_000_000
TIME_STEP_MS = 10
LENGTHS = (1, 7, 64, 500, 1500, 20, 9000, 3)
# A batch of one record without key and headers has 61 bytes of batch header, 3 of the record's length and 8 of its
# other fields: this value fills Kafka's default max.message.bytes (1048588) to the last byte.
LARGEST_VALUE = 1048588 - 61 - 3 - 8


class Record(NamedTuple):
    key: Optional[bytes]
    value: Optional[bytes]
    headers: tuple
    timestamp_ms: int


def filler(i, length):
    """Half noise, half one letter, so that every codec has something to do and cannot do it too well."""
    x = (i * 2654435761 + 1) & 0xFFFFFFFF
    letter = 97 + i % 26
    out = bytearray(length)
    for j in range(length):
        if j % 2:
            out[j] = letter
        else:
            x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
            out[j] = x >> 24
    return bytes(out)


def without_null_headers(r):
    return r._replace(headers=tuple(h for h in r.headers if h[1] is not None))


def record(i, plain=False):
    if i % 5 == 2:
        key = None
    elif i % 19 == 7:
        key = b""
    else:
        key = b"key-%d" % (i % 17)
    if i % 9 == 4 and key is not None:
        value = None  # some clients refuse a record that has neither
    elif i % 9 == 7:
        value = b""
    else:
        value = filler(i, 70_000 if i % 100 == 99 else LENGTHS[i % 8])
    headers = (
        (),
        (("empty", b""), ("trace", b"t-%d" % i)),
        (("bin", bytes(range(1, 256))), ("none", None)),
        (("a", b"1"), ("a", b"2"), ("naïve", "é".encode())),
    )[i % 4]
    if plain:
        first = {}
        for name, v in headers:
            if v is not None:
                first.setdefault(name, v)
        headers = tuple(first.items())
    return Record(key, value, headers, TIME_BASE_MS + i * TIME_STEP_MS)


def digest(key, value, headers):
    h = hashlib.sha256()

    def part(p):
        h.update(struct.pack(">i", -1) if p is None else struct.pack(">i", len(p)) + p)

    part(key)
    part(value)
    for name, v in headers or ():
        part(name.encode())
        part(v)
    return h.hexdigest()[:16]
