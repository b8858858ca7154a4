"""The cases that every Python client runs, written once over a small adapter.

An adapter has: NAME, CODECS, NULL_HEADERS; create(topic, partitions, configs); produce(topic, records, codec, acks,
idempotent, partition) -> offsets (None each for acks=0); consume(topic, count, partition, start) -> list of Read;
offset_for_time(topic, partition, time_ms) -> offset or None; too_large(topic, value) -> True when the broker or the
client refuses it with MESSAGE_TOO_LARGE.
"""

import sys
from typing import NamedTuple, Optional

from content import LARGEST_VALUE, TIME_BASE_MS, TIME_STEP_MS, Record, digest, filler, without_null_headers
from content import record as full_record
from harness import Skip, case, equal, expect, run_cases, topic_name

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


# The records carry times long past: without this, retention would take them away within minutes.
KEEP = {"retention.ms": "-1"}


class Read(NamedTuple):
    offset: int
    timestamp_ms: int
    key: Optional[bytes]
    value: Optional[bytes]
    headers: tuple


def same(got, want, first_offset=0):
    equal(len(got), len(want), "number of records")
    for i, (g, w) in enumerate(zip(got, want)):
        equal(g.offset, first_offset + i, f"offset of record {i}")
        equal((g.key, g.value, tuple(g.headers)), (w.key, w.value, tuple(w.headers)), f"record {i}")
        equal(g.timestamp_ms, w.timestamp_ms, f"timestamp of record {i}")


def valued(values):
    return [Record(None, v, (), TIME_BASE_MS + i) for i, v in enumerate(values)]


def define(a):
    def record(i):
        return full_record(i) if a.NULL_HEADERS else without_null_headers(full_record(i))

    def codec_case(codec):
        def run():
            if codec not in a.CODECS:
                raise Skip(f"this client has no {codec}")
            t = topic_name(f"codec-{codec}")
            a.create(t)
            want = [record(i) for i in range(300)]
            equal(a.produce(t, want, codec=codec), list(range(300)), "offsets acknowledged")
            same(a.consume(t, 300), want)

        case(run, name=f"codec_{codec}")

    for c in CODECS:
        codec_case(c)

    @case
    def acks_of_each_kind():
        for acks in (0, 1, "all"):
            t = topic_name(f"acks-{acks}")
            a.create(t)
            want = [record(i) for i in range(100)]
            a.produce(t, want, acks=acks)
            same(a.consume(t, 100), want)

    @case
    def idempotent():
        t = topic_name("idempotent")
        a.create(t)
        want = [record(i) for i in range(1500)]
        equal(a.produce(t, want, codec="gzip", idempotent=True), list(range(1500)), "offsets acknowledged")
        same(a.consume(t, 1500), want)

    @case
    def from_one_byte_to_max_message_bytes():
        t = topic_name("sizes")
        a.create(t)
        sizes = [1, 2, 127, 128, 4095, 16384, 65536, 300_001, 999_999, LARGEST_VALUE]
        want = valued([filler(n, n) for n in sizes])
        for n, r in enumerate(want):
            equal(a.produce(t, [r]), [n], f"offset of {sizes[n]} bytes")
        same(a.consume(t, len(want)), want)
        expect(a.too_large(t, filler(1, LARGEST_VALUE + 1)), "one byte more than max.message.bytes was accepted")
        # Asking for an end past what is there: the refused record must not have left a trace.
        equal(a.end_offset(t, 0), len(want), "end of the log after a refused record")

    @case
    def max_message_bytes_of_a_topic():
        t = topic_name("raised")
        a.create(t, configs={"max.message.bytes": "6000000"})
        want = valued([filler(3, 5_000_000)])
        a.produce(t, want)
        same(a.consume(t, 1), want)

    @case
    def compressed_beyond_max_message_bytes():
        t = topic_name("shrinks")
        a.create(t)
        want = valued([b"a" * 3_000_000])
        equal(a.produce(t, want, codec="gzip"), [0], "offset")
        same(a.consume(t, 1), want)

    @case
    def by_offset_in_the_middle_of_a_batch():
        t = topic_name("middle")
        a.create(t)
        want = [record(i) for i in range(400)]
        a.produce(t, want, codec="gzip")
        for start in (0, 1, 199, 398, 399):
            same(a.consume(t, 400 - start, start=start), want[start:], start)

    @case
    def by_time():
        t = topic_name("time")
        a.create(t)
        want = [record(i) for i in range(100)]
        for i in range(0, 100, 20):
            a.produce(t, want[i : i + 20])
        for ms, offset in ((-5, 0), (0, 0), (1, 1), (495, 50), (500, 50), (501, 51), (990, 99), (991, None)):
            equal(a.offset_for_time(t, 0, TIME_BASE_MS + ms), offset, f"offset for base{ms:+d} ms")
        start = a.offset_for_time(t, 0, TIME_BASE_MS + 70 * TIME_STEP_MS)
        same(a.consume(t, 30, start=start), want[70:], 70)

    @case
    def partitions_are_kept_apart():
        t = topic_name("parts")
        a.create(t, partitions=6)
        wants = {p: [record(i) for i in range(p, 120, 6)] for p in range(6)}
        for p, want in wants.items():
            equal(a.produce(t, want, partition=p, codec="gzip"), list(range(len(want))), f"offsets in partition {p}")
        for p, want in wants.items():
            same(a.consume(t, len(want), partition=p), want)


def main(adapter, extra=None):
    """`test BOOTSTRAP`, `produce BOOTSTRAP TOPIC CODEC COUNT` or `consume BOOTSTRAP TOPIC COUNT`; 3 says: has not this codec."""
    command, bootstrap = sys.argv[1:3]
    a = adapter(bootstrap)
    if command == "test":
        define(a)
        if extra:
            extra(a)
        run_cases(a.NAME)
    elif command == "produce":
        topic, codec, count = sys.argv[3], sys.argv[4], int(sys.argv[5])
        if codec not in a.CODECS:
            sys.exit(3)
        a.produce(topic, [full_record(i, plain=True) for i in range(count)], codec=codec, idempotent=True)
    elif command == "consume":
        for r in a.consume(sys.argv[3], int(sys.argv[4])):
            print(r.offset, r.timestamp_ms, digest(r.key, r.value, r.headers))
    else:
        sys.exit(f"unknown command {command}")
