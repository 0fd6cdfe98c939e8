import java.io.ByteArrayOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs several of Kafka's command-line tools in one JVM, because starting one costs more than most tools do.
 *
 * Each line of standard input is a main class and its arguments, separated by tabs. What a tool printed, on either
 * stream, goes to standard output and ends with a record separator (0x1e). A tool that throws, or exits with a
 * status other than 0, says so in its last line and does not keep the next from running.
 *
 * Each tool has a thread. One that exits must not go on, and must not be thrown at either, because some tools catch
 * everything: its thread is left standing.
 */
public class RunTools {
    private static final char RECORD_SEPARATOR = 0x1e;

    private static volatile CompletableFuture<Integer> ended = new CompletableFuture<>();

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            ended.complete(status);
            while (true) {
                LockSupport.park();
            }
        });
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            output.print(run(words[0], Arrays.copyOfRange(words, 1, words.length)));
            output.print(RECORD_SEPARATOR);
        }
        output.flush();
        System.exit(0); // some tools leave threads behind
    }

    private static String run(String mainClass, String[] arguments) throws Exception {
        ByteArrayOutputStream captured = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(captured, true, StandardCharsets.UTF_8);
        PrintStream standardOutput = System.out;
        PrintStream standardError = System.err;
        System.setOut(stream);
        System.setErr(stream);
        CompletableFuture<Integer> status = ended = new CompletableFuture<>();
        Thread tool = new Thread(() -> {
            try {
                Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
                status.complete(0);
            } catch (InvocationTargetException failure) {
                failure.getCause().printStackTrace(stream);
                status.complete(1);
            } catch (ReflectiveOperationException failure) {
                failure.printStackTrace(stream);
                status.complete(1);
            }
        });
        tool.start();
        try {
            if (status.get() != 0) {
                stream.println("exit status " + status.get());
            }
        } finally {
            System.setOut(standardOutput);
            System.setErr(standardError);
        }
        return captured.toString(StandardCharsets.UTF_8);
    }
}
