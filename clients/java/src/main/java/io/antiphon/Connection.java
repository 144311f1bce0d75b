package io.antiphon;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import io.antiphon.AntiphonException.Ran;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import java.util.function.Supplier;

/**
 * The protocol, and all that the two threads at the socket share with those that ask, under one lock.
 *
 * <pre>
 * ask ─► Traffic ─► Link ─► the agent ─► Link ─┬─► Ask     the reply to an operation, by its id
 *                                              ├─► Stream  what a group, a watch or a verb is told
 *                                              └─► held    a lock or a leadership is lost
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
    private static final int MOST_LINE_BYTES = 4 << 20; // that an agent takes
    static final String ANEW = "the connection broke, and this client came back as a new one";
    /** Operations that may wait for others: the agent is told when nobody waits for them any more. */
    private static final Set<String> CANCELLABLE = Set.of("lock", "lead", "watch", "call");

    final ReentrantLock lock = new ReentrantLock();
    /** Wakes the reader when a stream may not be full any more. */
    final Condition gate = lock.newCondition();
    final Condition room = lock.newCondition();

    final int bufferBytes;
    final int mostBytes;
    final Map<String, Stream<Event>> groups = new HashMap<>();
    final Map<Long, Stream<Change>> watches = new HashMap<>();
    final Map<Verb, Stream<Asked>> served = new HashMap<>();
    /** What is told of the loss of a lock or a leadership, by the id that it was asked for with. */
    final Map<Long, CompletableFuture<String>> held = new HashMap<>();
    private final Map<Long, Ask> asked = new HashMap<>();
    private final ArrayDeque<Ask> whys = new ArrayDeque<>();
    private final Set<Thread> waiting = new HashSet<>();
    final Traffic traffic;
    private Stream<?> full;
    private long lastId;
    String lastWords;
    boolean closing;
    private String cause; // why the connection is over

    private long life; // counts the new clients that this one came back as
    final Link link;

    /** What is served; a command has no group. */
    record Verb(String group, String name) {
        Ask serve() {
            return new Ask(group == null ? "serve_command" : "serve").with("group", group).with("verb", name);
        }
    }

    /** A request of the client that this one is in this life. */
    record Asked(Request request, long life) {}

    Connection(Link.Opener opener, Options options, int mostBytes) {
        this.bufferBytes = options.bufferBytes;
        this.mostBytes = mostBytes;
        traffic = new Traffic(!options.grace.isZero());
        link = new Link(this, opener, options);
        link.start();
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
        traffic.add(line);
        link.wake();
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
                closing = true;
                lastWords = "this client closed the connection";
                append(new Ask("leave"));
            }
        } finally {
            lock.unlock();
        }
        link.join();
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
        } finally {
            lock.unlock();
        }
        link.end();
    }

    /** Whether the connection is over, and no other takes its place. */
    boolean isOver() {
        return locked(() -> cause != null);
    }

    void check() {
        if (cause != null) {
            throw new ConnectionLostException(cause, Ran.NO);
        }
    }

    int asks() {
        return locked(asked::size);
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
        if (ask.life < 0) {
            ask.life = life;
        }
        while (!ask.urgent && cause == null && ask.life == life && traffic.isFull()) {
            room.await();
        }
        if (cause != null) {
            ask.onFailure.accept(null);
            check();
        }
        if (ask.life != life) {
            ask.onFailure.accept(null);
            throw new AntiphonException("connection", ANEW, Ran.NO);
        }
    }

    private void register(Ask ask) {
        ask.onSend.run();
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

    // Coming back as a new client.

    /** This client is a new one, which joins and serves what the one before did. */
    void startAnew() {
        Set<byte[]> unwritten = traffic.startAnew();
        life++;
        List<Ask> underWay = new ArrayList<>(asked.values());
        underWay.addAll(whys);
        asked.clear();
        whys.clear();
        underWay.forEach(ask ->
                finish(ask, Json.failed("connection", ANEW, unwritten.contains(ask.line) ? Ran.NO : Ran.MAYBE)));
        held.values().forEach(loss -> tell(loss, ANEW));
        held.clear();
        watches.values().forEach(watch -> watch.end(() -> new AntiphonException("lost", ANEW, Ran.NO)));
        watches.clear();
        served.forEach((verb, requests) -> {
            requests.clear();
            again(verb.serve(), why -> link.giveUp(ANEW + ", and could not serve " + verb.name + " again: " + why));
        });
        groups.values().stream().filter(group -> group.over).forEach(group -> group.end(null)); // being left
        groups.values().removeIf(group -> group.over);
        groups.forEach((name, group) -> {
            // First: if the event is too much for a group that is not read, it is left behind its join.
            again(Group.ask(name), why -> {
                groups.remove(name, group);
                group.endWith(new Event.Lost(name, ANEW + ", and could not join again: " + why));
            });
            put(group, () -> new Event.Resync(name, ANEW), 0);
        });
        gate.signalAll();
    }

    /** Asks for what this client had. Nobody waits for the reply. */
    private void again(Ask ask, Consumer<String> failed) {
        ask.onFailure = reply -> {
            AntiphonException error = reply == null ? null : Json.failure(reply);
            if (error != null && !error.code().equals("connection")) {
                failed.accept(error.reason());
            }
        };
        register(ask);
    }

    // What the agent says.

    void take(JsonObject event, int bytes) {
        lock.lock();
        try {
            while (heldUp()) {
                gate.awaitUninterruptibly();
            }
            switch (Json.text(event, "event")) {
                case "view", "message", "transitional", "suspended", "resync" -> tellGroup(event, bytes);
                case "bundle" -> tellBundle(event, bytes);
                case "reply" -> replied(event);
                case "error" -> failed(event);
                case "refused" -> refused(event, bytes);
                case "lost" -> lost(event);
                case "group_left" -> end(groups.remove(Json.text(event, "group")));
                case "watching" -> put(watches.get(id(event)),
                        () -> new Change.Watching(event.get("entries").getAsLong()), bytes);
                case "changed" -> put(watches.get(id(event)), () -> Json.changed(event), bytes);
                case "request", "command" ->
                        put(served.get(new Verb(Json.text(event, "group"), Json.text(event, "verb"))),
                                () -> new Asked(Json.request(event), life), bytes);
                case "why" -> finish(whys.poll(), event);
                case "took" -> {
                    traffic.letGo(event.get("lines").getAsLong());
                    room.signalAll();
                    return; // it does not count
                }
                default -> { } // of a newer agent
            }
            if (traffic.count(bytes)) {
                link.wake();
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
            T made = event.get();
            put(stream, part -> made, 1, bytes);
        }
    }

    private <T> void put(Stream<T> stream, IntFunction<? extends T> event, int count, int bytes) {
        stream.put(event, count, bytes);
        if (stream.bytes > bufferBytes) {
            full = stream;
        }
    }

    private void tellGroup(JsonObject event, int bytes) {
        put(groups.get(Json.text(event, "group")), () -> Json.event(event), bytes);
    }

    private void tellBundle(JsonObject event, int bytes) {
        Stream<Event> group = groups.get(Json.text(event, "group"));
        if (group != null) {
            JsonArray payloads = event.getAsJsonArray("payloads");
            if (payloads.isEmpty()) {
                throw new IllegalStateException("a bundle of nothing");
            }
            put(group, part -> Json.message(event, payloads.get(part), part), payloads.size(), bytes);
        }
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
            JsonObject reply = Json.failed("refused", Json.text(event, "reason"), Ran.NO);
            request.getAsJsonObject().asMap().forEach((op, fields) -> {
                finish(op.equals("why") ? whys.poll() : asked.remove(id(fields)), reply);
            });
        } else { // the operation is not known, and may wait for its reply
            link.giveUp("the agent did not understand a command: " + Json.text(event, "reason"));
        }
    }

    private void refused(JsonObject event, int bytes) {
        String group = Json.text(event, "group");
        String reason = Json.text(event, "reason");
        if (group == null) {
            lastWords = reason;
        } else if (event.has("request")) {
            Json.sent(event.getAsJsonObject("request")).forEach(payload ->
                    put(groups.get(group), () -> new Event.Refused(group, reason, payload), bytes));
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
}
