import java.io.DataInputStream;
import java.io.InputStream;
import java.io.OutputStream;
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
                // As ours it keeps what it got.
                byte[][] kept = new byte[2048][];
                DataInputStream data = new DataInputStream(in);
                for (int at = 0; at < kept.length; at++) {
                    byte[] part = data.readNBytes(1 << 20);
                    if (part.length == 0) break;
                    kept[at] = part;
                    got[0] += part.length;
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
