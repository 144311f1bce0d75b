package io.antiphon;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.util.Arrays;

/** Cuts what comes from a channel into lines. Each byte is looked at once, whatever pieces it comes in. */
final class Lines {
    static final int MOST_BYTES = 64 << 20;
    private static final int PIECE = 64 << 10;
    private static final int KEPT = 1 << 20;

    /** Another connection would not help. */
    static final class TooLong extends IOException {
        private static final long serialVersionUID = 1;

        private TooLong(String message) {
            super(message);
        }
    }

    private final ReadableByteChannel channel;
    private byte[] bytes = new byte[2 * PIECE];
    private int begin; // of the line
    private int searched;
    private int end; // of what has come

    Lines(ReadableByteChannel channel) {
        this.channel = channel;
    }

    /** The next line without its end; null when nothing more comes. */
    byte[] next() throws IOException {
        while (true) {
            for (; searched < end; searched++) {
                if (bytes[searched] == '\n') {
                    byte[] line = Arrays.copyOfRange(bytes, begin, searched);
                    begin = ++searched;
                    return line;
                }
            }
            if (end - begin > MOST_BYTES) {
                throw new TooLong("the agent sent a line of more than " + MOST_BYTES + " bytes");
            }
            makeRoom();
            int read = channel.read(ByteBuffer.wrap(bytes, end, PIECE));
            if (read < 0) {
                return null;
            }
            end += read;
        }
    }

    private void makeRoom() {
        int held = end - begin;
        if (bytes.length - end >= PIECE) {
            return;
        }
        byte[] into = bytes;
        if (held > bytes.length / 2) {
            into = new byte[2 * bytes.length];
        } else if (held == 0 && bytes.length > KEPT) {
            into = new byte[2 * PIECE];
        }
        System.arraycopy(bytes, begin, into, 0, held);
        bytes = into;
        searched -= begin;
        begin = 0;
        end = held;
    }
}
