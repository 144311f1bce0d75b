import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.concurrent.locks.LockSupport;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;

/**
 * A member of a JGroups cluster that sends at fixed times and takes, for messages of others, the time from when they were
 * due until they are delivered. Arguments: the stack and the name. On stdin:
 * {@code pace INTERVAL_NS SIZE WARMUP_S SECONDS OFFSET_NS}; the answer is {@code lat NS} for each message, then {@code end}.
 */
public class OrderLatency implements Receiver {
    private final long[] samples = new long[8 << 20];
    private volatile int sampled;
    private volatile long from, to;
    private JChannel channel;

    public static void main(String[] args) throws Exception {
        new OrderLatency().live(args[0], args[1]);
    }

    private void live(String stack, String name) throws Exception {
        channel = new JChannel(stack).name(name).setReceiver(this);
        channel.connect("latency");
        BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = stdin.readLine()) != null; ) {
            String[] words = line.split(" ");
            if (words[0].equals("pace"))
                pace(Long.parseLong(words[1]), Integer.parseInt(words[2]), Long.parseLong(words[3]), Long.parseLong(words[4]),
                     Long.parseLong(words[5]));
        }
        System.exit(0);
    }

    @Override public void viewAccepted(View view) {
        System.out.println("members " + view.size());
    }

    @Override public void receive(Message message) {
        // nanoTime is the clock that all processes of a Linux host share.
        long now = System.nanoTime();
        long due = ByteBuffer.wrap(message.getArray(), message.getOffset(), 8).getLong();
        if (due >= from && due < to && !message.getSrc().equals(channel.getAddress()))
            take(now - due);
    }

    private synchronized void take(long ns) {
        if (sampled < samples.length)
            samples[sampled++] = ns;
    }

    private void pace(long interval, int size, long warmup, long seconds, long offset) throws Exception {
        sampled = 0;
        long due = System.nanoTime() + offset;
        from = System.nanoTime() + warmup * 1_000_000_000L;
        to = from + seconds * 1_000_000_000L;
        for (long end = to; due < end; due += interval) {
            for (long now; (now = System.nanoTime()) < due; )
                LockSupport.parkNanos(due - now);
            byte[] payload = new byte[Math.max(size, 8)];
            ByteBuffer.wrap(payload).putLong(due);
            channel.send(new BytesMessage(null, payload));
        }
        Thread.sleep(1000);
        to = 0;
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < sampled; i++)
            out.append("lat ").append(samples[i]).append('\n');
        System.out.print(out);
        System.out.println("end");
    }
}
