import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;
import sun.misc.Signal;

/**
 * Does Seqmark's job by Kafka Streams.
 *
 * <p>The processor API over bytes: a record passes if its sequence is greater than the last that passed in its
 * source partition, or of its key within it. The last ones are in a state store in memory with a changelog. A
 * task is one source partition, so state never mixes partitions. What passes goes to the partition of the same
 * number with key, value, headers and timestamp as they came.
 *
 * <p>With {@code job.ids} a record passes if its id is not in the store, or was put there longer ago than
 * {@code job.window.ms} by the task's stream time. What is expired is overwritten when it comes again and is not
 * deleted before: no time is spent on that here. With the ids called {@code fingerprint} it also passes if its
 * value's content is none of those that came with its id: collisions are passed on as they are.
 *
 * <p>Arguments are {@code name=value}: those that begin with {@code job.} are read here, the rest are settings of
 * Kafka Streams. Runs until SIGTERM and exits 0; exits 1 when a stream thread fails.
 */
public final class KafkaStreamsDedup {
    private static final String STORE = "last";

    private KafkaStreamsDedup() {}

    public static void main(String[] args) throws InterruptedException {
        Properties job = new Properties();
        Properties settings = new Properties();
        for (String arg : args) {
            int equals = arg.indexOf('=');
            String name = arg.substring(0, equals);
            (name.startsWith("job.") ? job : settings).put(name, arg.substring(equals + 1));
        }
        CountDownLatch ended = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Signal.handle(new Signal("TERM"), signal -> ended.countDown());
        KafkaStreams streams = new KafkaStreams(topology(job), settings);
        streams.setUncaughtExceptionHandler(error -> {
            failure.set(error);
            ended.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        ended.await();
        streams.close(Duration.ofSeconds(30));
        if (failure.get() != null) {
            failure.get().printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static Topology topology(Properties job) {
        String sequence = job.getProperty("job.sequence");
        String ids = job.getProperty("job.ids");
        long window = Long.parseLong(job.getProperty("job.window.ms", "0"));
        boolean byKey = job.getProperty("job.scope").equals("key");
        ProcessorSupplier<byte[], byte[], Routed, byte[]> dedup = () -> {
            if ("fingerprint".equals(ids)) {
                return new FingerprintDedup(window);
            }
            if (ids != null) {
                boolean json = ids.equals("json");
                return new IdDedup(json ? it -> Values.id(it.value()) : it -> Values.id(it.headers()), window);
            }
            ToLongFunction<Record<byte[], byte[]>> numbers =
                sequence.equals("json") ? it -> Values.sequence(it.value()) : it -> Values.sequence(it.headers());
            return byKey ? new KeyDedup(numbers) : new PartitionDedup(numbers);
        };
        StoreBuilder<?> store =
            "fingerprint".equals(ids) ? store(job, Serdes.ByteArray()) : store(job, Serdes.Long());
        return new Topology()
            .addSource(
                "source", new ByteArrayDeserializer(), new ByteArrayDeserializer(), job.getProperty("job.source"))
            .addProcessor("dedup", dedup, "source")
            .addStateStore(store, "dedup")
            .addSink(
                "sink",
                job.getProperty("job.sink"),
                (topic, routed) -> routed.key,
                new ByteArraySerializer(),
                (StreamPartitioner<Routed, byte[]>) (topic, routed, value, partitions) -> routed.partition,
                "dedup");
    }

    private static <V> StoreBuilder<KeyValueStore<byte[], V>> store(Properties job, Serde<V> values) {
        KeyValueBytesStoreSupplier kind = job.getProperty("job.store").equals("rocksdb")
            ? Stores.persistentKeyValueStore(STORE)
            : Stores.inMemoryKeyValueStore(STORE);
        StoreBuilder<KeyValueStore<byte[], V>> store =
            Stores.keyValueStoreBuilder(kind, Serdes.ByteArray(), values).withLoggingEnabled(Map.of());
        // With the cache, a number that changes a thousand times between two commits is logged once.
        boolean cached = Boolean.parseBoolean(job.getProperty("job.store.caching"));
        return cached ? store.withCachingEnabled() : store.withCachingDisabled();
    }

    /** A key and where it goes: a partitioner of Kafka Streams is not told where a record came from. */
    private static final class Routed {
        private final Optional<Set<Integer>> partition;
        private byte[] key;

        Routed(int partition) {
            this.partition = Optional.of(Set.of(partition));
        }
    }

    /** What all ways to judge share. One instance serves one task, in one thread. */
    private abstract static class Dedup<V> implements Processor<byte[], byte[], Routed, byte[]> {
        protected ProcessorContext<Routed, byte[]> context;
        private Routed routed;
        protected KeyValueStore<byte[], V> store;

        @Override
        public void init(ProcessorContext<Routed, byte[]> context) {
            this.context = context;
            routed = new Routed(context.taskId().partition());
            store = context.getStateStore(STORE);
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            if (passes(record)) {
                // The sink has taken the bytes when `forward` returns, so that one object serves all records.
                routed.key = record.key();
                context.forward(record.withKey(routed));
            }
        }

        /** Tells whether a record passes, and remembers it then. */
        protected abstract boolean passes(Record<byte[], byte[]> record);
    }

    private static final class IdDedup extends Dedup<Long> {
        private final Function<Record<byte[], byte[]>, byte[]> ids;
        private final long windowMs;

        IdDedup(Function<Record<byte[], byte[]>, byte[]> ids, long windowMs) {
            this.ids = ids;
            this.windowMs = windowMs;
        }

        @Override
        protected boolean passes(Record<byte[], byte[]> record) {
            byte[] id = ids.apply(record);
            // The highest timestamp that the task has seen, this record's included; it survives a restart.
            long clock = context.currentStreamTimeMs();
            Long seen = store.get(id);
            if (seen != null && clock < seen + windowMs) {
                return false;
            }
            store.put(id, clock);
            return true;
        }
    }

    /** An id's entry in the store is what came with it: a fingerprint and when it came, 16 bytes each. */
    private static final class FingerprintDedup extends Dedup<byte[]> {
        private static final int ENTRY = 2 * Long.BYTES;
        // Numbers keep their digits.
        private static final JsonMapper JSON = JsonMapper.builder()
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .enable(JsonNodeFeature.WRITE_PROPERTIES_SORTED)
            .disable(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES)
            .build();
        private final MessageDigest digest;
        private final long windowMs;

        FingerprintDedup(long windowMs) {
            this.windowMs = windowMs;
            try {
                digest = MessageDigest.getInstance("SHA-256");
            } catch (NoSuchAlgorithmException exc) {
                throw new IllegalStateException(exc);
            }
        }

        @Override
        protected boolean passes(Record<byte[], byte[]> record) {
            byte[] id = Values.id(record.headers());
            long own = fingerprint(record.value());
            long clock = context.currentStreamTimeMs();
            byte[] seen = store.get(id);
            ByteBuffer before = ByteBuffer.wrap(seen == null ? new byte[0] : seen);
            ByteBuffer after = ByteBuffer.allocate(before.capacity() + ENTRY);
            while (before.hasRemaining()) {
                long other = before.getLong();
                long when = before.getLong();
                if (clock < when + windowMs) {
                    if (other == own) {
                        return false;
                    }
                    after.putLong(other).putLong(when);
                }
            }
            after.putLong(own).putLong(clock);
            store.put(id, Arrays.copyOf(after.array(), after.position()));
            return true;
        }

        private long fingerprint(byte[] value) {
            try {
                byte[] canonical = JSON.writeValueAsBytes(JSON.readTree(value));
                return ByteBuffer.wrap(digest.digest(canonical)).getLong();
            } catch (IOException exc) {
                throw new UncheckedIOException(exc);
            }
        }
    }

    private static final class PartitionDedup extends Dedup<Long> {
        private static final byte[] ONLY = {0};
        private boolean any;
        private long last;
        private final ToLongFunction<Record<byte[], byte[]>> numbers;

        PartitionDedup(ToLongFunction<Record<byte[], byte[]>> numbers) {
            this.numbers = numbers;
        }

        @Override
        public void init(ProcessorContext<Routed, byte[]> context) {
            super.init(context);
            // Called after each restore, so that this copy never outlives the state it was read from.
            Long restored = store.get(ONLY);
            any = restored != null;
            last = any ? restored : 0;
        }

        @Override
        protected boolean passes(Record<byte[], byte[]> record) {
            long number = numbers.applyAsLong(record);
            if (any && number <= last) {
                return false;
            }
            any = true;
            last = number;
            store.put(ONLY, number);
            return true;
        }
    }

    private static final class KeyDedup extends Dedup<Long> {
        private final ToLongFunction<Record<byte[], byte[]>> numbers;

        KeyDedup(ToLongFunction<Record<byte[], byte[]>> numbers) {
            this.numbers = numbers;
        }

        @Override
        protected boolean passes(Record<byte[], byte[]> record) {
            byte[] key = record.key();
            long number = numbers.applyAsLong(record);
            Long last = store.get(key);
            if (last != null && number <= last) {
                return false;
            }
            store.put(key, number);
            return true;
        }
    }
}
