package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonObject;
import io.antiphon.AntiphonException.Ran;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.List;
import java.util.stream.LongStream;

/**
 * A client of an Antiphon agent: one connection. Its methods may be called by any thread, and wait.
 *
 * <p><b>Interruption.</b> A thread that is interrupted while it waits gets an {@link AntiphonException}
 * with the code {@code interrupted}, and its interrupt status is set again. What it asked for is not left
 * behind: a lock or a leadership that is granted all the same is given back, a group left, a watch ended. A
 * write or a message may have happened: {@link AntiphonException#ran} says so. What gives something back
 * ({@code unlock}, {@code resign}, {@code close}) is said to the agent by an interrupted thread, too.
 */
public final class Client implements AutoCloseable {
    private static final Duration TIMEOUT = Duration.ofSeconds(10);
    private static final int MOST_REASON = 1000; // characters of what a handler throws

    private final Connection connection;
    private final String name;
    private final String node;
    private final String cluster;
    private final String build;

    /** A client with a name that its node gives it. */
    public static Client connect(String address) {
        return connect(address, null);
    }

    /** A client of the agent at "host:port" or "unix:/path", called {@code name} in groups. */
    public static Client connect(String address, String name) {
        return connect(address, name, TIMEOUT, Connection.BUFFER_BYTES);
    }

    /**
     * A client of the agent at this address.
     *
     * @param name what it is called in groups; null: what its node calls it
     * @param timeout for connecting, and again for the agent's first reply
     * @param bufferBytes of a group, a watch or a served verb: with more unread, this client stops reading
     */
    public static Client connect(String address, String name, Duration timeout, int bufferBytes) {
        SocketChannel channel = Address.connect(address, timeout);
        return connect(new Connection(channel, bufferBytes, Connection.MOST_BYTES), name, timeout);
    }

    static Client connect(Connection connection, String name, Duration timeout) {
        try {
            return new Client(connection, connection.ask(new Ask("hello").with("name", name), timeout.toNanos()));
        } catch (RuntimeException error) {
            connection.lose("the agent did not welcome this client");
            throw error;
        }
    }

    private Client(Connection connection, JsonObject reply) {
        this.connection = connection;
        JsonObject welcome = reply.getAsJsonObject("welcome");
        name = Json.text(welcome, "client");
        node = Json.text(welcome, "node");
        cluster = Json.text(welcome, "cluster");
        build = Json.text(welcome, "build");
    }

    /** This client's name. */
    public String name() {
        return name;
    }

    /** The agent's node. */
    public String node() {
        return node;
    }

    /** What this client is called in groups: NODE/CLIENT. */
    public String member() {
        return node + '/' + name;
    }

    /** The cluster's name. */
    public String cluster() {
        return cluster;
    }

    /** The agent's build. */
    public String build() {
        return build;
    }

    /** Joins this group. Its first {@link Event.View} says that this client is in. */
    public Group join(String group) {
        return Group.join(connection, group);
    }

    /** Waits for this lock without end. */
    public Guard lock(String name) {
        return lock(name, null);
    }

    /** Waits for this lock; the error has the code {@code timeout} if it is not free within this time. */
    public Guard lock(String name, Duration within) {
        return new Guard(connection, "lock", "unlock", name, within);
    }

    /** Waits until this client leads this job. */
    public Leadership lead(String job) {
        return new Leadership(connection, job);
    }

    /** A map that all nodes share. */
    public SharedMap map(String name) {
        return new SharedMap(connection, name);
    }

    /** A number that all nodes share. */
    public Counter counter(String name) {
        return new Counter(connection, name);
    }

    /** So many ids, which no other caller is ever given. */
    public long[] takeIds(int count) {
        long first = Json.unsigned(connection.ask(new Ask("take_ids").with("count", count)), "first");
        return LongStream.range(0, count).map(at -> first + at).toArray();
    }

    /** Answers such requests with what the handler returns, one after the other, in a thread of their own. */
    public void serve(String group, String verb, Request.Handler handler) {
        Stream<Request> requests = new Stream<>(connection, null, (full, request) ->
                connection.append(failed(request, "too many requests wait")));
        String key = Connection.verb(group, verb);
        if (connection.locked(() -> connection.served.putIfAbsent(key, requests)) != null) {
            throw new AntiphonException("refused", "this client serves " + verb + " in " + group + " already", Ran.NO);
        }
        Ask ask = new Ask("serve").with("group", group).with("verb", verb);
        ask.onFailure = error -> {
            connection.served.remove(key, requests);
            requests.discard();
        };
        Connection.daemon("antiphon " + verb, () -> answer(requests, handler)).start();
        connection.ask(ask);
    }

    /** Calls, with the time that the agent gives: 10 s. */
    public Answers call(String group, String verb, To to, byte[] payload) {
        return call(group, verb, to, payload, null);
    }

    /** Calls with this text. */
    public Answers call(String group, String verb, To to, String payload) {
        return call(group, verb, to, payload, null);
    }

    /** Has nodes do something, and waits for their answers. An error if there is none. */
    public Answers call(String group, String verb, To to, byte[] payload, Duration within) {
        return Json.answers(connection.ask(new Ask("call").with("group", group).with("verb", verb).with("to", to.json)
                .with("payload", payload).with("within", within)));
    }

    /** Calls with this text. */
    public Answers call(String group, String verb, To to, String payload, Duration within) {
        return call(group, verb, to, payload.getBytes(UTF_8), within);
    }

    /** The nodes of the cluster. */
    public Members members() {
        JsonObject reply = connection.ask(new Ask("members"));
        if (Json.field(reply, "view") == null) {
            throw new AntiphonException("unavailable", "the agent has no cluster yet", Ran.NO);
        }
        return Json.members(reply);
    }

    /** What is known about a node, present or gone. */
    public List<String> why(String node) {
        return Json.names(connection.ask(new Ask("why").with("node", node)), "facts");
    }

    /** Leaves everything in order, within 5 s. An interrupt that comes meanwhile cuts the connection. */
    @Override
    public void close() {
        connection.close();
    }

    // For the tests.

    boolean waits(Thread thread) {
        return connection.waits(thread);
    }

    long unread(String group) {
        return connection.locked(() -> connection.groups.get(group).bytes);
    }

    private void answer(Stream<Request> requests, Request.Handler handler) {
        try {
            while (requests.hasNext()) {
                Request request = requests.next();
                try {
                    byte[] payload = handler.answer(request);
                    Thread.interrupted(); // that of a handler ends with it
                    answer(request, payload);
                } catch (Exception | Error error) { // whatever it is, the caller is told
                    Thread.interrupted();
                    String reason = error.getMessage() == null ? error.toString() : error.getMessage();
                    connection.say(failed(request, reason), false);
                }
            }
        } catch (AntiphonException over) {
            // The connection is over, and so are the requests.
        }
    }

    private void answer(Request request, byte[] payload) {
        Ask answer = answer(request).with("payload", payload == null ? new byte[0] : payload);
        // An answer that is not taken, as one that is too large, is an error to the caller.
        answer.onFailure = refusal -> {
            if (refusal != null && Json.failure(refusal).code().equals("refused")) {
                connection.append(failed(request, Json.failure(refusal).reason()));
            }
        };
        connection.say(answer, true);
    }

    private static Ask failed(Request request, String reason) {
        return answer(request).with("error", reason.substring(0, Math.min(reason.length(), MOST_REASON)));
    }

    private static Ask answer(Request request) {
        return new Ask("answer").with("request", request.number());
    }
}
