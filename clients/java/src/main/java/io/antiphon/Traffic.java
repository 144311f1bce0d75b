package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayDeque;
import java.util.HashSet;
import java.util.Set;

/**
 * What goes out, and how far each end has taken what the other said. All under the lock of the connection.
 *
 * <pre>
 * add ─► queue ─► drain ─┬─► the agent
 *          ▲             └─► kept, if the client may come back ─► letGo: the agent took it
 *          └──── resume ──────┘
 * </pre>
 */
final class Traffic {
    private static final int MOST_BYTES = 1 << 20; // then those that send wait
    private static final int TELL_LINES = 256; // of the agent, after which it is told that they were taken
    private static final int TELL_BYTES = 64 << 10;
    private static final int FIRST_LINES = 1; // hello, and the reply to it

    private final boolean keeps;
    private final ArrayDeque<byte[]> queue = new ArrayDeque<>();
    private final ArrayDeque<byte[]> kept = new ArrayDeque<>();
    private int queued; // bytes
    private int keeping;
    private long given; // lines before those that are kept

    private long taken; // lines of the agent
    private int untold; // of those, since it was told
    private int untoldBytes;
    private boolean owesTook;

    /** @param keeps what is written is kept until the agent has taken it */
    Traffic(boolean keeps) {
        this.keeps = keeps;
    }

    void add(byte[] line) {
        queue.add(line);
        queued += line.length;
    }

    /** The agent counts on it: it may stop reading beyond so much that it has not confirmed. */
    boolean isFull() {
        return queued + keeping >= MOST_BYTES;
    }

    boolean isDue() {
        return queued > 0 || owesTook;
    }

    /** All that is to be written. */
    byte[] drain() {
        byte[] took = owesTook ? ("{\"took\":{\"lines\":" + tell() + "}}\n").getBytes(UTF_8) : new byte[0];
        byte[] lines = new byte[queued + took.length];
        int at = 0;
        for (byte[] line : queue) {
            System.arraycopy(line, 0, lines, at, line.length);
            at += line.length;
        }
        System.arraycopy(took, 0, lines, at, took.length);
        if (keeps) {
            kept.addAll(queue);
            keeping += queued;
        }
        queue.clear();
        queued = 0;
        return lines;
    }

    /** A line of the agent was taken. Whether it is time to tell that. */
    boolean count(int bytes) {
        if (keeps) {
            taken++;
            untold++;
            untoldBytes += bytes;
            owesTook = untold >= TELL_LINES || untoldBytes >= TELL_BYTES;
        }
        return owesTook;
    }

    /** How many lines the agent is told now that were taken. */
    long tell() {
        untold = 0;
        untoldBytes = 0;
        owesTook = false;
        return taken;
    }

    /** The agent has taken so many lines in all. */
    void letGo(long lines) {
        while (given < lines && !kept.isEmpty()) {
            keeping -= kept.remove().length;
            given++;
        }
    }

    /** By another connection, on which those behind so many lines come again. */
    void resume(long lines) {
        letGo(lines);
        if (given != lines) {
            throw new IllegalStateException("the agent says that it took " + lines + " lines, and this client knows of "
                    + given);
        }
        while (!kept.isEmpty()) {
            queue.addFirst(kept.removeLast());
        }
        queued += keeping;
        keeping = 0;
    }

    /** By another connection, as a new client. The lines that were not even written are given back. */
    Set<byte[]> startAnew() {
        Set<byte[]> unwritten = new HashSet<>(queue);
        queue.clear();
        kept.clear();
        queued = 0;
        keeping = 0;
        given = FIRST_LINES;
        taken = FIRST_LINES;
        return unwritten;
    }
}
