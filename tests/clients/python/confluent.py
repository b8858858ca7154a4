"""confluent-kafka, that is a new librdkafka."""

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType,
)

from content import TIME_BASE_MS, record
from harness import case, equal, expect, topic_name, until
from suite import CODECS as ALL, KEEP, Read, main, same, valued


class Confluent:
    NAME = "confluent"
    CODECS = ALL
    NULL_HEADERS = True

    def __init__(self, bootstrap):
        self.base = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = AdminClient(self.base)

    def create(self, topic, partitions=1, configs=None):
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=KEEP | (configs or {}))])[topic].result(20)
        until(lambda: len(self.admin.list_topics(topic, timeout=5).topics[topic].partitions) == partitions, 10, "the topic to be seen")

    def produce(self, topic, records, codec="none", acks="all", idempotent=False, partition=0, **conf):
        offsets, errors = [None] * len(records), []

        def done(i):
            def delivered(error, message):
                if error:
                    errors.append(error)
                else:
                    offsets[i] = message.offset()
            return delivered

        p = Producer(self.base | {
            "compression.type": codec, "acks": str(acks), "enable.idempotence": idempotent, "linger.ms": 20,
            "message.max.bytes": 20_000_000, "message.timeout.ms": 25_000,
        } | conf)
        for i, r in enumerate(records):
            p.produce(topic, value=r.value, key=r.key, headers=list(r.headers) or None, partition=partition,
                      timestamp=r.timestamp_ms, on_delivery=done(i))
        left = p.flush(30)
        if errors:
            raise KafkaException(errors[0])
        equal(left, 0, "records not delivered")
        return offsets

    def consumer(self, **conf):
        return Consumer(self.base | {"group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
                                     "auto.offset.reset": "error"} | conf)

    def consume(self, topic, count, partition=0, start=OFFSET_BEGINNING, limit_s=30, **conf):
        c = self.consumer(**conf)
        c.assign([TopicPartition(topic, partition, start)])
        got, end = [], time.monotonic() + limit_s
        while len(got) < count and time.monotonic() < end:
            m = c.poll(0.5)
            if m is None:
                continue
            if m.error():
                raise KafkaException(m.error())
            got.append(Read(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())))
        c.close()
        return got

    def offset_for_time(self, topic, partition, time_ms):
        c = self.consumer()
        (found,) = c.offsets_for_times([TopicPartition(topic, partition, time_ms)], timeout=10)
        c.close()
        expect(found.error is None, f"{found.error}")
        return None if found.offset < 0 else found.offset

    def end_offset(self, topic, partition):
        c = self.consumer()
        _, end = c.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        c.close()
        return end

    def too_large(self, topic, value):
        try:
            self.produce(topic, valued([value]))
        except KafkaException as e:
            return e.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        return False


def extra(a):
    @case
    def metadata_names_the_broker():
        md = a.admin.list_topics(timeout=10)
        expect(len(md.brokers) >= 1, "no broker in the metadata")
        c = a.admin.describe_cluster(request_timeout=10).result(10)
        expect(c.cluster_id and c.controller is not None, f"cluster {c.cluster_id}, controller {c.controller}")

    @case
    def log_append_time():
        t = topic_name("append-time")
        a.create(t, configs={"message.timestamp.type": "LogAppendTime"})
        before = int(time.time() * 1000) - 5000
        a.produce(t, [record(i) for i in range(50)], codec="gzip")
        c = a.consumer()
        c.assign([TopicPartition(t, 0, 0)])
        for i in range(50):
            m = until(lambda: c.poll(1), 15, "a record")
            expect(m.error() is None, f"{m.error()}")
            kind, ms = m.timestamp()
            equal(kind, 2, "kind of timestamp (2: append time)")
            expect(ms >= before, f"append time {ms} is before the test began ({before})")
        c.close()

    @case
    def many_partitions_through_one_fetch_session():
        t = topic_name("session")
        a.create(t, partitions=20)
        for p in range(20):
            a.produce(t, [record(i) for i in range(p + 1)], partition=p)
        c = a.consumer()
        c.assign([TopicPartition(t, p, 0) for p in range(20)])
        seen = {p: [] for p in range(20)}

        def pull(count):
            end = time.monotonic() + 20
            while sum(map(len, seen.values())) < count and time.monotonic() < end:
                m = c.poll(0.5)
                if m is not None:
                    expect(m.error() is None, f"{m.error()}")
                    seen[m.partition()].append(m.offset())

        pull(210)
        # The session is incremental by now: only the partition that changes is answered.
        a.produce(t, [record(0)], partition=13)
        pull(211)
        c.close()
        for p, offsets in seen.items():
            equal(offsets, list(range(p + 1 + (p == 13))), f"offsets of partition {p}")

    @case
    def a_long_poll_wakes_when_a_record_arrives():
        t = topic_name("poll")
        a.create(t)
        c = a.consumer(**{"fetch.wait.max.ms": 5000, "fetch.min.bytes": 1})
        c.assign([TopicPartition(t, 0, 0)])
        c.poll(2)
        p = Producer(a.base | {"linger.ms": 0})
        took = []
        for i in range(9):
            start = time.monotonic()
            p.produce(t, str(i).encode())
            p.flush(5)
            until(lambda: c.poll(3), 6, "the record", 0)
            took.append(time.monotonic() - start)
            time.sleep(0.2)
        c.close()
        expect(sorted(took)[4] < 0.5, f"from produce to consume took {sorted(took)[4]:.3f} s at the median")

    @case
    def an_offset_out_of_range():
        t = topic_name("range")
        a.create(t)
        a.produce(t, [record(i) for i in range(30)])
        c = a.consumer(**{"auto.offset.reset": "earliest"})
        c.assign([TopicPartition(t, 0, 10_000)])
        m = until(lambda: c.poll(1), 15, "a record after the reset")
        expect(m.error() is None, f"{m.error()}")
        equal(m.offset(), 0, "offset after the reset")
        c.close()
        c = a.consumer()
        c.assign([TopicPartition(t, 0, 10_000)])
        m = until(lambda: c.poll(1), 15, "the error")
        expect(m.error() is not None, "no error without a reset policy")
        c.close()

    @case
    def both_isolation_levels():
        t = topic_name("isolation")
        a.create(t)
        want = [record(i) for i in range(20)]
        a.produce(t, want)
        for level in ("read_committed", "read_uncommitted"):
            same(a.consume(t, 20, **{"isolation.level": level}), want)

    @case
    def unknown_partition():
        t = topic_name("unknown")
        a.create(t)
        try:
            a.produce(t, [record(0)], partition=77, **{"message.timeout.ms": 6000})
        except KafkaException as e:
            expect(e.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MSG_TIMED_OUT), f"{e}")
        else:
            raise AssertionError("partition 77 of 1 was written")

    @case
    def topics_are_created_grown_and_deleted():
        t = topic_name("admin")
        a.create(t, partitions=2)
        try:
            a.create(t)
        except KafkaException as e:
            equal(e.args[0].code(), KafkaError.TOPIC_ALREADY_EXISTS, "code of creating it again")
        else:
            raise AssertionError("the topic was created twice")
        a.admin.create_partitions([NewPartitions(t, 5)])[t].result(15)
        until(lambda: len(a.admin.list_topics(t, timeout=5).topics[t].partitions) == 5, 10, "five partitions")
        a.produce(t, [record(i) for i in range(10)], partition=4)
        same(a.consume(t, 10, partition=4), [record(i) for i in range(10)])
        a.admin.delete_topics([t])[t].result(15)
        until(lambda: t not in a.admin.list_topics(timeout=5).topics, 10, "the topic to be gone")

    @case
    def configs_are_described_and_altered():
        t = topic_name("config")
        a.create(t, configs={"retention.ms": "123456"})

        def read():
            r = ConfigResource(ResourceType.TOPIC, t)
            return a.admin.describe_configs([r])[r].result(15)

        equal(read()["retention.ms"].value, "123456", "retention.ms as created")
        equal(read()["max.message.bytes"].value, "1048588", "max.message.bytes by default")
        r = ConfigResource(ResourceType.TOPIC, t, incremental_configs=[
            ConfigEntry("retention.ms", "7", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("segment.bytes", "2097152", incremental_operation=AlterConfigOpType.SET),
        ])
        a.admin.incremental_alter_configs([r])[r].result(15)
        until(lambda: read()["retention.ms"].value == "7" and read()["segment.bytes"].value == "2097152", 10, "the new values")
        r = ConfigResource(ResourceType.TOPIC, t, incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ])
        a.admin.incremental_alter_configs([r])[r].result(15)
        until(lambda: read()["retention.ms"].value == "604800000", 10, "the default again")

    @case
    def records_are_deleted():
        t = topic_name("trim")
        a.create(t)
        a.produce(t, [record(i) for i in range(40)])
        a.admin.delete_records([TopicPartition(t, 0, 25)])
        c = a.consumer()
        until(lambda: c.get_watermark_offsets(TopicPartition(t, 0), timeout=5) == (25, 40), 10, "offsets 25 to 40")
        c.close()
        same(a.consume(t, 15), [record(i) for i in range(25, 40)], 25)

    @case
    def offsets_are_listed_by_the_admin():
        t = topic_name("list")
        a.create(t)
        a.produce(t, [record(i) for i in range(33)])
        tp = TopicPartition(t, 0)

        def ask(spec):
            (f,) = a.admin.list_offsets({tp: spec}).values()
            return f.result(15).offset

        equal(ask(OffsetSpec.earliest()), 0, "earliest")
        equal(ask(OffsetSpec.latest()), 33, "latest")
        equal(ask(OffsetSpec.max_timestamp()), 32, "of the greatest timestamp")
        equal(ask(OffsetSpec.for_timestamp(TIME_BASE_MS + 15)), 2, "for a time")


if __name__ == "__main__":
    main(Confluent, extra)
