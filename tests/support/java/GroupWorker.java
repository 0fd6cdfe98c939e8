import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer of a group on Kafka's own Java client, with the same events as group_worker.py.
 *
 * Arguments: bootstrap, group, topic, the assignor's class, session timeout in milliseconds, client id.
 */
public class GroupWorker {
    public static void main(String[] arguments) throws Exception {
        int sessionTimeoutMs = Integer.parseInt(arguments[4]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("partition.assignment.strategy", arguments[3]);
        settings.put("session.timeout.ms", sessionTimeoutMs);
        settings.put("heartbeat.interval.ms", Math.min(sessionTimeoutMs / 5, 300));
        settings.put("client.id", arguments[5]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.metrics.push", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                closed.await();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(arguments[2]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                tellPartitions("assigned", partitions);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                tellPartitions("revoked", partitions);
            }
        });
        try {
            while (true) {
                poll(consumer);
            }
        } catch (WakeupException stopped) {
            consumer.close();
            tell("closed", "");
        } finally {
            closed.countDown();
        }
    }

    private static void poll(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        for (ConsumerRecord<byte[], byte[]> record : records) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            tell("record", String.format(
                "\"partition\": %d, \"offset\": %d, \"value\": \"%s\", ", record.partition(), record.offset(), value));
        }
        if (records.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync();
            tell("committed", "");
        } catch (CommitFailedException | RebalanceInProgressException refused) {
            tell("refused", "\"why\": \"" + refused.getClass().getSimpleName() + "\", ");
        }
    }

    private static void tellPartitions(String event, Collection<TopicPartition> partitions) {
        String numbers = partitions.stream().map(one -> String.valueOf(one.partition())).collect(Collectors.joining(", "));
        tell(event, "\"partitions\": [" + numbers + "], ");
    }

    private static synchronized void tell(String event, String facts) {
        long now = System.nanoTime();
        System.out.printf(
            "{\"event\": \"%s\", %s\"at\": %d.%09d}%n", event, facts, now / 1_000_000_000, now % 1_000_000_000);
        System.out.flush();
    }
}
