import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.cluster.EndPoint;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.zk.BrokerIdZNode;
import kafka.zk.BrokerInfo;
import kafka.zk.ClusterIdZNode;
import kafka.zk.ConfigEntityZNode;
import kafka.zk.ControllerEpochZNode;
import kafka.zk.ControllerZNode;
import kafka.zk.DeleteTopicsTopicZNode;
import kafka.zk.ExtendedAclChangeStore;
import kafka.zk.LiteralAclChangeStore;
import kafka.zk.ProducerIdBlockZNode;
import kafka.zk.ResourceZNode;
import kafka.zk.TopicPartitionStateZNode;
import kafka.zk.TopicZNode;
import kafka.zk.ZKControllerRegistration;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.internals.ScramCredentialUtils;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.server.common.ProducerIdsBlock;
import org.apache.zookeeper.data.Stat;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Decodes nodes with the classes of Kafka 3.9 that read them from ZooKeeper.
 *
 * Each line of standard input is a path and the data in hexadecimal, separated by a tab. The answer to each is a line of
 * JSON: what Kafka understood, with "path", where Kafka would look for it. A node that Kafka refuses has "error" instead.
 */
public class ZooKeeperNodes {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", 2);
            Map<String, Object> understood = new LinkedHashMap<>();
            try {
                understood.put("path", decode(fields[0].split("/"), HexFormat.of().parseHex(fields[1]), understood));
            } catch (Exception refused) {
                understood.put("error", refused.toString());
            }
            output.println(json.writeValueAsString(understood));
        }
    }

    private static String decode(String[] parts, byte[] data, Map<String, Object> understood) throws Exception {
        switch (parts[1]) {
            case "brokers":
                return parts[2].equals("ids") ? broker(Integer.parseInt(parts[3]), data, understood)
                    : parts.length == 4 ? topic(parts[3], data, understood)
                    : state(new TopicPartition(parts[3], Integer.parseInt(parts[5])), data, understood);
            case "controller":
                ZKControllerRegistration controller = ControllerZNode.decodeController(data, 0);
                understood.put("broker", controller.broker());
                understood.put("kraft epoch", controller.kraftEpoch().get());
                return ControllerZNode.path();
            case "controller_epoch":
                understood.put("epoch", ControllerEpochZNode.decode(data));
                return ControllerEpochZNode.path();
            case "cluster":
                understood.put("id", ClusterIdZNode.fromJson(data));
                return ClusterIdZNode.path();
            case "latest_producer_id_block":
                ProducerIdsBlock block = ProducerIdBlockZNode.parseProducerIdBlockData(data);
                understood.put("broker", block.assignedBrokerId());
                understood.put("first", block.firstProducerId());
                understood.put("last", block.lastProducerId());
                return ProducerIdBlockZNode.path();
            case "config":
                return config(parts, data, understood);
            case "admin":
                return DeleteTopicsTopicZNode.path(parts[3]);
            case "kafka-acl":
                return acls(new ResourcePattern(SecurityUtils.resourceType(parts[2]), parts[3], PatternType.LITERAL), data, understood);
            case "kafka-acl-extended":
                return acls(new ResourcePattern(SecurityUtils.resourceType(parts[3]), parts[4], PatternType.fromString(parts[2].toUpperCase(Locale.ROOT))), data, understood);
            case "kafka-acl-changes":
                understood.put("resource", ResourceZNode.path(LiteralAclChangeStore.decode(data)));
                return LiteralAclChangeStore.createPath() + parts[2].substring("acl_changes_".length());
            case "kafka-acl-extended-changes":
                understood.put("resource", ResourceZNode.path(ExtendedAclChangeStore.decode(data)));
                return ExtendedAclChangeStore.createPath() + parts[2].substring("acl_changes_".length());
            default:
                throw new IllegalArgumentException("no node of Kafka's: " + String.join("/", parts));
        }
    }

    private static String broker(int id, byte[] data, Map<String, Object> understood) {
        BrokerInfo info = BrokerIdZNode.decode(id, data);
        understood.put("id", info.broker().id());
        understood.put("version", info.version());
        understood.put("jmx port", info.jmxPort());
        understood.put("rack", info.broker().rack().isEmpty() ? null : info.broker().rack().get());
        List<List<Object>> endpoints = new ArrayList<>();
        for (EndPoint endpoint : CollectionConverters.asJava(info.broker().endPoints())) {
            endpoints.add(List.of(endpoint.listenerName().value(), endpoint.securityProtocol().name, endpoint.host(), endpoint.port()));
        }
        understood.put("endpoints", endpoints);
        Map<String, List<Short>> features = new TreeMap<>();
        info.broker().features().features().forEach((name, range) -> features.put(name, List.of(range.min(), range.max())));
        understood.put("features", features);
        return BrokerIdZNode.path(id);
    }

    private static String topic(String name, byte[] data, Map<String, Object> understood) {
        TopicZNode.TopicIdReplicaAssignment topic = TopicZNode.decode(name, data);
        understood.put("topic id", topic.topicId().get().toString());
        Map<String, Object> partitions = new TreeMap<>();
        CollectionConverters.asJava(topic.assignment()).forEach((partition, replicas) -> partitions.put(
            String.valueOf(partition.partition()), List.of(CollectionConverters.asJava(replicas.replicas()),
                CollectionConverters.asJava(replicas.addingReplicas()), CollectionConverters.asJava(replicas.removingReplicas()))));
        understood.put("partitions", partitions);
        return TopicZNode.path(name);
    }

    private static String state(TopicPartition partition, byte[] data, Map<String, Object> understood) {
        LeaderIsrAndControllerEpoch state = TopicPartitionStateZNode.decode(data, new Stat()).get();
        understood.put("leader", state.leaderAndIsr().leader());
        understood.put("leader epoch", state.leaderAndIsr().leaderEpoch());
        understood.put("isr", CollectionConverters.asJava(state.leaderAndIsr().isr()));
        understood.put("recovery", state.leaderAndIsr().leaderRecoveryState().name());
        understood.put("controller epoch", state.controllerEpoch());
        return TopicPartitionStateZNode.path(partition);
    }

    private static String config(String[] parts, byte[] data, Map<String, Object> understood) {
        Properties configs = ConfigEntityZNode.decode(data);
        Map<String, Object> values = new TreeMap<>();
        for (String name : configs.stringPropertyNames()) {
            values.put(name, configs.getProperty(name));
            if (name.startsWith("SCRAM-")) {
                ScramCredential credential = ScramCredentialUtils.credentialFromString(configs.getProperty(name));
                HexFormat hexadecimal = HexFormat.of();
                values.put(name, List.of(hexadecimal.formatHex(credential.salt()), hexadecimal.formatHex(credential.storedKey()),
                    hexadecimal.formatHex(credential.serverKey()), credential.iterations()));
            }
        }
        understood.put("configs", values);
        List<String> names = new ArrayList<>();
        for (int index = 3; index < parts.length; index += 2) {
            names.add(parts[index].equals("<default>") ? null : Sanitizer.desanitize(parts[index]));
        }
        understood.put("names", names);
        String entity = String.join("/", List.of(parts).subList(3, parts.length));
        return ConfigEntityZNode.path(parts[2], entity);
    }

    private static String acls(ResourcePattern resource, byte[] data, Map<String, Object> understood) throws Exception {
        understood.put("resource", List.of(resource.resourceType().name(), resource.name(), resource.patternType().name()));
        List<List<String>> rules = new ArrayList<>();
        CollectionConverters.asJava(ResourceZNode.decode(data, new Stat()).acls()).forEach(rule -> rules.add(
            List.of(rule.principal(), rule.operation().name(), rule.permissionType().name(), rule.host())));
        rules.sort((one, other) -> one.toString().compareTo(other.toString()));
        understood.put("rules", rules);
        return ResourceZNode.path(resource);
    }
}
