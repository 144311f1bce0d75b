import java.net.InetAddress;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.jgroups.Address;
import org.jgroups.JChannel;
import org.jgroups.Receiver;
import org.jgroups.View;
import org.jgroups.protocols.FD_SOCK2;
import org.jgroups.protocols.TCP;

/**
 * Members of a JGroups cluster.
 * <pre>
 * Members member STACK NAME      one member; prints "members NAME NAME …" with each view, until it is killed
 * Members swarm STACK N JOINS    N members at once in this process, on loopback by TCP: prints "formed MS SIZES", for each of
 *                                JOINS further members "join OWN_MS EVERYWHERE_MS", and "left MS"
 * </pre>
 * Times count until each member reports all: from when all others connect at once beside a first, with their stacks made before.
 * (When the first connects with them, two seconds more are spent in its wait for an answer.) SIZES are the different numbers of
 * members that any reported on the way.
 */
public class Members {
    private static final int PORT = 7800;
    /** Of the failure detector's sockets, from those of the transport: beyond all members. */
    private static final int OFFSET = 2000;
    private static final long PATIENCE_NS = 180_000_000_000L;

    private final String stack;
    private final List<Integer> now = new ArrayList<>();
    private final Set<Integer> sizes = new LinkedHashSet<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private Members(String stack) {
        this.stack = stack;
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("member"))
            member(args[1], args[2]);
        else
            new Members(args[1]).swarm(Integer.parseInt(args[2]), Integer.parseInt(args[3]));
    }

    /** What a member is called may become known a while after it is seen: what is printed is printed again when it is called otherwise. */
    private static void member(String stack, String name) throws Exception {
        JChannel channel = new JChannel(stack).name(name);
        Printer printer = new Printer();
        channel.setReceiver(new Receiver() {
            @Override public void viewAccepted(View view) {
                printer.print(channel);
            }
        });
        channel.connect("members");
        while (true) {
            Thread.sleep(100);
            printer.print(channel);
        }
    }

    private static class Printer {
        private String last = "";

        synchronized void print(JChannel channel) {
            StringBuilder names = new StringBuilder("members");
            for (Address member : channel.getView().getMembers())
                names.append(' ').append(member);
            if (!names.toString().equals(last)) {
                last = names.toString();
                System.out.println(last);
            }
        }
    }

    private void swarm(int count, int joins) throws Exception {
        List<JChannel> channels = new ArrayList<>();
        for (int index = 0; index < count; index++)
            channels.add(channel(index));
        channels.get(0).connect("members");
        long begun = System.nanoTime();
        List<Future<?>> connecting = new ArrayList<>();
        for (JChannel channel : channels.subList(1, count))
            connecting.add(threads.submit(() -> channel.connect("members")));
        for (Future<?> future : connecting)
            future.get();
        waitFor(count);
        StringBuilder formed = new StringBuilder("formed " + since(begun));
        synchronized (now) {
            for (int size : sizes)
                formed.append(' ').append(size);
        }
        System.out.println(formed);
        for (int run = 0; run < joins; run++) {
            Thread.sleep(200);
            JChannel joiner = channel(count);
            begun = System.nanoTime();
            joiner.connect("members");
            double own = since(begun);
            waitFor(count + 1);
            System.out.println("join " + own + " " + since(begun));
            joiner.close();
            synchronized (now) {
                now.remove(count);
            }
            waitFor(count);
        }
        begun = System.nanoTime();
        List<Future<?>> leaving = new ArrayList<>();
        for (JChannel channel : channels)
            leaving.add(threads.submit(channel::close));
        for (Future<?> future : leaving)
            future.get();
        System.out.println("left " + since(begun));
        System.exit(0);
    }

    /** A member that is not connected yet. */
    private JChannel channel(int index) throws Exception {
        JChannel channel = new JChannel(stack).name("n" + index);
        TCP tcp = channel.getProtocolStack().findProtocol(TCP.class);
        tcp.setBindAddress(InetAddress.getLoopbackAddress());
        tcp.setBindPort(PORT + index);
        FD_SOCK2 sockets = channel.getProtocolStack().findProtocol(FD_SOCK2.class);
        sockets.setOffset(OFFSET);
        synchronized (now) {
            now.add(0);
        }
        channel.setReceiver(new Receiver() {
            @Override public void viewAccepted(View view) {
                synchronized (now) {
                    if (index < now.size())
                        now.set(index, view.size());
                    sizes.add(view.size());
                    now.notifyAll();
                }
            }
        });
        return channel;
    }

    /** Until all report this many members. */
    private void waitFor(int members) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_NS;
        synchronized (now) {
            while (!now.stream().allMatch(size -> size == members)) {
                long left = (deadline - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    System.out.println("failed did not have all report " + members + " within " + PATIENCE_NS / 1_000_000_000 + " s: " + now);
                    System.exit(1);
                }
                now.wait(left);
            }
        }
    }

    private static double since(long begun) {
        return Math.round((System.nanoTime() - begun) / 1e4) / 100.0;
    }
}
