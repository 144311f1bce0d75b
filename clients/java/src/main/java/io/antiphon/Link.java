package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.concurrent.locks.Condition;

/**
 * The socket and its two threads; another socket takes its place if it breaks and the client may come back.
 * What changes is under the lock of the connection.
 *
 * <pre>
 * follow ─► it breaks ─► away: connectAgain, until awaitReturn ends it ─┬─► resumed: nothing has happened
 *                                                                      └─► startAnew: a new client
 * </pre>
 */
final class Link {
    private static final int PIECE = 64 << 10; // of a write: Java copies as much outside of its heap
    private static final Duration END_WITHIN = Duration.ofSeconds(5);
    private static final Duration TRY_EACH = Duration.ofMillis(100);

    private final Connection connection;
    private final Opener opener;
    private final Duration grace;
    private final Condition written;
    private final Condition back;
    private final Thread reader;
    private ByteChannel channel;
    private int number; // of the connection
    private JsonObject hello;
    private String key; // by which the client comes back; null: it does not
    private boolean away; // it broke, and there is no other yet
    private String problem; // why it is not back
    private ByteChannel trying;
    /** What the agent has said of this client. */
    volatile JsonObject welcome;

    /** How a connection ended. */
    private record Breach(String why, boolean isFinal) {}

    /** Makes a connection, again and again if the client comes back. */
    interface Opener {
        ByteChannel open(Duration timeout);
    }

    Link(Connection connection, Opener opener, Options options) {
        this.connection = connection;
        this.opener = opener;
        grace = options.grace;
        written = connection.lock.newCondition();
        back = connection.lock.newCondition();
        channel = opener.open(options.timeout);
        reader = Connection.daemon("antiphon reader", () -> read(new Lines(channel)));
    }

    void start() {
        reader.start();
        startWriter();
    }

    /** There is something to write. Under the lock. */
    void wake() {
        written.signalAll();
    }

    private void startWriter() {
        ByteChannel to = channel;
        int now = number;
        Connection.daemon("antiphon writer", () -> write(to, now)).start();
    }

    private void write(ByteChannel to, int now) {
        try {
            for (byte[] lines = drain(now); lines != null; lines = drain(now)) {
                for (int at = 0; at < lines.length; ) {
                    at += to.write(ByteBuffer.wrap(lines, at, Math.min(PIECE, lines.length - at)));
                }
            }
        } catch (IOException broken) {
            if (connection.locked(() -> key == null)) {
                join(); // the reader comes to its end, behind what the agent said before
                connection.lose("the connection broke: " + broken);
            }
        }
    }

    /** All that is to be written; null when this connection is over. */
    private byte[] drain(int now) {
        return connection.locked(() -> {
            while (!connection.traffic.isDue() && !connection.isOver() && number == now) {
                written.awaitUninterruptibly();
            }
            byte[] lines = !connection.isOver() && number == now ? connection.traffic.drain() : null;
            connection.room.signalAll();
            return lines;
        });
    }

    private void read(Lines lines) {
        while (lines != null) {
            lines = comeBack(follow(lines));
        }
    }

    /** Takes in what comes by one connection. */
    private Breach follow(Lines lines) {
        try {
            for (byte[] line = lines.next(); line != null; line = lines.next()) {
                if (line.length > 0) {
                    connection.take(json(line), line.length);
                }
            }
            return new Breach("the agent closed the connection", false);
        } catch (IOException | RuntimeException | Error broken) {
            boolean isFinal = !(broken instanceof IOException) || broken instanceof Lines.TooLong;
            return new Breach("the connection broke: " + broken, isFinal);
        }
    }

    private static JsonObject json(byte[] line) {
        return JsonParser.parseString(new String(line, UTF_8)).getAsJsonObject();
    }

    // Coming back.

    /** Introduces this client. */
    Ask hello(String name, Options options) {
        Ask ask = new Ask("hello").with("name", name).with("token", options.token)
                .with("grace", grace.isZero() ? null : grace);
        hello = ask.fields.deepCopy();
        ask.onReply = reply -> isWelcome(reply.getAsJsonObject("welcome"));
        return ask;
    }

    private void isWelcome(JsonObject by) {
        welcome = by;
        if (by.has("resume")) {
            key = Json.text(by, "resume");
        }
    }

    /** Makes another connection in place of one that broke; null if that is the end. */
    private Lines comeBack(Breach breach) {
        boolean comes = connection.locked(() -> {
            away = key != null && !connection.closing && !breach.isFinal && !connection.isOver();
            if (away) {
                number++; // which ends the writer
                problem = null;
                written.signalAll();
            }
            return away;
        });
        if (!comes) {
            connection.lose(breach.why);
            return null;
        }
        end(channel);
        int broken = number;
        Connection.daemon("antiphon grace", () -> awaitReturn(broken, breach.why)).start();
        while (connection.locked(() -> !connection.isOver())) {
            try {
                return connectAgain();
            } catch (IOException | RuntimeException failed) {
                String why = failed instanceof AntiphonException no ? no.reason() : failed.toString();
                connection.locked(() -> problem = why);
            }
            try {
                Thread.sleep(TRY_EACH.toMillis());
            } catch (InterruptedException impossible) {
                // Nobody knows this thread.
            }
        }
        return null;
    }

    private void awaitReturn(int broken, String why) {
        String lost;
        connection.lock.lock();
        try {
            long left = grace.toNanos();
            while (away && number == broken && !connection.isOver() && left > 0) {
                left = back.awaitNanos(left);
            }
            if (!away || number != broken) {
                return;
            }
            lost = why + ", and this client did not come back within " + Json.span(grace) + ": " + problem;
        } catch (InterruptedException impossible) {
            return; // nobody knows this thread
        } finally {
            connection.lock.unlock();
        }
        connection.lose(lost);
    }

    /** Tries once. */
    private Lines connectAgain() throws IOException {
        ByteChannel to = opener.open(grace);
        try {
            boolean over = connection.locked(() -> {
                trying = to;
                return connection.isOver();
            });
            if (over) {
                throw new IOException("it is too late");
            }
            Ask again = new Ask("hello");
            connection.locked(() -> {
                hello.asMap().forEach(again::with);
                return again.with("resume", key).with("lines", connection.traffic.tell());
            });
            to.write(ByteBuffer.wrap(again.line()));
            Lines lines = new Lines(to);
            byte[] line = lines.next();
            if (line == null) {
                throw new IOException("the agent closed the connection");
            }
            JsonObject reply = json(line);
            if (reply.has("error")) {
                throw Json.failure(reply);
            }
            if (!reply.has("welcome")) {
                throw new IOException(Json.text(reply, "reason"));
            }
            goOn(to, reply.getAsJsonObject("welcome"));
            return lines;
        } catch (IOException | RuntimeException failed) {
            try { // what the agent made of it, nobody needs
                to.write(ByteBuffer.wrap(new Ask("leave").line()));
            } catch (IOException broken) {
                // It needs none either.
            }
            end(to);
            throw failed;
        }
    }

    private void goOn(ByteChannel to, JsonObject by) throws IOException {
        connection.lock.lock();
        try {
            if (connection.isOver()) {
                throw new IOException("it is too late");
            }
            if (by.has("resumed")) {
                connection.traffic.resume(by.get("resumed").getAsLong());
            } else if (connection.closing) { // the one that was to leave has gone
                connection.lose(Connection.ANEW);
                throw new IOException(Connection.ANEW);
            } else {
                connection.startAnew();
            }
            isWelcome(by);
            channel = to;
            trying = null;
            away = false;
            connection.lastWords = connection.closing ? connection.lastWords : null;
            back.signalAll();
            connection.room.signalAll();
            startWriter();
        } finally {
            connection.lock.unlock();
        }
    }

    /** Breaks the connection, as whatever is between both ends may. */
    void cut() throws IOException {
        if (connection.locked(() -> channel) instanceof SocketChannel socket && socket.isOpen()) {
            try {
                socket.shutdownOutput();
                socket.shutdownInput();
            } catch (ClosedChannelException broken) {
                // The client has noticed the first half already.
            }
        }
    }

    /** Ends the connection for good. Under the lock. */
    void giveUp(String why) {
        key = null;
        connection.lastWords = why;
        end(channel);
    }

    /** Waits for the end: a few seconds, or until an interrupt; one that came before does not count. */
    void join() {
        boolean interrupted = Thread.interrupted();
        try {
            reader.join(END_WITHIN.toMillis());
        } catch (InterruptedException again) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Closes what there is. The connection is over. */
    void end() {
        connection.lock.lock();
        try {
            written.signalAll();
            back.signalAll();
        } finally {
            connection.lock.unlock();
        }
        end(connection.locked(() -> channel));
        end(connection.locked(() -> trying));
    }

    private static void end(ByteChannel channel) {
        try {
            if (channel != null) {
                channel.close();
            }
        } catch (IOException alreadyBroken) {
            // It is over either way.
        }
    }
}
