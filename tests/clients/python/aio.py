"""aiokafka."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError

from suite import CODECS as ALL, KEEP, Read, main, valued


class Aiokafka:
    NAME = "aiokafka"
    CODECS = ALL
    NULL_HEADERS = True

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def create(self, topic, partitions=1, configs=None):
        async def go():
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                answer = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=KEEP | (configs or {}))])
                for name, code, *_ in answer.topic_errors:
                    assert code == 0, f"creating {name} gave error {code}"
            finally:
                await admin.close()

        asyncio.run(go())

    def produce(self, topic, records, codec="none", acks="all", idempotent=False, partition=0):
        async def go():
            p = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap, compression_type=None if codec == "none" else codec, acks=acks, linger_ms=20,
                enable_idempotence=idempotent, max_request_size=20_000_000,
            )
            await p.start()
            try:
                sent = [
                    await p.send(topic, value=r.value, key=r.key, headers=list(r.headers), partition=partition,
                                 timestamp_ms=r.timestamp_ms)
                    for r in records
                ]
                done = await asyncio.wait_for(asyncio.gather(*sent), 30)
                return [d.offset if d else None for d in done]
            finally:
                await p.stop()

        return asyncio.run(go())

    def _with_consumer(self, topic, partition, body):
        async def go():
            c = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False, check_crcs=True, auto_offset_reset="none")
            tp = TopicPartition(topic, partition)
            await c.start()
            try:
                c.assign([tp])
                return await body(c, tp)
            finally:
                await c.stop()

        return asyncio.run(go())

    def consume(self, topic, count, partition=0, start=None, limit_s=30):
        async def body(c, tp):
            if start is None:
                await c.seek_to_beginning(tp)
            else:
                c.seek(tp, start)
            got = []
            async with asyncio.timeout(limit_s):
                while len(got) < count:
                    for batch in (await c.getmany(timeout_ms=500)).values():
                        got += [Read(m.offset, m.timestamp, m.key, m.value, tuple(m.headers)) for m in batch]
            return got

        return self._with_consumer(topic, partition, body)

    def offset_for_time(self, topic, partition, time_ms):
        async def body(c, tp):
            found = (await c.offsets_for_times({tp: time_ms}))[tp]
            return None if found is None or found.offset < 0 else found.offset

        return self._with_consumer(topic, partition, body)

    def end_offset(self, topic, partition):
        async def body(c, tp):
            return (await c.end_offsets([tp]))[tp]

        return self._with_consumer(topic, partition, body)

    def too_large(self, topic, value):
        try:
            self.produce(topic, valued([value]))
        except MessageSizeTooLargeError:
            return True
        return False


if __name__ == "__main__":
    main(Aiokafka)
