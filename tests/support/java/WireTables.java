import java.util.Locale;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/**
 * Prints what Kafka's own tables say of the protocol, fields separated by tabs.
 *
 * "error", name, number, retriable
 * "api", key, name, oldest and newest stable version, then for each of these versions the pair of header versions
 */
public class WireTables {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof org.apache.kafka.common.errors.RetriableException;
            System.out.printf(Locale.ROOT, "error\t%s\t%d\t%b%n", error.name(), error.code(), retriable);
        }
        for (ApiKeys api : ApiKeys.values()) {
            if (!api.messageType.listeners().contains(ApiMessageType.ListenerType.BROKER)) {
                continue;
            }
            short newest = api.latestVersion(false);
            StringBuilder row = new StringBuilder();
            row.append("api\t").append(api.id).append('\t').append(api.name).append('\t');
            row.append(api.oldestVersion()).append('\t').append(newest);
            for (short version = api.oldestVersion(); version <= newest; version++) {
                row.append('\t').append(api.requestHeaderVersion(version));
                row.append(',').append(api.responseHeaderVersion(version));
            }
            System.out.println(row);
        }
    }
}
