// Writes the records of records.tsv to a topic's partition 0 with Kafka's own Java client; or, as a consumer,
// prints a partition's records in the same form. Run by generate.py and by tests/broker/contract/test_foreign_clients.py:
//
//     java -cp <jars> Produce.java produce BOOTSTRAP TOPIC CODEC records.tsv
//     java -cp <jars> Produce.java consume BOOTSTRAP TOPIC COUNT

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Produce {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("produce")) {
            produce(args[1], args[2], args[3], Path.of(args[4]));
        } else {
            consume(args[1], args[2], Integer.parseInt(args[3]));
        }
    }

    private static void produce(String bootstrap, String topic, String codec, Path records) throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap,
            "compression.type", codec,
            "linger.ms", 60_000, // a batch ends where the file says flush
            "batch.size", 1_000_000);
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<byte[], byte[]>(config, bytes, bytes)) {
            for (String line : Files.readAllLines(records)) {
                if (line.equals("flush")) {
                    producer.flush();
                } else if (!line.startsWith("#")) {
                    producer.send(record(topic, line.split("\t", -1)));
                }
            }
            producer.flush();
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String[] fields) {
        List<Header> headers = new ArrayList<>();
        for (int i = 3; i < fields.length; i++) {
            String[] parts = fields[i].split("=", -1);
            String name = new String(HexFormat.of().parseHex(parts[0]), StandardCharsets.UTF_8);
            headers.add(new RecordHeader(name, bytes(parts[1])));
        }
        return new ProducerRecord<>(topic, 0, Long.parseLong(fields[0]), bytes(fields[1]), bytes(fields[2]), headers);
    }

    // "-" is null, otherwise hexadecimal bytes, "*N" after them for N times as many.
    private static byte[] bytes(String field) {
        if (field.equals("-")) {
            return null;
        }
        String[] parts = field.split("\\*", -1);
        return HexFormat.of().parseHex(parts.length == 1 ? parts[0] : parts[0].repeat(Integer.parseInt(parts[1])));
    }

    private static void consume(String bootstrap, String topic, int count) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap,
            "isolation.level", "read_committed",
            "check.crcs", true);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(config, bytes, bytes)) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + Duration.ofSeconds(240).toNanos();
            for (int left = count; left > 0 && System.nanoTime() < deadline; ) {
                for (var found : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(line(found));
                    left--;
                }
            }
        }
    }

    private static String line(ConsumerRecord<byte[], byte[]> found) {
        var fields = new StringJoiner("\t");
        fields.add(Long.toString(found.timestamp())).add(hex(found.key())).add(hex(found.value()));
        for (Header header : found.headers()) {
            fields.add(hex(header.key().getBytes(StandardCharsets.UTF_8)) + "=" + hex(header.value()));
        }
        return fields.toString();
    }

    private static String hex(byte[] content) {
        return content == null ? "-" : HexFormat.of().formatHex(content);
    }
}
