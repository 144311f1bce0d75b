import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.atomic.LongAdder;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * CuratorLocks CONNECT NAME: takes and gives back locks of ZooKeeper. Prints "connected". A line "CLIENTS one|own WARMUP_S
 * MEASURED_S" has so many threads do it, with one lock for all or each with its own; then it prints "done" and a JSON object with
 * "rate", per second. A thread that cannot go on prints "failed" and why: the rate is that of the others.
 */
public class CuratorLocks {
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(200, 20));
        client.start();
        client.blockUntilConnected();
        System.out.println("connected");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            run(client, args[1], Integer.parseInt(words[0]), words[1].equals("one"), Integer.parseInt(words[2]), Integer.parseInt(words[3]));
        }
        System.exit(0);
    }

    private static void run(CuratorFramework client, String name, int clients, boolean one, int warmup, int measured) throws Exception {
        LongAdder taken = new LongAdder();
        boolean[] over = {false};
        for (int i = 0; i < clients; i++) {
            String path = "/locks/" + (one ? "one" : name + "-" + i);
            Thread thread = new Thread(() -> {
                InterProcessMutex lock = new InterProcessMutex(client, path);
                while (!over[0]) {
                    try {
                        lock.acquire();
                        lock.release();
                        taken.increment();
                    } catch (Exception e) {
                        if (!over[0]) System.out.println("failed " + e);
                        return;
                    }
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        Thread.sleep(1000L * warmup);
        long before = taken.sum(), from = System.nanoTime();
        Thread.sleep(1000L * measured);
        double rate = (taken.sum() - before) * 1e9 / (System.nanoTime() - from);
        over[0] = true;
        System.out.printf("done {\"rate\":%.1f}%n", rate);
    }
}
