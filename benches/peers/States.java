import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import org.jgroups.JChannel;
import org.jgroups.Receiver;
import org.jgroups.View;

/**
 * States STACK NAME BYTES: a member of JGroups with a state of so many bytes; with 0, one that takes the state of the others and
 * prints "done" and a JSON object with "bytes" and "seconds".
 */
public class States {
    public static void main(String[] args) throws Exception {
        long bytes = Long.parseLong(args[2]);
        byte[][] state = new byte[Math.toIntExact(bytes >> 20)][1 << 20];
        long[] got = {0};
        JChannel channel = new JChannel(args[0]).name(args[1]);
        channel.setReceiver(new Receiver() {
            @Override public void viewAccepted(View view) {
                System.out.println("members " + view.size());
            }
            @Override public void getState(OutputStream out) throws Exception {
                for (byte[] part : state) out.write(part);
            }
            @Override public void setState(InputStream in) throws Exception {
                // As ours it keeps what it got. A read may give less than it was asked for.
                ArrayList<byte[]> kept = new ArrayList<>();
                byte[] part = new byte[1 << 20];
                int filled = 0;
                for (int read; (read = in.read(part, filled, part.length - filled)) > 0; got[0] += read) {
                    filled += read;
                    if (filled == part.length) {
                        kept.add(part);
                        part = new byte[1 << 20];
                        filled = 0;
                    }
                }
            }
        });
        channel.connect("states");
        if (bytes == 0) {
            long from = System.nanoTime();
            channel.getState(null, 120_000);
            System.out.printf("done {\"bytes\":%d,\"seconds\":%.4f}%n", got[0], (System.nanoTime() - from) / 1e9);
        }
        Thread.sleep(300_000);
        System.exit(0);
    }
}
