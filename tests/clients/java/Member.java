// A member of a consumer group for ../groups:   java -cp JARS Member.java HOST:PORT key=value...   (see ../python/member.py)

import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Member implements ConsumerRebalanceListener {
    static final Map<String, String> ASSIGNORS = Map.of("range", "RangeAssignor", "roundrobin", "RoundRobinAssignor", "sticky", "StickyAssignor",
        "cooperative-sticky", "CooperativeStickyAssignor");

    final KafkaConsumer<byte[], byte[]> consumer;
    final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    final Set<TopicPartition> has = new HashSet<>();

    Member(String bootstrap, Map<String, String> o) {
        Map<String, Object> conf = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", o.get("group"), "enable.auto.commit", false,
            "auto.offset.reset", "earliest", "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + ASSIGNORS.get(o.get("assignor")),
            "session.timeout.ms", o.getOrDefault("session", "2000"), "heartbeat.interval.ms", "300", "max.poll.interval.ms", o.getOrDefault("poll", "60000"),
            "metadata.max.age.ms", o.getOrDefault("metadata", "300000"), "fetch.max.wait.ms", "100"));
        if (o.containsKey("instance")) conf.put("group.instance.id", o.get("instance"));
        consumer = new KafkaConsumer<>(conf, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        if (o.containsKey("pattern")) consumer.subscribe(Pattern.compile(o.get("pattern")), this);
        else consumer.subscribe(List.of(o.get("topics").split(",")), this);
    }

    void assigned() { System.out.println("assigned " + has.stream().map(p -> p.topic() + ":" + p.partition()).sorted().collect(Collectors.joining(" "))); }

    public void onPartitionsAssigned(Collection<TopicPartition> more) {
        has.addAll(more);
        assigned();
    }

    public void onPartitionsRevoked(Collection<TopicPartition> gone) {
        commit();
        onPartitionsLost(gone);
    }

    public void onPartitionsLost(Collection<TopicPartition> gone) {
        has.removeAll(gone);
        uncommitted.keySet().removeAll(gone);
        assigned();
    }

    void commit() {
        if (uncommitted.isEmpty()) return;
        try {
            consumer.commitSync(new HashMap<>(uncommitted));
            uncommitted.clear();
        } catch (Exception e) {
            // During a rebalance a commit may be refused; it is tried again after the next poll.
            System.out.println("note commit: " + e);
        }
    }

    void run() throws Exception {
        var inputs = new LinkedBlockingQueue<String>();
        Thread reader = new Thread(() -> {
            try (var lines = new BufferedReader(new InputStreamReader(System.in))) {
                for (String line; (line = lines.readLine()) != null; ) inputs.add(line);
            } catch (IOException e) {
                System.out.println("note " + e);
            }
            inputs.add("end");
        });
        reader.setDaemon(true);
        reader.start();
        while (true) {
            for (var r : consumer.poll(Duration.ofMillis(100))) {
                System.out.println("read " + r.topic() + " " + r.partition() + " " + r.offset());
                uncommitted.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
            }
            commit();
            String input = inputs.poll();
            if (input == null) continue;
            if (input.startsWith("hang ")) Thread.sleep(Long.parseLong(input.substring(5)));
            else if (input.equals("leave")) {
                consumer.close();
                System.out.println("left");
                return;
            } else Runtime.getRuntime().halt(1);
        }
    }

    public static void main(String[] args) throws Exception {
        new Member(args[0], Arrays.stream(args).skip(1).collect(Collectors.toMap(a -> a.substring(0, a.indexOf('=')), a -> a.substring(a.indexOf('=') + 1)))).run();
    }
}
