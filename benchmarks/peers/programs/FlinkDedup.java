import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.lineage.*;
import org.apache.flink.connector.kafka.sink.*;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.*;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import sun.misc.Signal;

/**
 * Does Seqmark's job by Flink.
 *
 * <p>Source, keyed state and sink in one chain of operators on a MiniCluster: a record passes if its sequence is
 * greater than the last that passed in its source partition, or of its key within it. The last ones are keyed
 * state, in each checkpoint. What passes goes to the partition of the same number with key, value, headers and
 * timestamp as they came.
 *
 * <p>There is no exchange between the operators: one subtask reads all partitions, so the stream is keyed as it
 * lies ({@code reinterpretAsKeyedStream}). {@code keyBy} would serialise every record on its way.
 *
 * <p>With {@code job.ids} the stream is keyed by the id in the header of that name, and the state is that there is
 * one: with a time to live of {@code job.window.ms}, which Flink counts by its own clock, not by the records'.
 *
 * <p>Arguments are {@code name=value}: {@code job.} is read here, {@code source.} and {@code sink.} are settings of
 * the Kafka clients, the rest are Flink's. Runs until SIGTERM and exits 0; exits 1 when the job fails.
 */
public final class FlinkDedup {
    private FlinkDedup() {}

    public static void main(String[] args) throws Exception {
        Properties job = new Properties();
        Properties source = new Properties();
        Properties sink = new Properties();
        Configuration flink = new Configuration();
        for (String arg : args) {
            int equals = arg.indexOf('=');
            String name = arg.substring(0, equals);
            String value = arg.substring(equals + 1);
            switch (name.substring(0, name.indexOf('.'))) {
                case "job" -> job.put(name, value);
                case "source" -> source.put(name.substring("source.".length()), value);
                case "sink" -> sink.put(name.substring("sink.".length()), value);
                default -> flink.setString(name, value);
            }
        }
        CountDownLatch ended = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Signal.handle(new Signal("TERM"), signal -> ended.countDown());
        JobClient client = start(job, source, sink, flink);
        client.getJobExecutionResult().whenComplete((result, error) -> {
            failure.compareAndSet(null, error);
            ended.countDown();
        });
        ended.await();
        if (failure.get() != null) {
            failure.get().printStackTrace();
            System.exit(1);
        }
        client.cancel().get(60, TimeUnit.SECONDS);
        System.exit(0);
    }

    private static JobClient start(Properties job, Properties source, Properties sink, Configuration flink)
        throws Exception {
        int parallelism = Integer.parseInt(job.getProperty("job.parallelism"));
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, flink);
        env.setMaxParallelism(128);
        KafkaSource<ConsumerRecord<byte[], byte[]>> reader = KafkaSource.<ConsumerRecord<byte[], byte[]>>builder()
            .setBootstrapServers(job.getProperty("job.bootstrap.servers"))
            .setTopics(job.getProperty("job.source"))
            .setGroupId(job.getProperty("job.group"))
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(new AsItCame())
            .setProperties(source)
            .build();
        KafkaSink<ConsumerRecord<byte[], byte[]>> writer = KafkaSink.<ConsumerRecord<byte[], byte[]>>builder()
            .setBootstrapServers(job.getProperty("job.bootstrap.servers"))
            .setRecordSerializer(new SamePartition(job.getProperty("job.sink")))
            .setDeliveryGuarantee(
                DeliveryGuarantee.valueOf(job.getProperty("job.guarantee").toUpperCase(Locale.ROOT)))
            .setTransactionalIdPrefix(job.getProperty("job.group"))
            .setTransactionNamingStrategy(
                TransactionNamingStrategy.valueOf(job.getProperty("job.transaction.naming")))
            .setKafkaProducerConfig(sink)
            .build();
        DataStream<ConsumerRecord<byte[], byte[]>> records =
            env.fromSource(reader, WatermarkStrategy.noWatermarks(), "source");
        boolean ids = job.containsKey("job.ids");
        Scope scope = new Scope(job.getProperty("job.scope").equals("key"), ids);
        boolean json = job.getProperty("job.sequence").equals("json");
        DataStreamUtils.reinterpretAsKeyedStream(records, scope, Types.STRING)
            .filter(ids ? new IdDedup(Long.parseLong(job.getProperty("job.window.ms"))) : new Dedup(json))
            .sinkTo(writer);
        return env.executeAsync(job.getProperty("job.group"));
    }

    /** Kafka's own record is what flows: nothing serialises it, for the operators are one chain. */
    private static final class AsItCame
        implements KafkaRecordDeserializationSchema<ConsumerRecord<byte[], byte[]>> {
        private static final long serialVersionUID = 1;

        @Override
        public void deserialize(
            ConsumerRecord<byte[], byte[]> record, Collector<ConsumerRecord<byte[], byte[]>> out) {
            out.collect(record);
        }

        @Override
        public TypeInformation<ConsumerRecord<byte[], byte[]>> getProducedType() {
            return TypeInformation.of(new TypeHint<ConsumerRecord<byte[], byte[]>>() {});
        }
    }

    private static final class SamePartition
        implements KafkaRecordSerializationSchema<ConsumerRecord<byte[], byte[]>>, KafkaDatasetFacetProvider {
        private static final long serialVersionUID = 1;
        private final String sink;

        SamePartition(String sink) {
            this.sink = sink;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
            ConsumerRecord<byte[], byte[]> record, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(
                sink, record.partition(), record.timestamp(), record.key(), record.value(), record.headers());
        }

        /** The sink has to know its topics beforehand where it uses transactional ids again (POOLING). */
        @Override
        public Optional<KafkaDatasetFacet> getKafkaDatasetFacet() {
            return Optional.of(
                new DefaultKafkaDatasetFacet(
                    DefaultKafkaDatasetIdentifier.ofTopics(List.of(sink)), new Properties()));
        }
    }

    /** Names the state of a record: its id or its key where that counts, and its source partition. */
    private static final class Scope implements KeySelector<ConsumerRecord<byte[], byte[]>, String> {
        private static final long serialVersionUID = 1;
        private static final byte[] NO_KEY = {};
        private final boolean byKey;
        private final boolean byId;
        private String[] ofPartition = {};

        Scope(boolean byKey, boolean byId) {
            this.byKey = byKey;
            this.byId = byId;
        }

        @Override
        public String getKey(ConsumerRecord<byte[], byte[]> record) {
            int partition = record.partition();
            if (byId) {
                return name(Values.id(record.headers()), partition);
            }
            if (byKey) {
                return name(record.key(), partition);
            }
            if (partition >= ofPartition.length) {
                ofPartition = Arrays.copyOf(ofPartition, partition + 1);
            }
            if (ofPartition[partition] == null) {
                ofPartition[partition] = name(NO_KEY, partition);
            }
            return ofPartition[partition];
        }

        private static String name(byte[] key, int partition) {
            byte[] bytes = Arrays.copyOf(key, key.length + 3);
            bytes[key.length] = (byte) (partition >> 8);
            bytes[key.length + 1] = (byte) partition;
            return new String(bytes, StandardCharsets.ISO_8859_1);
        }
    }

    private static final class IdDedup extends RichFilterFunction<ConsumerRecord<byte[], byte[]>> {
        private static final long serialVersionUID = 1;
        private static final byte SEEN = 1;
        private final long windowMs;
        private transient ValueState<Byte> seen;

        IdDedup(long windowMs) {
            this.windowMs = windowMs;
        }

        @Override
        public void open(OpenContext context) {
            // As by default: written when it is created, never shown once it is expired, which compaction removes.
            StateTtlConfig ttl = StateTtlConfig.newBuilder(Duration.ofMillis(windowMs)).build();
            ValueStateDescriptor<Byte> descriptor = new ValueStateDescriptor<>("seen", Types.BYTE);
            descriptor.enableTimeToLive(ttl);
            seen = getRuntimeContext().getState(descriptor);
        }

        @Override
        public boolean filter(ConsumerRecord<byte[], byte[]> record) throws IOException {
            if (seen.value() != null) {
                return false;
            }
            seen.update(SEEN);
            return true;
        }
    }

    private static final class Dedup extends RichFilterFunction<ConsumerRecord<byte[], byte[]>> {
        private static final long serialVersionUID = 1;
        private final boolean json;
        private transient ValueState<Long> last;

        Dedup(boolean json) {
            this.json = json;
        }

        @Override
        public void open(OpenContext context) {
            last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Types.LONG));
        }

        @Override
        public boolean filter(ConsumerRecord<byte[], byte[]> record) throws IOException {
            long number = json ? Values.sequence(record.value()) : Values.sequence(record.headers());
            Long known = last.value();
            if (known != null && number <= known) {
                return false;
            }
            last.update(number);
            return true;
        }
    }
}
