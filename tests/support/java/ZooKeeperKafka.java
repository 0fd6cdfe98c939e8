import java.io.File;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Callable;
import kafka.server.KafkaConfig;
import kafka.server.KafkaServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * A ZooKeeper server and two brokers of Kafka 3.9 in ZooKeeper mode, in this JVM: what they leave in ZooKeeper.
 *
 * Kafka's own clients create topics, configs, quotas, users and access rules. Then the second broker stops, so that a
 * deletion and a reassignment stay unfinished. Printed, fields separated by tabs:
 *
 * "fact", name, value: what differs from run to run
 * "node", path, version, "ephemeral" or "persistent", the data in hexadecimal, or "-" for a node that has none
 *
 * The registration of the second broker is printed as it was before the broker stopped. Argument: an empty directory.
 */
public class ZooKeeperKafka {
    private static final String CHROOT = "/kafka";
    private static final List<String> TOPICS = List.of("orders", "plain", "doomed", "moving");

    public static void main(String[] arguments) {
        int status = 1;
        try {
            run(new File(arguments[0]));
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(status); // nothing needs a clean stop: the directory belongs to this run
    }

    private static void run(File directory) throws Exception {
        File data = new File(directory, "zookeeper");
        NIOServerCnxnFactory zooKeeper = new NIOServerCnxnFactory();
        zooKeeper.configure(new InetSocketAddress("127.0.0.1", 0), 60);
        zooKeeper.startup(new ZooKeeperServer(data, data, 500));
        String connect = "127.0.0.1:" + zooKeeper.getLocalPort() + CHROOT;

        KafkaServer first = start(new File(directory, "1"), connect, Map.of("broker.id", "1"));
        String bootstrap = "127.0.0.1:" + first.boundPort(new ListenerName("INTERNAL"));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
             ZooKeeper client = new ZooKeeper(connect, 30_000, event -> { })) {
            fact("cluster id", admin.describeCluster().clusterId().get());
            admin.createTopics(List.of(new NewTopic("plain", Map.of(0, List.of(1))))).all().get();
            claimProducerIds(bootstrap); // with two brokers, either might take the first block
            KafkaServer second = start(new File(directory, "2"), connect, Map.of("broker.rack", "rack-b"));
            until("both brokers are known", () -> admin.describeCluster().nodes().get().size() == 2);
            topics(admin);
            configs(admin);
            quotas(admin);
            users(admin);
            acls(admin);
            print(client, "/brokers/ids/1001");
            second.shutdown();
            second.awaitShutdown();
            until("the first broker leads orders", () -> leaders(admin, "orders").equals(List.of(1, 1, 1)));
            admin.deleteTopics(List.of("doomed")).all().get();
            TopicPartition moving = new TopicPartition("moving", 0);
            NewPartitionReassignment target = new NewPartitionReassignment(List.of(1));
            admin.alterPartitionReassignments(Map.of(moving, Optional.of(target))).all().get();
            until("the deletion waits", () -> client.exists("/admin/delete_topics/doomed", false) != null);
            until("the reassignment waits", () -> text(client, "/brokers/topics/moving").contains("\"adding_replicas\":{\"0\":[1]}")
                && text(client, "/brokers/topics/moving/partitions/0/state").contains("\"leader_epoch\":2"));
            print(client, "/");
        }
    }

    private static KafkaServer start(File directory, String connect, Map<String, String> own) {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", connect);
        settings.put("log.dirs", directory.getPath());
        settings.put("listeners", "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0");
        settings.put("listener.security.protocol.map", "INTERNAL:PLAINTEXT,CLIENT:SASL_PLAINTEXT");
        settings.put("inter.broker.listener.name", "INTERNAL");
        settings.put("sasl.enabled.mechanisms", "SCRAM-SHA-256");
        settings.put("listener.name.client.scram-sha-256.sasl.jaas.config",
            "org.apache.kafka.common.security.scram.ScramLoginModule required;");
        settings.put("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer");
        settings.put("super.users", "User:ANONYMOUS");
        settings.put("log.cleaner.enable", "false");
        settings.put("num.network.threads", "1");
        settings.put("num.io.threads", "2");
        settings.put("num.recovery.threads.per.data.dir", "1");
        settings.putAll(own);
        KafkaServer server = new KafkaServer(KafkaConfig.fromProps(settings), Time.SYSTEM, scala.Option.empty(), false);
        server.startup();
        for (String listener : List.of("CLIENT", "INTERNAL")) {
            fact("port " + server.config().brokerId() + " " + listener, server.boundPort(new ListenerName(listener)));
        }
        return server;
    }

    private static void topics(Admin admin) throws Exception {
        NewTopic orders = new NewTopic("orders", Map.of(0, List.of(1, 1001), 1, List.of(1001, 1), 2, List.of(1, 1001)));
        orders.configs(Map.of("retention.ms", "86400000", "cleanup.policy", "compact,delete", "min.insync.replicas", "2"));
        admin.createTopics(List.of(orders, new NewTopic("doomed", Map.of(0, List.of(1001))),
            new NewTopic("moving", Map.of(0, List.of(1001))))).all().get();
        until("every partition has a leader", () -> TOPICS.stream().noneMatch(topic -> leaders(admin, topic).contains(-1)));
        for (TopicDescription topic : admin.describeTopics(TOPICS).allTopicNames().get().values()) {
            fact("topic id " + topic.name(), topic.topicId());
        }
    }

    private static List<Integer> leaders(Admin admin, String topic) {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().stream()
                .map(partition -> partition.leader() == null ? -1 : partition.leader().id()).toList();
        } catch (Exception notYet) {
            return List.of(-1);
        }
    }

    private static void claimProducerIds(String bootstrap) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", "true");
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            producer.send(new ProducerRecord<>("plain", new byte[1])).get();
        }
    }

    private static void configs(Admin admin) throws Exception {
        alter(admin, ConfigResource.Type.BROKER, "1", Map.of("log.cleaner.threads", "2"));
        alter(admin, ConfigResource.Type.BROKER, "", Map.of("message.max.bytes", "2000000", "log.retention.ms", "3600000"));
        alter(admin, ConfigResource.Type.TOPIC, "plain", Map.of("max.message.bytes", "1000"));
        alter(admin, ConfigResource.Type.TOPIC, "plain", Map.of("max.message.bytes", ""));
    }

    /** An empty value takes the config away. */
    private static void alter(Admin admin, ConfigResource.Type type, String name, Map<String, String> configs) throws Exception {
        List<AlterConfigOp> changes = configs.entrySet().stream().map(config -> new AlterConfigOp(
            new ConfigEntry(config.getKey(), config.getValue()),
            config.getValue().isEmpty() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)).toList();
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, name), changes)).all().get();
    }

    private static void quotas(Admin admin) throws Exception {
        quota(admin, entity("user", "alice"), Map.of("producer_byte_rate", 1048576.0, "request_percentage", 12.5));
        quota(admin, entity("user", null), Map.of("controller_mutation_rate", 0.5));
        quota(admin, entity("client-id", "loader 1/a*~\u00e9"), Map.of("consumer_byte_rate", 2097152.0));
        quota(admin, entity("client-id", null), Map.of("request_percentage", 20000000.0));
        quota(admin, entity("user", "CN=bob,O=a b", "client-id", "loader"), Map.of("producer_byte_rate", 1000.0));
        quota(admin, entity("user", "alice", "client-id", null), Map.of("consumer_byte_rate", 3000.0));
        quota(admin, entity("user", null, "client-id", null), Map.of("request_percentage", 200.0));
        quota(admin, entity("ip", "10.0.0.7"), Map.of("connection_creation_rate", 50.0));
        quota(admin, entity("ip", null), Map.of("connection_creation_rate", 100.0));
    }

    /** Pairs of a type and a name; a null name is the default. */
    private static ClientQuotaEntity entity(String... pairs) {
        Map<String, String> entries = new HashMap<>();
        for (int index = 0; index < pairs.length; index += 2) {
            entries.put(pairs[index], pairs[index + 1]);
        }
        return new ClientQuotaEntity(entries);
    }

    private static void quota(Admin admin, ClientQuotaEntity entity, Map<String, Double> values) throws Exception {
        List<ClientQuotaAlteration.Op> changes = values.entrySet().stream()
            .map(value -> new ClientQuotaAlteration.Op(value.getKey(), value.getValue())).toList();
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, changes))).all().get();
    }

    private static void users(Admin admin) throws Exception {
        scram(admin, "alice", ScramMechanism.SCRAM_SHA_256, 8192);
        scram(admin, "carol", ScramMechanism.SCRAM_SHA_512, 4096);
    }

    private static void scram(Admin admin, String user, ScramMechanism mechanism, int iterations) throws Exception {
        byte[] password = "wonderland".getBytes(StandardCharsets.UTF_8);
        byte[] salt = "always the same".getBytes(StandardCharsets.UTF_8);
        ScramCredentialInfo info = new ScramCredentialInfo(mechanism, iterations);
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, info, password, salt))).all().get();
    }

    private static void acls(Admin admin) throws Exception {
        allow(admin, ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", AclOperation.READ);
        ResourcePattern orders = new ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL);
        admin.createAcls(List.of(new AclBinding(orders, new AccessControlEntry("User:CN=bob,O=a b", "10.0.0.7",
            AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)))).all().get();
        allow(admin, ResourceType.TOPIC, "*", PatternType.LITERAL, "User:*", AclOperation.DESCRIBE);
        allow(admin, ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:alice", AclOperation.IDEMPOTENT_WRITE);
        allow(admin, ResourceType.TRANSACTIONAL_ID, "tx", PatternType.LITERAL, "User:alice", AclOperation.WRITE);
        allow(admin, ResourceType.GROUP, "team-", PatternType.PREFIXED, "User:alice", AclOperation.READ);
        allow(admin, ResourceType.TOPIC, "team-", PatternType.PREFIXED, "User:carol", AclOperation.ALL);
    }

    private static void allow(Admin admin, ResourceType type, String name, PatternType pattern, String principal,
                              AclOperation operation) throws Exception {
        AccessControlEntry rule = new AccessControlEntry(principal, "*", operation, AclPermissionType.ALLOW);
        admin.createAcls(List.of(new AclBinding(new ResourcePattern(type, name, pattern), rule))).all().get();
    }

    private static void until(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not after 30 s: " + what);
            }
            Thread.sleep(20);
        }
    }

    private static void fact(String name, Object value) {
        System.out.println("fact\t" + name + "\t" + value);
    }

    private static String text(ZooKeeper client, String path) throws Exception {
        return new String(client.getData(path, false, null), StandardCharsets.UTF_8);
    }

    private static void print(ZooKeeper client, String path) throws Exception {
        Stat stat = new Stat();
        byte[] data = client.getData(path, false, stat);
        String kind = stat.getEphemeralOwner() == 0 ? "persistent" : "ephemeral";
        String bytes = data == null ? "-" : HexFormat.of().formatHex(data);
        System.out.println("node\t" + path + "\t" + stat.getVersion() + "\t" + kind + "\t" + bytes);
        List<String> names = client.getChildren(path, false);
        names.sort(null);
        for (String name : names) {
            print(client, path.equals("/") ? "/" + name : path + "/" + name);
        }
    }
}
