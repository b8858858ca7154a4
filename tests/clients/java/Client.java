// The Java client: java -cp JARS Client.java test|produce|consume BOOTSTRAP ...   (see ../README.md)

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

public class Client {
    static final long TIME_BASE = 1_700_000_000_000L;
    static final int[] LENGTHS = {1, 7, 64, 500, 1500, 20, 9000, 3};
    static final int LARGEST_VALUE = 1048588 - 61 - 3 - 8;
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    record Rec(byte[] key, byte[] value, List<Header> headers, long timestamp) {}

    static String bootstrap;

    // ---- content: as in ../python/content.py

    static byte[] bytes(String s) { return s.getBytes(StandardCharsets.UTF_8); }

    static byte[] filler(int i, int length) {
        int x = i * (int) 2654435761L + 1;
        byte[] out = new byte[length];
        for (int j = 0; j < length; j++) {
            if (j % 2 == 1) out[j] = (byte) (97 + i % 26);
            else {
                x = x * 1664525 + 1013904223;
                out[j] = (byte) (x >>> 24);
            }
        }
        return out;
    }

    static Rec rec(int i, boolean plain) {
        byte[] key = i % 5 == 2 ? null : i % 19 == 7 ? new byte[0] : bytes("key-" + i % 17);
        byte[] value;
        if (i % 9 == 4 && key != null) value = null;
        else if (i % 9 == 7) value = new byte[0];
        else value = filler(i, i % 100 == 99 ? 70_000 : LENGTHS[i % 8]);
        byte[] bin = new byte[255];
        for (int j = 0; j < 255; j++) bin[j] = (byte) (j + 1);
        List<Header> headers = switch (i % 4) {
            case 0 -> List.of();
            case 1 -> List.of(new RecordHeader("empty", new byte[0]), new RecordHeader("trace", bytes("t-" + i)));
            case 2 -> List.of(new RecordHeader("bin", bin), new RecordHeader("none", (byte[]) null));
            default -> List.of(new RecordHeader("a", bytes("1")), new RecordHeader("a", bytes("2")), new RecordHeader("naïve", bytes("é")));
        };
        if (plain) {
            Map<String, Header> first = new LinkedHashMap<>();
            for (Header h : headers) if (h.value() != null) first.putIfAbsent(h.key(), h);
            headers = List.copyOf(first.values());
        }
        return new Rec(key, value, headers, TIME_BASE + i * 10L);
    }

    static List<Rec> recs(int from, int to) {
        List<Rec> out = new ArrayList<>();
        for (int i = from; i < to; i++) out.add(rec(i, false));
        return out;
    }

    static String digest(byte[] key, byte[] value, Iterable<Header> headers) throws Exception {
        MessageDigest h = MessageDigest.getInstance("SHA-256");
        part(h, key);
        part(h, value);
        for (Header x : headers) {
            part(h, bytes(x.key()));
            part(h, x.value());
        }
        StringBuilder s = new StringBuilder();
        byte[] d = h.digest();
        for (int i = 0; i < 8; i++) s.append(String.format("%02x", d[i]));
        return s.toString();
    }

    static void part(MessageDigest h, byte[] p) {
        h.update(ByteBuffer.allocate(4).putInt(p == null ? -1 : p.length).array());
        if (p != null) h.update(p);
    }

    // ---- the client

    static String topic(String tag) { return "t-" + tag + "-" + UUID.randomUUID().toString().substring(0, 8); }

    static Admin admin() { return Admin.create(Map.of("bootstrap.servers", bootstrap)); }

    static String create(String tag, int partitions, Map<String, String> configs) throws Exception {
        String t = topic(tag);
        Map<String, String> all = new HashMap<>(Map.of("retention.ms", "-1"));
        all.putAll(configs);
        try (Admin a = admin()) {
            a.createTopics(List.of(new NewTopic(t, partitions, (short) 1).configs(all))).all().get(20, TimeUnit.SECONDS);
        }
        return t;
    }

    static List<Long> produce(String topic, int partition, List<Rec> recs, Map<String, Object> more) throws Exception {
        Map<String, Object> conf = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 20, "max.request.size", 20_000_000,
            "buffer.memory", 64_000_000L, "acks", "all", "enable.idempotence", false, "delivery.timeout.ms", 25_000, "request.timeout.ms", 20_000));
        conf.putAll(more);
        try (var p = new KafkaProducer<>(conf, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (Rec r : recs) sent.add(p.send(new ProducerRecord<>(topic, partition, r.timestamp, r.key, r.value, r.headers)));
            p.flush();
            List<Long> offsets = new ArrayList<>();
            for (var f : sent) offsets.add(f.get(30, TimeUnit.SECONDS).offset());
            return offsets;
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> conf = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false, "auto.offset.reset", "none"));
        conf.putAll(more);
        return new KafkaConsumer<>(conf, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<ConsumerRecord<byte[], byte[]>> consume(String topic, int partition, long start, int count, Map<String, Object> more) {
        TopicPartition tp = new TopicPartition(topic, partition);
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        try (var c = consumer(more)) {
            c.assign(List.of(tp));
            if (start < 0) c.seekToBeginning(List.of(tp)); else c.seek(tp, start);
            long end = System.nanoTime() + 30_000_000_000L;
            while (got.size() < count && System.nanoTime() < end) c.poll(Duration.ofMillis(500)).forEach(got::add);
        }
        return got;
    }

    static void same(List<ConsumerRecord<byte[], byte[]>> got, List<Rec> want, long first) {
        equal(got.size(), want.size(), "number of records");
        for (int i = 0; i < got.size(); i++) {
            var g = got.get(i);
            Rec w = want.get(i);
            equal(g.offset(), first + i, "offset of record " + i);
            equal(g.timestamp(), w.timestamp, "timestamp of record " + i);
            check(Arrays.equals(g.key(), w.key), "key of record " + i);
            check(Arrays.equals(g.value(), w.value), "value of record " + i);
            equal(List.of(g.headers().toArray()), w.headers, "headers of record " + i);
        }
    }

    // ---- cases

    interface Case { void run() throws Exception; }

    static final Map<String, Case> CASES = new LinkedHashMap<>();

    static void check(boolean ok, String what) { if (!ok) throw new AssertionError(what); }

    static void equal(Object got, Object want, String what) {
        if (!Objects.equals(got, want)) throw new AssertionError(what + ": got " + got + ", want " + want);
    }

    static List<Long> upTo(int n) {
        List<Long> l = new ArrayList<>();
        for (long i = 0; i < n; i++) l.add(i);
        return l;
    }

    static void until(String what, Callable<Boolean> f) throws Exception {
        long end = System.nanoTime() + 15_000_000_000L;
        while (!f.call()) {
            check(System.nanoTime() < end, "waited in vain for " + what);
            Thread.sleep(100);
        }
    }

    static void define() {
        for (String codec : CODECS)
            CASES.put("codec_" + codec, () -> {
                String t = create("codec-" + codec, 1, Map.of());
                equal(produce(t, 0, recs(0, 300), Map.of("compression.type", codec)), upTo(300), "offsets acknowledged");
                same(consume(t, 0, -1, 300, Map.of()), recs(0, 300), 0);
            });
        for (String codec : CODECS.subList(1, 5))
            CASES.put("topic_recompresses_to_" + codec, () -> {
                String t = create("to-" + codec, 1, Map.of("compression.type", codec));
                equal(produce(t, 0, recs(0, 120), Map.of()), upTo(120), "offsets acknowledged");
                equal(produce(t, 0, recs(0, 1), Map.of("compression.type", codec.equals("gzip") ? "lz4" : "gzip")), List.of(120L), "offset");
                List<Rec> want = recs(0, 120);
                want.add(rec(0, false));
                same(consume(t, 0, -1, 121, Map.of()), want, 0);
            });
        for (String acks : List.of("0", "1", "all"))
            CASES.put("acks_" + acks, () -> {
                String t = create("acks-" + acks, 1, Map.of());
                produce(t, 0, recs(0, 100), Map.of("acks", acks));
                same(consume(t, 0, -1, 100, Map.of()), recs(0, 100), 0);
            });
        CASES.put("idempotent", () -> {
            String t = create("idempotent", 1, Map.of());
            equal(produce(t, 0, recs(0, 1500), Map.of("enable.idempotence", true, "compression.type", "zstd")), upTo(1500), "offsets");
            same(consume(t, 0, -1, 1500, Map.of()), recs(0, 1500), 0);
        });
        CASES.put("from_one_byte_to_max_message_bytes", () -> {
            String t = create("sizes", 1, Map.of());
            List<Rec> want = new ArrayList<>();
            for (int n : new int[] {1, 2, 127, 128, 16384, 65536, 999_999, LARGEST_VALUE}) want.add(new Rec(null, filler(n, n), List.of(), TIME_BASE + n));
            for (int i = 0; i < want.size(); i++) equal(produce(t, 0, List.of(want.get(i)), Map.of()), List.of((long) i), "offset");
            same(consume(t, 0, -1, want.size(), Map.of()), want, 0);
            try {
                produce(t, 0, List.of(new Rec(null, filler(1, LARGEST_VALUE + 1), List.of(), TIME_BASE)), Map.of());
                throw new AssertionError("one byte more than max.message.bytes was accepted");
            } catch (ExecutionException e) {
                check(e.getCause() instanceof RecordTooLargeException, "refused with " + e.getCause());
            }
        });
        CASES.put("a_batch_larger_than_fetch_max_bytes_comes_whole", () -> {
            String t = create("whole", 1, Map.of("max.message.bytes", "6000000"));
            List<Rec> want = List.of(new Rec(null, filler(3, 5_000_000), List.of(), TIME_BASE));
            produce(t, 0, want, Map.of());
            same(consume(t, 0, -1, 1, Map.of("fetch.max.bytes", 1000, "max.partition.fetch.bytes", 1000)), want, 0);
        });
        CASES.put("by_offset_in_the_middle_of_a_batch", () -> {
            String t = create("middle", 1, Map.of());
            produce(t, 0, recs(0, 400), Map.of("compression.type", "lz4"));
            for (int start : new int[] {0, 1, 199, 398, 399}) same(consume(t, 0, start, 400 - start, Map.of()), recs(start, 400), start);
        });
        CASES.put("by_time", () -> {
            String t = create("time", 1, Map.of());
            for (int i = 0; i < 100; i += 20) produce(t, 0, recs(i, i + 20), Map.of());
            TopicPartition tp = new TopicPartition(t, 0);
            try (var c = consumer(Map.of())) {
                long[][] cases = {{-5, 0}, {0, 0}, {1, 1}, {495, 50}, {500, 50}, {501, 51}, {990, 99}, {991, -1}};
                for (long[] x : cases) {
                    var found = c.offsetsForTimes(Map.of(tp, TIME_BASE + x[0])).get(tp);
                    equal(found == null ? -1L : found.offset(), x[1], "offset for base" + x[0]);
                    if (found != null) equal(found.timestamp(), TIME_BASE + x[1] * 10, "timestamp found");
                }
                equal(c.beginningOffsets(List.of(tp)).get(tp), 0L, "beginning");
                equal(c.endOffsets(List.of(tp)).get(tp), 100L, "end");
            }
        });
        CASES.put("an_offset_out_of_range", () -> {
            String t = create("range", 1, Map.of());
            produce(t, 0, recs(0, 3), Map.of());
            try (var c = consumer(Map.of())) {
                TopicPartition tp = new TopicPartition(t, 0);
                c.assign(List.of(tp));
                c.seek(tp, 1000);
                try {
                    until("the error", () -> { c.poll(Duration.ofMillis(500)); return false; });
                } catch (org.apache.kafka.clients.consumer.OffsetOutOfRangeException e) {
                    equal(e.offsetOutOfRangePartitions(), Map.of(tp, 1000L), "partitions out of range");
                }
            }
        });
        CASES.put("read_committed", () -> {
            String t = create("committed", 1, Map.of());
            produce(t, 0, recs(0, 50), Map.of());
            same(consume(t, 0, -1, 50, Map.of("isolation.level", "read_committed")), recs(0, 50), 0);
        });
        CASES.put("admin_topics_and_configs", () -> {
            String t = create("admin", 2, Map.of("segment.bytes", "2097152"));
            ConfigResource r = new ConfigResource(ConfigResource.Type.TOPIC, t);
            try (Admin a = admin()) {
                until("the topic", () -> a.listTopics().names().get().contains(t));
                var d = a.describeTopics(List.of(t)).allTopicNames().get().get(t);
                equal(d.partitions().size(), 2, "partitions");
                check(!d.topicId().equals(Uuid.ZERO_UUID), "no topic id");
                equal(a.describeConfigs(List.of(r)).all().get().get(r).get("segment.bytes").value(), "2097152", "segment.bytes");
                a.incrementalAlterConfigs(Map.of(r, List.of(new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all().get();
                until("the new policy", () -> a.describeConfigs(List.of(r)).all().get().get(r).get("cleanup.policy").value().contains("compact"));
                try {
                    a.incrementalAlterConfigs(Map.of(r, List.of(new AlterConfigOp(new ConfigEntry("segment.bytes", "x"), AlterConfigOp.OpType.SET)))).all().get();
                    throw new AssertionError("segment.bytes=x was accepted");
                } catch (ExecutionException e) {
                    check(e.getCause() instanceof InvalidConfigurationException, "refused with " + e.getCause());
                }
                a.createPartitions(Map.of(t, NewPartitions.increaseTo(4))).all().get();
                until("four partitions", () -> a.describeTopics(List.of(t)).allTopicNames().get().get(t).partitions().size() == 4);
                try {
                    a.createTopics(List.of(new NewTopic(t, 1, (short) 1))).all().get();
                    throw new AssertionError("created twice");
                } catch (ExecutionException e) {
                    check(e.getCause() instanceof TopicExistsException, "refused with " + e.getCause());
                }
                try {
                    a.createTopics(List.of(new NewTopic(topic("three"), 1, (short) 3))).all().get();
                    throw new AssertionError("three replicas on one broker");
                } catch (ExecutionException e) {
                    check(e.getCause() instanceof InvalidReplicationFactorException, "refused with " + e.getCause());
                }
                a.deleteTopics(List.of(t)).all().get();
                until("the topic to be gone", () -> !a.listTopics().names().get().contains(t));
            }
        });
        CASES.put("admin_validate_only_creates_nothing", () -> {
            String t = topic("validate");
            try (Admin a = admin()) {
                a.createTopics(List.of(new NewTopic(t, 1, (short) 1)), new CreateTopicsOptions().validateOnly(true)).all().get();
                check(!a.listTopics().names().get().contains(t), "the topic was created");
            }
        });
        CASES.put("admin_records_and_offsets", () -> {
            String t = create("trim", 1, Map.of());
            produce(t, 0, recs(0, 40), Map.of());
            TopicPartition tp = new TopicPartition(t, 0);
            try (Admin a = admin()) {
                equal(a.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(25))).lowWatermarks().get(tp).get().lowWatermark(), 25L, "low watermark");
                equal(a.listOffsets(Map.of(tp, OffsetSpec.earliest())).partitionResult(tp).get().offset(), 25L, "earliest");
                equal(a.listOffsets(Map.of(tp, OffsetSpec.latest())).partitionResult(tp).get().offset(), 40L, "latest");
                equal(a.listOffsets(Map.of(tp, OffsetSpec.maxTimestamp())).partitionResult(tp).get().offset(), 39L, "of the greatest timestamp");
            }
            same(consume(t, 0, -1, 15, Map.of()), recs(25, 40), 25);
        });
        CASES.put("admin_cluster_log_dirs_producers", () -> {
            String t = create("look", 1, Map.of());
            produce(t, 0, recs(0, 10), Map.of("enable.idempotence", true));
            TopicPartition tp = new TopicPartition(t, 0);
            try (Admin a = admin()) {
                var cluster = a.describeCluster();
                int node = cluster.nodes().get().iterator().next().id();
                check(!cluster.clusterId().get().isEmpty(), "no cluster id");
                check(cluster.controller().get() != null, "no controller");
                var dirs = a.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
                check(dirs.values().stream().anyMatch(d -> d.replicaInfos().containsKey(tp) && d.replicaInfos().get(tp).size() > 0), "the log directory does not list " + tp);
                var producers = a.describeProducers(List.of(tp)).partitionResult(tp).get().activeProducers();
                equal(producers.size(), 1, "active producers");
                equal(producers.get(0).lastSequence(), 9, "last sequence");
            }
        });
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[1];
        if (args[0].equals("produce")) {
            List<Rec> all = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(args[4]); i++) all.add(rec(i, true));
            produce(args[2], 0, all, Map.of("compression.type", args[3], "enable.idempotence", true));
            return;
        }
        if (args[0].equals("consume")) {
            for (var r : consume(args[2], 0, 0, Integer.parseInt(args[3]), Map.of())) System.out.println(r.offset() + " " + r.timestamp() + " " + digest(r.key(), r.value(), r.headers()));
            return;
        }
        define();
        String only = System.getenv().getOrDefault("ONLY", "");
        int passed = 0, failed = 0;
        ExecutorService pool = Executors.newCachedThreadPool();
        for (var c : CASES.entrySet()) {
            if (!only.isEmpty() && Arrays.stream(only.split(",")).noneMatch(w -> ("java/" + c.getKey()).contains(w))) continue;
            long start = System.nanoTime();
            Throwable why = null;
            try {
                pool.submit(() -> { c.getValue().run(); return null; }).get(60, TimeUnit.SECONDS);
            } catch (ExecutionException e) {
                why = e.getCause();
            } catch (java.util.concurrent.TimeoutException e) {
                why = new AssertionError("took more than 60 s");
            }
            if (why == null) passed++; else failed++;
            if (why != null && System.getenv("TRACE") != null) why.printStackTrace();
            System.out.printf("%s java/%s%s [%.1f s]%n", why == null ? "PASS" : "FAIL", c.getKey(), why == null ? "" : ": " + why, (System.nanoTime() - start) / 1e9);
        }
        System.out.println(passed + " passed, " + failed + " failed, 0 skipped");
        System.exit(failed == 0 ? 0 : 1);
    }
}
