import com.hazelcast.config.Config;
import com.hazelcast.config.JoinConfig;
import com.hazelcast.core.EntryEvent;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.MapEvent;
import com.hazelcast.replicatedmap.ReplicatedMap;
import com.hazelcast.core.EntryListener;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import org.jgroups.Address;
import org.jgroups.JChannel;
import org.jgroups.View;
import org.jgroups.blocks.ReplicatedHashMap;

/**
 * A member of a replicated map of JGroups or Hazelcast.
 * <pre>
 * Maps jgroups STACK NAME         ReplicatedHashMap; puts do not wait for the other members
 * Maps jgroups-blocking STACK NAME   they do
 * Maps hazelcast ADDRS NAME       ReplicatedMap
 * </pre>
 * Prints "members N" with each view. A line "put WRITERS BYTES KEYS WARMUP_S MEASURED_S" has it write with so many threads; then
 * it prints "done" and a JSON object: "rate" (its own puts per second that came back), "applied" (entries of all members that this
 * one applied per second). A thread that cannot go on prints "failed" and why: the rates are those of the others.
 * "get KEYS BYTES GETS" gives "ns" for a read of its own copy.
 */
public class Maps {
    /** Reads of a round. */
    private static final long ROUND = 1000;
    private static final LongAdder applied = new LongAdder();
    private static Map<Long, byte[]> map;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "hazelcast" -> hazelcast(args[1], args[2]);
            case "jgroups" -> jgroups(args[1], args[2], false);
            default -> jgroups(args[1], args[2], true);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("put"))
                put(Integer.parseInt(words[1]), Integer.parseInt(words[2]), Long.parseLong(words[3]), Integer.parseInt(words[4]),
                    Integer.parseInt(words[5]));
            else
                get(Long.parseLong(words[1]), Integer.parseInt(words[2]), Long.parseLong(words[3]));
        }
        System.exit(0);
    }

    private static void jgroups(String stack, String name, boolean blocking) throws Exception {
        JChannel channel = new JChannel(stack).name(name);
        ReplicatedHashMap<Long, byte[]> replicated = new ReplicatedHashMap<>(channel);
        replicated.setBlockingUpdates(blocking);
        replicated.addNotifier(new ReplicatedHashMap.Notification<Long, byte[]>() {
            @Override public void entrySet(Long key, byte[] value) {
                applied.increment();
            }
            @Override public void entryRemoved(Long key) {}
            @Override public void viewChange(View view, List<Address> joined, List<Address> left) {
                members(view.size());
            }
            @Override public void contentsSet(Map<Long, byte[]> entries) {}
            @Override public void contentsCleared() {}
        });
        channel.connect("maps");
        replicated.start(10_000);
        map = replicated;
        members(channel.getView().size());
    }

    private static void hazelcast(String addrs, String name) {
        Config config = new Config(name);
        config.setProperty("hazelcast.phone.home.enabled", "false");
        config.setProperty("hazelcast.logging.type", "none");
        String here = System.getProperty("jgroups.bind_addr");
        config.getNetworkConfig().setPort(5701).setPortAutoIncrement(false).setPublicAddress(here);
        config.getNetworkConfig().getInterfaces().setEnabled(true).addInterface(here);
        JoinConfig join = config.getNetworkConfig().getJoin();
        join.getMulticastConfig().setEnabled(false);
        join.getAutoDetectionConfig().setEnabled(false);
        join.getTcpIpConfig().setEnabled(true).setMembers(Arrays.asList(addrs.split(",")));
        HazelcastInstance member = Hazelcast.newHazelcastInstance(config);
        ReplicatedMap<Long, byte[]> replicated = member.getReplicatedMap("maps");
        replicated.addEntryListener(new EntryListener<Long, byte[]>() {
            @Override public void entryAdded(EntryEvent<Long, byte[]> event) {
                applied.increment();
            }
            @Override public void entryUpdated(EntryEvent<Long, byte[]> event) {
                applied.increment();
            }
            @Override public void entryRemoved(EntryEvent<Long, byte[]> event) {}
            @Override public void entryEvicted(EntryEvent<Long, byte[]> event) {}
            @Override public void entryExpired(EntryEvent<Long, byte[]> event) {}
            @Override public void mapCleared(MapEvent event) {}
            @Override public void mapEvicted(MapEvent event) {}
        });
        map = replicated;
        new Thread(() -> {
            int seen = 0;
            while (true) {
                Collection<?> members = member.getCluster().getMembers();
                if (members.size() != seen) members(seen = members.size());
                try { Thread.sleep(50); } catch (InterruptedException e) { return; }
            }
        }).start();
    }

    private static synchronized void members(int count) {
        System.out.println("members " + count);
    }

    private static void put(int writers, int bytes, long keys, int warmup, int measured) throws Exception {
        LongAdder own = new LongAdder();
        boolean[] over = {false};
        Thread[] threads = new Thread[writers];
        for (int i = 0; i < writers; i++) {
            final int number = i;
            threads[i] = new Thread(() -> {
                long count = 0;
                while (!over[0]) {
                    try {
                        map.put((number + count++ * writers) % keys, new byte[bytes]);
                    } catch (RuntimeException e) {
                        if (!over[0]) System.out.println("failed " + e);
                        return;
                    }
                    own.increment();
                }
            });
            threads[i].start();
        }
        Thread.sleep(1000L * warmup);
        long ownBefore = own.sum(), appliedBefore = applied.sum(), from = System.nanoTime();
        Thread.sleep(1000L * measured);
        double seconds = (System.nanoTime() - from) / 1e9;
        long ownAfter = own.sum(), appliedAfter = applied.sum();
        over[0] = true;
        for (Thread thread : threads) thread.join(10_000);
        System.out.printf("done {\"rate\":%.1f,\"applied\":%.1f}%n", (ownAfter - ownBefore) / seconds, (appliedAfter - appliedBefore) / seconds);
    }

    private static void get(long keys, int bytes, long gets) {
        for (long key = 0; key < keys; key++) map.putIfAbsent(key, new byte[bytes]);
        long read = 0;
        // The median of short rounds, as ours: a long one tells how often the process had to stand back. The first half warms up.
        double[] rounds = new double[(int) (gets / ROUND)];
        for (int round = -rounds.length; round < rounds.length; round++) {
            long from = System.nanoTime();
            for (long count = 0; count < ROUND; count++) {
                byte[] value = map.get((Math.abs(round) * ROUND + count) % keys);
                if (value != null) read += value.length;
            }
            if (round >= 0) rounds[round] = (System.nanoTime() - from) / (double) ROUND;
        }
        Arrays.sort(rounds);
        System.out.printf("done {\"ns\":%.1f,\"read\":%d}%n", rounds[rounds.length / 2], read);
    }
}
