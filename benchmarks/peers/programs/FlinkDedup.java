import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFilterFunction;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetIdentifier;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacetProvider;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamUtils;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import sun.misc.Signal;

/**
 * How would Flink do Seqmark's job?
 *
 * <p>Source, keyed state and sink in one chain of operators on a MiniCluster: a record passes if its sequence is
 * greater than the last that passed in its source partition, or of its key within it. The last ones are keyed
 * state, in each checkpoint. What passes goes to the partition of the same number with key, value, headers and
 * timestamp as they came.
 *
 * <p>There is no exchange between the operators. State never spans source partitions, and each of these is read
 * by one subtask, so the stream is keyed as it lies ({@code reinterpretAsKeyedStream}): keys are chosen so that
 * Flink gives their state to the subtask that reads them, and it fails where that is not so. {@code keyBy} would
 * serialise every record on its way, and by key it would mix the order within a partition.
 *
 * <p>With {@code job.ids} the stream is keyed by the id in the header of that name, and the state is that there is
 * one: with a time to live of {@code job.window.ms}, which Flink counts by its own clock, not by the records'.
 *
 * <p>Arguments are {@code name=value}: {@code job.} is read here, {@code source.} and {@code sink.} are settings of
 * the Kafka clients, the rest are Flink's. Runs until SIGTERM, stops with a savepoint, so that all that was
 * taken in is committed, and exits 0; exits 1 when the job fails.
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
            if (name.startsWith("job.")) {
                job.put(name, value);
            } else if (name.startsWith("source.")) {
                source.put(name.substring("source.".length()), value);
            } else if (name.startsWith("sink.")) {
                sink.put(name.substring("sink.".length()), value);
            } else {
                flink.setString(name, value);
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
        stop(client, job.getProperty("job.savepoints"));
        System.exit(0);
    }

    private static void stop(JobClient client, String savepoints) throws Exception {
        try {
            client.stopWithSavepoint(false, savepoints, SavepointFormatType.NATIVE).get(60, TimeUnit.SECONDS);
        } catch (ExecutionException exc) {
            System.err.println("no savepoint, so the job is cancelled: " + exc.getCause());
            client.cancel().get(60, TimeUnit.SECONDS);
        }
    }

    private static JobClient start(Properties job, Properties source, Properties sink, Configuration flink)
        throws Exception {
        String topic = job.getProperty("job.source");
        int parallelism = Integer.parseInt(job.getProperty("job.parallelism"));
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, flink);
        env.setMaxParallelism(Scope.KEY_GROUPS);
        KafkaSource<ConsumerRecord<byte[], byte[]>> reader = KafkaSource.<ConsumerRecord<byte[], byte[]>>builder()
            .setBootstrapServers(job.getProperty("job.bootstrap.servers"))
            .setTopics(topic)
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
        Scope scope = new Scope(topic, parallelism, job.getProperty("job.scope").equals("key"), ids);
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

    /**
     * Names the state of a record: its id or its key where that counts, its source partition, and a byte that is chosen so
     * that the name belongs to a key group of the subtask that reads the partition.
     */
    private static final class Scope implements KeySelector<ConsumerRecord<byte[], byte[]>, String> {
        private static final long serialVersionUID = 1;
        private static final int KEY_GROUPS = 128;
        private static final byte[] NO_KEY = {};
        private final int parallelism;
        private final int firstOwner;
        private final boolean byKey;
        private final boolean byId;
        private String[] ofPartition = {};

        Scope(String topic, int parallelism, boolean byKey, boolean byId) {
            this.parallelism = parallelism;
            // As the connector hands out partitions (KafkaSourceEnumerator.getSplitOwner).
            this.firstOwner = (topic.hashCode() * 31 & 0x7FFFFFFF) % parallelism;
            this.byKey = byKey;
            this.byId = byId;
        }

        @Override
        public String getKey(ConsumerRecord<byte[], byte[]> record) {
            int partition = record.partition();
            if (byId) {
                Header header = record.headers().lastHeader("id");
                if (header == null || header.value() == null) {
                    throw new IllegalArgumentException("a record without an id in its header id");
                }
                return name(header.value(), partition);
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

        private String name(byte[] key, int partition) {
            int owner = (firstOwner + partition) % parallelism;
            byte[] bytes = Arrays.copyOf(key, key.length + 3);
            bytes[key.length] = (byte) (partition >> 8);
            bytes[key.length + 1] = (byte) partition;
            while (true) {
                String name = new String(bytes, StandardCharsets.ISO_8859_1);
                if (parallelism == 1
                    || KeyGroupRangeAssignment.assignKeyToParallelOperator(name, KEY_GROUPS, parallelism) == owner) {
                    return name;
                }
                bytes[key.length + 2]++;
            }
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
        private static final VarHandle INT64 =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
        private static final JsonFactory JSON = new JsonFactory();
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
            long number = json ? ofValue(record) : ofHeader(record);
            Long known = last.value();
            if (known != null && number <= known) {
                return false;
            }
            last.update(number);
            return true;
        }

        private static long ofHeader(ConsumerRecord<byte[], byte[]> record) {
            Header header = record.headers().lastHeader("seq");
            if (header == null || header.value().length != Long.BYTES) {
                throw new IllegalArgumentException("a record without eight bytes in its header seq");
            }
            return (long) INT64.get(header.value(), 0);
        }

        private static long ofValue(ConsumerRecord<byte[], byte[]> record) throws IOException {
            // Token by token and no further than the number: a tree of the value is never made.
            try (JsonParser parser = JSON.createParser(record.value())) {
                parser.nextToken();
                for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                    JsonToken token = parser.nextToken();
                    if (name.equals("seq") && token == JsonToken.VALUE_NUMBER_INT) {
                        return parser.getLongValue();
                    }
                    parser.skipChildren();
                }
            }
            throw new IllegalArgumentException("a record without an integer at /seq in its value");
        }
    }
}
