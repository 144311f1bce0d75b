package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import io.antiphon.AntiphonException.Ran;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * One connection: two threads at the socket, and all that they share with those that ask, under one lock.
 *
 * <pre>
 * ask ─► outgoing ─► writer ─► socket ─► reader ─┬─► Ask     the reply to an operation, by its id
 *                                                ├─► Stream  what a group, a watch or a verb is told
 *                                                └─► held    a lock or a leadership is lost
 * </pre>
 *
 * <p>Programs' threads never touch the socket, because Java closes a channel whose thread is interrupted.
 *
 * <p>Back-pressure: when a stream has more than {@code bufferBytes}, the reader takes no further line until
 * it has less, and so TCP and the agent make the senders wait. One case is different: the thread that takes
 * from the full stream waits itself, for a reply, which is behind the events, or to send. Then the reader
 * goes on, and a stream that comes to {@code mostBytes} meanwhile is ended.
 */
final class Connection {
    static final int BUFFER_BYTES = 1 << 20;
    static final int MOST_BYTES = 64 << 20;
    static final long FOREVER = Long.MAX_VALUE;
    private static final int OUTGOING_BYTES = 1 << 20; // then those that send wait
    private static final int PIECE = 64 << 10; // of a write: Java copies as much outside of its heap
    private static final int MOST_LINE_BYTES = 4 << 20; // that an agent takes
    private static final Duration END_WITHIN = Duration.ofSeconds(5);
    /** Operations that may wait for others: the agent is told when nobody waits for them any more. */
    private static final Set<String> CANCELLABLE = Set.of("lock", "lead", "watch", "call");

    final ReentrantLock lock = new ReentrantLock();
    /** Wakes the reader when a stream may not be full any more. */
    final Condition gate = lock.newCondition();
    private final Condition room = lock.newCondition();
    private final Condition written = lock.newCondition();

    final int bufferBytes;
    final int mostBytes;
    final Map<String, Stream<Event>> groups = new HashMap<>();
    final Map<Long, Stream<Change>> watches = new HashMap<>();
    final Map<String, Stream<Request>> served = new HashMap<>();
    /** What is told of the loss of a lock or a leadership, by the id that it was asked for with. */
    final Map<Long, CompletableFuture<String>> held = new HashMap<>();
    private final Map<Long, Ask> asked = new HashMap<>();
    private final ArrayDeque<Ask> whys = new ArrayDeque<>();
    private final Set<Thread> waiting = new HashSet<>();
    private final ByteArrayOutputStream outgoing = new ByteArrayOutputStream();
    private Stream<?> full;
    private long lastId;
    private String lastWords;
    private String cause; // why the connection is over

    private final SocketChannel channel;
    private final Thread reader;

    Connection(SocketChannel channel, int bufferBytes, int mostBytes) {
        this.channel = channel;
        this.bufferBytes = bufferBytes;
        this.mostBytes = mostBytes;
        reader = daemon("antiphon reader", this::read);
        reader.start();
        daemon("antiphon writer", this::write).start();
    }

    static Thread daemon(String name, Runnable run) {
        Thread thread = new Thread(run, name);
        thread.setDaemon(true);
        return thread;
    }

    // For those that ask.

    <T> T locked(Supplier<T> what) {
        lock.lock();
        try {
            return what.get();
        } finally {
            lock.unlock();
        }
    }

    /** Something that waits, and takes nothing back if it is interrupted. */
    interface Waits<T> {
        T run() throws InterruptedException;
    }

    static <T> T interruptibly(Waits<T> what) {
        try {
            return what.run();
        } catch (InterruptedException interrupted) {
            throw interrupted(Ran.NO);
        }
    }

    static AntiphonException interrupted(Ran ran) {
        Thread.currentThread().interrupt();
        return new AntiphonException("interrupted", "this thread was interrupted while it waited", ran);
    }

    JsonObject ask(Ask ask) {
        return ask(ask, FOREVER);
    }

    /** The reply, which is without an error. */
    JsonObject ask(Ask ask, long nanos) {
        startWaiting();
        try {
            ask.waiter = Thread.currentThread();
            awaitRoom(ask);
            register(ask);
            long left = nanos;
            while (ask.reply == null && cause == null) {
                if (left <= 0) {
                    abandon(ask);
                    throw new AntiphonException("timeout", "the agent did not reply to " + ask.op, Ran.MAYBE);
                }
                left = ask.answered.awaitNanos(left);
            }
        } catch (InterruptedException interrupted) {
            if (ask.reply == null) {
                abandon(ask);
                throw interrupted(ask.id == 0 || ask.undo != null ? Ran.NO : Ran.MAYBE);
            }
            Thread.currentThread().interrupt(); // it came all the same: nothing is lost
        } finally {
            stopWaiting();
        }
        if (ask.reply == null) {
            throw new ConnectionLostException(cause, Ran.MAYBE);
        }
        if (ask.reply.has("error")) {
            throw Json.failure(ask.reply);
        }
        return ask.reply;
    }

    /**
     * Says it, and waits for room at most. With an id, {@link Ask#onFailure} is told of a reply that is an
     * error.
     */
    void say(Ask ask, boolean withId) {
        startWaiting();
        try {
            awaitRoom(ask);
            if (withId) {
                register(ask);
            } else {
                append(line(ask));
            }
        } catch (InterruptedException interrupted) {
            throw interrupted(Ran.NO);
        } finally {
            stopWaiting();
        }
    }

    /** Says it without waiting. Only what there is little of: it gives something back. */
    void append(Ask ask) {
        lock.lock();
        append(ask.line());
        lock.unlock();
    }

    private void append(byte[] line) {
        outgoing.writeBytes(line);
        written.signal();
    }

    private static byte[] line(Ask ask) {
        byte[] line = ask.line();
        if (line.length > MOST_LINE_BYTES) {
            ask.onFailure.accept(null);
            throw new AntiphonException("refused", ask.op + " makes a line of " + line.length
                    + " bytes, and an agent takes " + MOST_LINE_BYTES + ": send less at once", Ran.NO);
        }
        return line;
    }

    /** Leaves this group and waits until it is out, so it can join again; what is unread is dropped. */
    void leave(String name, Stream<Event> group) {
        boolean in = locked(() -> {
            boolean there = groups.get(name) == group;
            if (there) {
                group.discard();
            }
            return there;
        });
        if (in) {
            ask(new Ask("leave").with("group", name).urgent());
        }
        startWaiting();
        try {
            while (groups.get(name) == group) {
                group.changed.await();
            }
        } catch (InterruptedException interrupted) {
            throw interrupted(Ran.MAYBE);
        } finally {
            stopWaiting();
        }
    }

    /** Leaves everything in order, within a few seconds. */
    void close() {
        lock.lock();
        try {
            // What is unread is dropped, so the reader comes to the end.
            groups.values().forEach(Stream::discard);
            watches.values().forEach(Stream::discard);
            served.values().forEach(Stream::discard);
            if (cause == null) {
                lastWords = "this client closed the connection";
                append(new Ask("leave"));
            }
        } finally {
            lock.unlock();
        }
        join(reader);
        lose("the agent did not end it in time");
    }

    /** The connection is over: all that wait are told so. */
    void lose(String why) {
        lock.lock();
        try {
            if (cause != null) {
                return;
            }
            cause = lastWords != null ? lastWords : why;
            String lost = cause;
            asked.values().forEach(ask -> finish(ask, null));
            whys.forEach(ask -> finish(ask, null));
            Supplier<AntiphonException> error = () -> new ConnectionLostException(lost, Ran.MAYBE);
            groups.values().forEach(stream -> stream.end(error));
            watches.values().forEach(stream -> stream.end(error));
            served.values().forEach(stream -> stream.end(error));
            held.values().forEach(loss -> tell(loss, lost));
            asked.clear();
            whys.clear();
            groups.clear();
            watches.clear();
            served.clear();
            held.clear();
            room.signalAll();
            written.signalAll();
        } finally {
            lock.unlock();
        }
        try {
            channel.close();
        } catch (IOException alreadyBroken) {
            // It is over either way.
        }
    }

    void check() {
        if (cause != null) {
            throw new ConnectionLostException(cause, Ran.NO);
        }
    }

    /** Whether this thread waits for a reply now, or to send. */
    boolean waits(Thread thread) {
        return locked(() -> waiting.contains(thread));
    }

    /** Takes the lock, until `stopWaiting`. */
    private void startWaiting() {
        lock.lock();
        waiting.add(Thread.currentThread());
        gate.signalAll();
    }

    private void stopWaiting() {
        waiting.remove(Thread.currentThread());
        lock.unlock();
    }

    private void awaitRoom(Ask ask) throws InterruptedException {
        if (!ask.urgent && Thread.interrupted()) {
            throw new InterruptedException();
        }
        while (!ask.urgent && cause == null && outgoing.size() > OUTGOING_BYTES) {
            room.await();
        }
        if (cause != null) {
            ask.onFailure.accept(null);
            check();
        }
    }

    private void register(Ask ask) {
        boolean why = ask.op.equals("why"); // has no id: answered in their order
        long id = ++lastId;
        byte[] line = line(why ? ask : ask.with("id", id));
        ask.id = id;
        ask.answered = lock.newCondition();
        if (why) {
            whys.add(ask);
        } else {
            asked.put(id, ask);
        }
        append(line);
    }

    private void abandon(Ask ask) {
        ask.abandoned = true;
        if (ask.id == 0) {
            ask.onFailure.accept(null);
        } else if (CANCELLABLE.contains(ask.op)) {
            append(new Ask("cancel").with("of", ask.id));
        }
    }

    /** Not in this thread, which reads: what depends on the future may take long, or ask. */
    private static void tell(CompletableFuture<String> loss, String why) {
        loss.completeAsync(() -> why, task -> daemon("antiphon lost", task).start());
    }

    // The threads at the socket.

    private void write() {
        try {
            for (byte[] lines = drain(); lines != null; lines = drain()) {
                for (int at = 0; at < lines.length; ) {
                    at += channel.write(ByteBuffer.wrap(lines, at, Math.min(PIECE, lines.length - at)));
                }
            }
        } catch (IOException broken) {
            join(reader); // comes to its end, behind what the agent said before
            lose("the connection broke: " + broken);
        }
    }

    /** All that is to be written; null when the connection is over. */
    private byte[] drain() {
        return locked(() -> {
            while (outgoing.size() == 0 && cause == null) {
                written.awaitUninterruptibly();
            }
            byte[] lines = cause == null ? outgoing.toByteArray() : null;
            outgoing.reset();
            room.signalAll();
            return lines;
        });
    }

    private void read() {
        String why = "the agent closed the connection";
        try {
            Lines lines = new Lines(channel);
            for (byte[] line = lines.next(); line != null; line = lines.next()) {
                JsonObject event = JsonParser.parseString(new String(line, UTF_8)).getAsJsonObject();
                take(event, line.length);
            }
        } catch (IOException | RuntimeException | Error broken) {
            why = "the connection broke: " + broken;
        }
        lose(why);
    }

    /** For a few seconds, or until this thread is interrupted; that it was before does not count. */
    private static void join(Thread thread) {
        boolean interrupted = Thread.interrupted();
        try {
            thread.join(END_WITHIN.toMillis());
        } catch (InterruptedException again) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    // What the agent says.

    private void take(JsonObject event, int bytes) {
        lock.lock();
        try {
            while (heldUp()) {
                gate.awaitUninterruptibly();
            }
            switch (Json.text(event, "event")) {
                case "view", "message", "transitional", "suspended", "resync" -> tellGroup(event, bytes);
                case "reply" -> replied(event);
                case "error" -> failed(event);
                case "refused" -> refused(event, bytes);
                case "lost" -> lost(event);
                case "group_left" -> end(groups.remove(Json.text(event, "group")));
                case "watching" -> put(watches.get(id(event)),
                        () -> new Change.Watching(event.get("entries").getAsLong()), bytes);
                case "changed" -> put(watches.get(id(event)), () -> Json.changed(event), bytes);
                case "request" -> put(served.get(verb(Json.text(event, "group"), Json.text(event, "verb"))),
                        () -> Json.request(event), bytes);
                case "why" -> finish(whys.poll(), event);
                default -> { } // of a newer agent
            }
        } finally {
            lock.unlock();
        }
    }

    /** Whether a stream is full, and its reader comes to read it without a further line. */
    private boolean heldUp() {
        if (full == null || full.over || full.bytes <= bufferBytes) {
            full = null;
            return false;
        }
        return !waiting.contains(full.reader);
    }

    private <T> void put(Stream<T> stream, Supplier<? extends T> event, int bytes) {
        if (stream != null && !stream.over) {
            stream.put(event.get(), bytes);
            if (stream.bytes > bufferBytes) {
                full = stream;
            }
        }
    }

    private void tellGroup(JsonObject event, int bytes) {
        put(groups.get(Json.text(event, "group")), () -> Json.event(event), bytes);
    }

    private void finish(Ask ask, JsonObject reply) {
        if (ask == null) {
            return;
        }
        ask.reply = reply;
        if (reply == null || reply.has("error")) {
            ask.onFailure.accept(reply);
        } else if (!ask.abandoned || ask.undo == null) {
            ask.onReply.accept(reply);
        } else {
            append(ask.undo.apply(reply));
        }
        ask.answered.signalAll();
        waiting.remove(ask.waiter); // not when it wakes: meanwhile the stream that it reads may fill
    }

    private void replied(JsonObject event) {
        finish(asked.remove(id(event)), event);
    }

    /** A line that made no sense to the agent: the answer to what it has the id of. */
    private void failed(JsonObject event) {
        JsonElement request = Json.field(event, "request");
        if (request == null) {
            lastWords = Json.text(event, "reason");
        } else if (request.isJsonObject()) {
            JsonObject error = new JsonObject();
            error.addProperty("code", "refused");
            error.add("reason", event.get("reason"));
            error.addProperty("ran", "no");
            JsonObject reply = new JsonObject();
            reply.add("error", error);
            request.getAsJsonObject().asMap().forEach((op, fields) -> {
                finish(op.equals("why") ? whys.poll() : asked.remove(id(fields)), reply);
            });
        }
    }

    private void refused(JsonObject event, int bytes) {
        if (Json.field(event, "group") == null) {
            lastWords = Json.text(event, "reason");
        } else if (event.has("request")) {
            tellGroup(event, bytes);
        }
    }

    private void lost(JsonObject event) {
        String name = Json.text(event, "name");
        String why = Json.text(event, "cause");
        switch (Json.text(event, "what")) {
            case "group" -> {
                Stream<Event> group = groups.remove(name);
                if (group != null) {
                    group.endWith(new Event.Lost(name, why));
                }
            }
            case "watch" -> {
                Stream<Change> watch = watches.remove(id(event));
                if (watch != null) {
                    watch.end(() -> new AntiphonException("lost", why, Ran.NO));
                }
            }
            default -> {
                CompletableFuture<String> loss = held.remove(id(event));
                if (loss != null) {
                    tell(loss, why);
                }
            }
        }
    }

    private static void end(Stream<?> stream) {
        if (stream != null) {
            stream.end(null);
        }
    }

    /** Of an operation of this client; 0, which none has, if there is none. */
    private static long id(JsonElement of) {
        return of.isJsonObject() && of.getAsJsonObject().get("id") instanceof JsonPrimitive id && id.isNumber()
                ? id.getAsLong() : 0;
    }

    static String verb(String group, String verb) {
        return group + '\n' + verb;
    }
}
