"""A member of a consumer group for ../groups:   member.py confluent|kafka-python|aiokafka HOST:PORT key=value...

Keys: group, topics (with commas) or pattern (a regular expression), assignor, session, poll (the longest time between polls),
metadata (how old metadata may grow), all in milliseconds, and instance.

Prints `assigned TOPIC:PARTITION ...` with all that it has whenever that changes, `read TOPIC PARTITION OFFSET` for each record and commits
what it has read after each poll; `left` when it has left. Reads `hang MS` (it does not poll for so long) and `leave` from its input.
"""

import asyncio
import logging
import os
import queue
import sys
import threading
import time


def say(*words):
    print(*words, flush=True)


class Member:
    """What is the same for all: what it has, what it has read and not yet committed."""

    def __init__(self, options):
        self.options = options
        self.has = set()
        self.uncommitted = {}

    def number(self, key, default):
        return int(self.options.get(key, default))

    def topics(self):
        return self.options["topics"].split(",") if "topics" in self.options else None

    def assigned(self):
        say("assigned", *sorted(f"{t}:{p}" for t, p in self.has))

    def gained(self, partitions):
        """With the older assignors, an assignment is everything there is."""
        self.has = set(partitions) | (self.has if self.options["assignor"] == "cooperative-sticky" else set())
        self.assigned()

    def gave_up(self, partitions, lost):
        """Before they go, what was read of them is committed, unless they are another's by now."""
        if lost:
            for p in partitions:
                self.uncommitted.pop(p, None)
        elif any(p in self.uncommitted for p in partitions):
            self.commit()
        self.has -= set(partitions)
        for p in partitions:
            self.uncommitted.pop(p, None)

    def read(self, records):
        for topic, partition, offset in records:
            say("read", topic, partition, offset)
            self.uncommitted[topic, partition] = offset + 1

    def commit(self):
        if not self.uncommitted:
            return
        try:
            self.commit_now(dict(self.uncommitted))
        except Exception as e:
            # During a rebalance a commit may be refused; it is tried again after the next poll.
            say("note", "commit:", repr(e))
        else:
            self.uncommitted.clear()

    def run(self):
        self.start()
        inputs = queue.SimpleQueue()
        threading.Thread(target=lambda: [inputs.put(x.split()) for x in sys.stdin] + [inputs.put(["end"])], daemon=True).start()
        while True:
            self.read(self.poll())
            self.commit()
            try:
                word, *rest = inputs.get_nowait()
            except queue.Empty:
                continue
            if word == "hang":
                time.sleep(int(rest[0]) / 1000)
            elif word == "leave":
                self.stop()
                say("left")
                return
            else:
                os._exit(1)


class Confluent(Member):
    def start(self):
        from confluent_kafka import Consumer

        o = self.options
        conf = {
            "bootstrap.servers": o["bootstrap"], "group.id": o["group"], "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "partition.assignment.strategy": o["assignor"], "session.timeout.ms": self.number("session", 2000),
            "heartbeat.interval.ms": 300, "max.poll.interval.ms": self.number("poll", 60000),
            "topic.metadata.refresh.interval.ms": self.number("metadata", 300000), "fetch.wait.max.ms": 100, "log_level": 0,
        }
        if "instance" in o:
            conf["group.instance.id"] = o["instance"]
        self.incremental = o["assignor"] == "cooperative-sticky"
        self.consumer = Consumer(conf)
        pattern = o.get("pattern")
        self.consumer.subscribe([pattern] if pattern else self.topics(), on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost)

    def on_assign(self, consumer, partitions):
        (consumer.incremental_assign if self.incremental else consumer.assign)(partitions)
        self.gained((p.topic, p.partition) for p in partitions)

    def on_revoke(self, consumer, partitions, lost=False):
        self.gave_up([(p.topic, p.partition) for p in partitions], lost)
        if self.incremental:
            consumer.incremental_unassign(partitions)
            self.assigned()
        else:
            consumer.unassign()

    def on_lost(self, consumer, partitions):
        self.on_revoke(consumer, partitions, lost=True)

    def poll(self):
        out = []
        for m in self.consumer.consume(100, 0.1):
            if m.error():
                say("note", m.error().str())
            else:
                out.append((m.topic(), m.partition(), m.offset()))
        return out

    def commit_now(self, offsets):
        from confluent_kafka import TopicPartition

        self.consumer.commit(offsets=[TopicPartition(t, p, o) for (t, p), o in offsets.items()], asynchronous=False)

    def stop(self):
        self.consumer.close()


class KafkaPython(Member):
    def start(self):
        from kafka import KafkaConsumer
        from kafka.consumer.subscription_state import ConsumerRebalanceListener
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        o, member = self.options, self
        assignors = {x.name: x for x in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor)}
        self.consumer = KafkaConsumer(
            bootstrap_servers=o["bootstrap"], group_id=o["group"], group_instance_id=o.get("instance"), enable_auto_commit=False,
            auto_offset_reset="earliest", partition_assignment_strategy=[assignors[o["assignor"]]], session_timeout_ms=self.number("session", 2000),
            heartbeat_interval_ms=300, max_poll_interval_ms=self.number("poll", 60000), metadata_max_age_ms=self.number("metadata", 300000),
            fetch_max_wait_ms=100)

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned):
                member.gained((p.topic, p.partition) for p in assigned)

            def on_partitions_revoked(self, revoked):
                member.gave_up([(p.topic, p.partition) for p in revoked], lost=False)
                if o["assignor"] == "cooperative-sticky":
                    member.assigned()

            def on_partitions_lost(self, lost):
                member.gave_up([(p.topic, p.partition) for p in lost], lost=True)

        self.consumer.subscribe(topics=self.topics() or (), pattern=o.get("pattern"), listener=Listener())

    def poll(self):
        return [(m.topic, m.partition, m.offset) for batch in self.consumer.poll(timeout_ms=100, max_records=100).values() for m in batch]

    def commit_now(self, offsets):
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        self.consumer.commit({TopicPartition(t, p): OffsetAndMetadata(o, "", -1) for (t, p), o in offsets.items()})

    def stop(self):
        self.consumer.close(autocommit=False)


class Aiokafka(Member):
    """Its rebalances run beside the program, so reading and committing is one step under a lock that giving up takes too."""

    def start(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.do(self.begin())

    def do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def begin(self):
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        o, member = self.options, self
        assignors = {x.name: x for x in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)}
        self.lock = asyncio.Lock()
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=o["bootstrap"], group_id=o["group"], group_instance_id=o.get("instance"), enable_auto_commit=False,
            auto_offset_reset="earliest", partition_assignment_strategy=[assignors[o["assignor"]]], session_timeout_ms=self.number("session", 2000),
            heartbeat_interval_ms=300, max_poll_interval_ms=self.number("poll", 60000), metadata_max_age_ms=self.number("metadata", 300000),
            fetch_max_wait_ms=100)

        class Listener(ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked):
                async with member.lock:
                    member.has.clear()
                    member.uncommitted.clear()

            async def on_partitions_assigned(self, assigned):
                member.gained((p.topic, p.partition) for p in assigned)

        self.consumer.subscribe(topics=self.topics() or (), pattern=o.get("pattern"), listener=Listener())
        await self.consumer.start()

    def poll(self):
        self.do(self.step())
        return []

    async def step(self):
        from aiokafka import TopicPartition
        from aiokafka.errors import KafkaError

        async with self.lock:
            batches = await self.consumer.getmany(timeout_ms=100, max_records=100)
            self.read((m.topic, m.partition, m.offset) for batch in batches.values() for m in batch)
            if self.uncommitted:
                try:
                    await self.consumer.commit({TopicPartition(t, p): o for (t, p), o in self.uncommitted.items()})
                except KafkaError as e:
                    say("note", "commit:", repr(e))
                else:
                    self.uncommitted.clear()

    def commit(self):
        pass

    def stop(self):
        self.do(self.consumer.stop())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    kinds = {"confluent": Confluent, "kafka-python": KafkaPython, "aiokafka": Aiokafka}
    given = dict(x.split("=", 1) for x in sys.argv[3:])
    kinds[sys.argv[1]](given | {"bootstrap": sys.argv[2]}).run()
