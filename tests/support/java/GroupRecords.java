import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;

/** Prints records of __consumer_offsets as Kafka's own classes write them: a name, a tab, and the bytes in hexadecimal. */
public class GroupRecords {
    private static void print(String name, ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        System.out.println(name + "\t" + HexFormat.of().formatHex(bytes));
    }

    private static void key(String name, ApiMessage message) {
        print(name, MessageUtil.toCoordinatorTypePrefixedByteBuffer(message));
    }

    private static void value(String name, Message message, int version) {
        print(name, MessageUtil.toVersionPrefixedByteBuffer((short) version, message));
    }

    private static OffsetCommitValue offset(int leaderEpoch, String metadata, Uuid topicId) {
        return new OffsetCommitValue().setOffset(1234567890123L).setLeaderEpoch(leaderEpoch).setMetadata(metadata)
            .setCommitTimestamp(1700000000000L).setTopicId(topicId);
    }

    public static void main(String[] arguments) {
        Uuid topicId = Uuid.fromString(arguments[0]);
        key("offset key", new OffsetCommitKey().setGroup("gr\u00fcppe").setTopic("orders").setPartition(7));
        key("group key", new GroupMetadataKey().setGroup("gr\u00fcppe"));
        value("offset 0", offset(-1, "m\u00e4ta", Uuid.ZERO_UUID), 0);
        value("offset 1", new OffsetCommitValue().setOffset(9).setMetadata("").setCommitTimestamp(11).setExpireTimestamp(12), 1);
        value("offset 2", offset(-1, "m\u00e4ta", Uuid.ZERO_UUID), 2);
        value("offset 3", offset(5, "m\u00e4ta", Uuid.ZERO_UUID), 3);
        value("offset 4", offset(5, "m\u00e4ta", topicId), 4);
        value("offset 4, no metadata", offset(5, "", topicId), 4);
        value("offset 4, no topic id", offset(5, "m\u00e4ta", Uuid.ZERO_UUID), 4);
        value("offset 4, neither", offset(5, "", Uuid.ZERO_UUID), 4);
        for (int version = 0; version <= 4; version++) {
            GroupMetadataValue.MemberMetadata member = new GroupMetadataValue.MemberMetadata().setMemberId("m-1")
                .setClientId("client").setClientHost("/127.0.0.1").setSessionTimeout(45000)
                .setRebalanceTimeout(300000).setGroupInstanceId("inst")
                .setSubscription(new byte[] {1, 2}).setAssignment(new byte[] {3, 4, 5});
            value("group " + version, new GroupMetadataValue().setProtocolType("consumer").setGeneration(3)
                .setProtocol("range").setLeader("m-1").setCurrentStateTimestamp(1700000000001L)
                .setMembers(List.of(member)), version);
            value("empty group " + version, new GroupMetadataValue().setProtocolType("").setGeneration(0)
                .setProtocol(null).setLeader(null).setMembers(List.of()), version);
        }
    }
}
