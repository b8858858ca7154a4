"""kafka-python."""

import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import MessageSizeTooLargeError

from suite import CODECS as ALL, KEEP, Read, main, valued


class KafkaPython:
    NAME = "kafka-python"
    CODECS = ALL
    NULL_HEADERS = False

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def create(self, topic, partitions=1, configs=None):
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=KEEP | (configs or {}))])
        admin.close()

    def produce(self, topic, records, codec="none", acks="all", idempotent=False, partition=0):
        p = KafkaProducer(
            bootstrap_servers=self.bootstrap, compression_type=None if codec == "none" else codec, acks=acks, linger_ms=20,
            enable_idempotence=idempotent, max_request_size=20_000_000, request_timeout_ms=20_000,
            delivery_timeout_ms=25_000,
        )
        try:
            sent = [
                p.send(topic, value=r.value, key=r.key, headers=list(r.headers), partition=partition, timestamp_ms=r.timestamp_ms)
                for r in records
            ]
            p.flush(30)
            return [f.get(10).offset for f in sent]
        finally:
            p.close(timeout=5)

    def consumer(self):
        return KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None, enable_auto_commit=False, check_crcs=True,
                             auto_offset_reset="none")

    def consume(self, topic, count, partition=0, start=None, limit_s=30):
        c = self.consumer()
        tp = TopicPartition(topic, partition)
        c.assign([tp])
        if start is None:
            c.seek_to_beginning(tp)
        else:
            c.seek(tp, start)
        got, end = [], time.monotonic() + limit_s
        while len(got) < count and time.monotonic() < end:
            for batch in c.poll(timeout_ms=500).values():
                got += [Read(m.offset, m.timestamp, m.key, m.value, tuple(m.headers)) for m in batch]
        c.close()
        return got

    def offset_for_time(self, topic, partition, time_ms):
        c = self.consumer()
        tp = TopicPartition(topic, partition)
        found = c.offsets_for_times({tp: time_ms})[tp]
        c.close()
        return None if found is None or found.offset < 0 else found.offset

    def end_offset(self, topic, partition):
        c = self.consumer()
        tp = TopicPartition(topic, partition)
        end = c.end_offsets([tp])[tp]
        c.close()
        return end

    def too_large(self, topic, value):
        try:
            self.produce(topic, valued([value]))
        except MessageSizeTooLargeError:
            return True
        return False


if __name__ == "__main__":
    main(KafkaPython)
