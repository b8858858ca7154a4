// Runs many of Kafka's command line tools in one JVM, which saves a start of it for each:   java -cp JARS Tools.java HOST:PORT DIRECTORY
// Reads one command a line and answers with what it printed, then a line of the control character 1 and the exit status.
// A command is the name of a tool as Kafka's distribution has it, or one of those at `own`, which stand in for applications.
// Files are named relative to DIRECTORY; `> FILE` at the end keeps the standard output in a file.

import java.io.*;
import java.lang.reflect.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    static final PrintStream OUT = System.out;
    static final InputStream IN = System.in;
    static final Map<String, String> CLASSES = Map.ofEntries(
        Map.entry("kafka-broker-api-versions", "org.apache.kafka.tools.BrokerApiVersionsCommand"),
        Map.entry("kafka-cluster", "org.apache.kafka.tools.ClusterTool"),
        Map.entry("kafka-configs", "kafka.admin.ConfigCommand"),
        Map.entry("kafka-console-consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
        Map.entry("kafka-consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
        Map.entry("kafka-consumer-perf-test", "org.apache.kafka.tools.ConsumerPerformance"),
        Map.entry("kafka-delete-records", "org.apache.kafka.tools.DeleteRecordsCommand"),
        Map.entry("kafka-features", "org.apache.kafka.tools.FeatureCommand"),
        Map.entry("kafka-get-offsets", "org.apache.kafka.tools.GetOffsetShell"),
        Map.entry("kafka-groups", "org.apache.kafka.tools.GroupsCommand"),
        Map.entry("kafka-leader-election", "org.apache.kafka.tools.LeaderElectionCommand"),
        Map.entry("kafka-log-dirs", "org.apache.kafka.tools.LogDirsCommand"),
        Map.entry("kafka-metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand"),
        Map.entry("kafka-reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
        Map.entry("kafka-topics", "org.apache.kafka.tools.TopicCommand"),
        Map.entry("kafka-verifiable-consumer", "org.apache.kafka.tools.VerifiableConsumer"));
    // Their sub-commands take no --bootstrap-server.
    static final Set<String> SERVER_FIRST = Set.of("kafka-metadata-quorum", "kafka-features");

    static String bootstrap;
    static Path directory;
    static final Map<String, Member> members = new HashMap<>();

    /** What stands in for the end of a process: the status, and nothing printed from then on by tools that catch what is thrown. */
    static class Exited extends Error {}
    static volatile Integer exited;

    static void exit(int status, String message) {
        if (exited == null) {
            exited = status;
            if (message != null) System.err.println(message);
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Exited();
    }

    // ---- applications

    /** A consumer with a thread of its own that reads and commits until it is told to leave. */
    static class Member extends Thread {
        final KafkaConsumer<byte[], byte[]> consumer;
        final CountDownLatch assigned = new CountDownLatch(1);
        volatile boolean leaving;

        Member(Map<String, String> options) {
            Map<String, Object> conf = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
            for (var o : options.entrySet()) if (o.getKey().contains(".")) conf.put(o.getKey(), o.getValue());
            consumer = new KafkaConsumer<>(conf, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(List.of(options.get("topics").split(",")), new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> gone) {}
                public void onPartitionsAssigned(Collection<TopicPartition> got) { assigned.countDown(); }
            });
            setDaemon(true);
        }

        public void run() {
            try (consumer) {
                while (!leaving) if (!consumer.poll(Duration.ofMillis(50)).isEmpty()) consumer.commitSync();
            }
        }
    }

    static Admin admin() { return Admin.create(Map.of("bootstrap.servers", bootstrap)); }

    static Map<String, String> options(List<String> args) {
        Map<String, String> out = new LinkedHashMap<>();
        for (String a : args) out.put(a.substring(0, a.indexOf('=')), a.substring(a.indexOf('=') + 1));
        return out;
    }

    static TopicPartition partition(String s) { return new TopicPartition(s.substring(0, s.lastIndexOf(':')), Integer.parseInt(s.substring(s.lastIndexOf(':') + 1))); }

    /** Commands that are not Kafka's; false where there is no such command. */
    static boolean own(String name, List<String> args) throws Exception {
        switch (name) {
            // produce TOPIC:PARTITION COUNT [FIRST_TIME_MS]: values of ten bytes, a second apart, a batch each
            case "produce" -> {
                TopicPartition tp = partition(args.get(0));
                try (var p = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", bootstrap, "linger.ms", 0, "enable.idempotence", false), new ByteArraySerializer(), new ByteArraySerializer())) {
                    for (int i = 0; i < Integer.parseInt(args.get(1)); i++) {
                        Long time = args.size() > 2 ? Long.parseLong(args.get(2)) + i * 1000L : null;
                        p.send(new ProducerRecord<>(tp.topic(), tp.partition(), time, null, String.format("record%04d", i).getBytes(StandardCharsets.UTF_8))).get();
                    }
                }
            }
            // member NAME group.id=... topics=... [setting=...]: returns when it has an assignment
            case "member" -> {
                Member m = new Member(options(args.subList(1, args.size())));
                members.put(args.get(0), m);
                m.start();
                if (!m.assigned.await(30, TimeUnit.SECONDS)) throw new AssertionError("no assignment within 30 s");
            }
            case "leave" -> {
                Member m = members.remove(args.get(0));
                m.leaving = true;
                m.join(30_000);
            }
            // commit GROUP TOPIC:PARTITION=OFFSET...: as an application that assigns partitions to itself
            case "commit" -> {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (var o : options(args.subList(1, args.size())).entrySet()) offsets.put(partition(o.getKey()), new OffsetAndMetadata(Long.parseLong(o.getValue())));
                try (Admin a = admin()) { a.alterConsumerGroupOffsets(args.get(0), offsets).all().get(); }
            }
            // await-group GROUP STATE MEMBERS, await-lag GROUP LAG, await-topic TOPIC PARTITIONS
            case "await-group" -> {
                try (Admin a = admin()) {
                    until(String.join(" ", args), () -> {
                        var d = a.describeConsumerGroups(List.of(args.get(0))).all().get().get(args.get(0));
                        return d.groupState().toString().equals(args.get(1)) && d.members().size() == Integer.parseInt(args.get(2));
                    });
                }
            }
            case "await-lag" -> {
                try (Admin a = admin()) {
                    until(String.join(" ", args), () -> {
                        var committed = a.listConsumerGroupOffsets(args.get(0)).partitionsToOffsetAndMetadata().get();
                        var ends = a.listOffsets(committed.keySet().stream().collect(Collectors.toMap(x -> x, x -> OffsetSpec.latest()))).all().get();
                        long lag = 0;
                        for (var c : committed.entrySet()) lag += ends.get(c.getKey()).offset() - c.getValue().offset();
                        return !committed.isEmpty() && lag == Long.parseLong(args.get(1));
                    });
                }
            }
            case "await-topic" -> {
                try (Admin a = admin()) {
                    until(String.join(" ", args), () -> {
                        try {
                            return a.describeTopics(List.of(args.get(0))).allTopicNames().get().get(args.get(0)).partitions().size() == Integer.parseInt(args.get(1));
                        } catch (ExecutionException e) {
                            return Integer.parseInt(args.get(1)) == 0;
                        }
                    });
                }
            }
            case "show" -> System.out.print(Files.readString(directory.resolve(args.get(0))));
            // write FILE TEXT: backslash-n begins a line
            case "write" -> Files.writeString(directory.resolve(args.get(0)), args.get(1).replace("\\n", "\n"));
            default -> { return false; }
        }
        return true;
    }

    static void until(String what, Callable<Boolean> f) throws Exception {
        long end = System.nanoTime() + 30_000_000_000L;
        while (!f.call()) {
            if (System.nanoTime() > end) throw new AssertionError("waited 30 s in vain for " + what);
            Thread.sleep(20);
        }
    }

    // ---- the tools

    static void tool(String name, List<String> args) throws Exception {
        Class<?> c = Class.forName(CLASSES.get(name));
        if (name.equals("kafka-console-consumer")) {
            // It counts in a static field, as a process that lives once may.
            Field count = c.getDeclaredField("messageCount");
            count.setAccessible(true);
            count.setInt(null, 0);
        }
        List<String> all = new ArrayList<>(args);
        boolean offline = args.contains("--validate-regex") || args.contains("version-mapping") || args.contains("feature-dependencies");
        if (!offline) all.addAll(SERVER_FIRST.contains(name) ? 0 : all.size(), List.of("--bootstrap-server", bootstrap));
        Method main = c.getMethod("main", String[].class);
        try {
            main.invoke(null, (Object) all.toArray(new String[0]));
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Exception x) throw x;
            throw (Error) e.getCause();
        }
    }

    static int run(String line) throws IOException {
        List<String> words = new ArrayList<>();
        for (Matcher m = Pattern.compile("'([^']*)'|(\\S+)").matcher(line); m.find(); ) words.add(m.group(1) != null ? m.group(1) : m.group(2));
        String file = null;
        if (words.size() > 2 && words.get(words.size() - 2).equals(">")) {
            file = words.remove(words.size() - 1);
            words.remove(words.size() - 1);
        }
        String name = words.remove(0);
        words.replaceAll(w -> w.startsWith("@") ? directory.resolve(w.substring(1)).toString() : w);
        ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(file == null ? out : err, true));
        int status = 0;
        exited = null;
        try {
            if (CLASSES.containsKey(name)) tool(name, words);
            else if (!own(name, words)) throw new AssertionError("no command " + name);
        } catch (Throwable e) {
            if (exited == null) {
                status = 99;
                System.err.println(e);
            }
        }
        if (exited != null) status = exited;
        if (file != null) {
            Files.write(directory.resolve(file), out.toByteArray());
            out = err;
        }
        OUT.write(out.toByteArray());
        OUT.println("\u0001" + status);
        OUT.flush();
        return status;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        directory = Path.of(args[1]);
        Exit.setExitProcedure(Tools::exit);
        Exit.setHaltProcedure(Tools::exit);
        // Each tool would add a hook that ends only with this process.
        Exit.setShutdownHookAdder((name, runnable) -> {});
        var lines = new BufferedReader(new InputStreamReader(IN, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) run(line);
        for (Member m : members.values()) m.leaving = true;
        Runtime.getRuntime().halt(0);
    }
}
