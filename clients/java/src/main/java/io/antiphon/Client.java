package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonObject;
import io.antiphon.AntiphonException.Ran;
import io.antiphon.Connection.Asked;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import javax.net.ssl.SSLContext;

/**
 * A client of an Antiphon agent: one connection, or several, one after the other, if it comes back. Its
 * methods may be called by any thread, and wait.
 *
 * <p><b>Interruption.</b> A thread that is interrupted while it waits gets an {@link AntiphonException}
 * with the code {@code interrupted}, and its interrupt status is set again. What it asked for is not left
 * behind: a lock or a leadership that is granted all the same is given back, a group left, a watch ended. A
 * write or a message may have happened: {@link AntiphonException#ran} says so. What gives something back
 * ({@code unlock}, {@code resign}, {@code close}) is said to the agent by an interrupted thread, too.
 */
public final class Client implements AutoCloseable {
    private static final int MOST_REASON = 1000; // characters of what a handler throws

    private final Connection connection;

    /** A client with a name that its node gives it. */
    public static Client connect(String address) {
        return connect(address, null);
    }

    /** A client of the agent at "host:port" or "unix:/path", called {@code name} in groups. */
    public static Client connect(String address, String name) {
        return connect(address, name, new Options());
    }

    /** A client of the agent at this address. Without a name it has the one that its node gives it. */
    public static Client connect(String address, String name, Options options) {
        return connect(address, name, options, Connection.MOST_BYTES);
    }

    static Client connect(String address, String name, Options options, int mostBytes) {
        SSLContext tls = options.tls;
        return connect(timeout -> Address.connect(address, timeout, tls), name, options, mostBytes);
    }

    static Client connect(Link.Opener opener, String name, Options options, int mostBytes) {
        Connection connection = new Connection(opener, options, mostBytes);
        try {
            connection.ask(connection.link.hello(name, options), options.timeout.toNanos());
            return new Client(connection);
        } catch (RuntimeException error) {
            connection.lose("the agent did not welcome this client");
            throw error;
        }
    }

    private Client(Connection connection) {
        this.connection = connection;
    }

    /** This client's name. */
    public String name() {
        return Json.text(connection.link.welcome, "client");
    }

    /** The agent's node. */
    public String node() {
        return Json.text(connection.link.welcome, "node");
    }

    /** What this client is called in groups: NODE/CLIENT. */
    public String member() {
        JsonObject welcome = connection.link.welcome;
        return Json.text(welcome, "node") + '/' + Json.text(welcome, "client");
    }

    /** The cluster's name. */
    public String cluster() {
        return Json.text(connection.link.welcome, "cluster");
    }

    /** The agent's build. */
    public String build() {
        return Json.text(connection.link.welcome, "build");
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
        serve(new Connection.Verb(group, verb), handler);
    }

    /**
     * Carries out commands of this verb, which the list of this client's node delivers to sessions: as {@link
     * #serve}, with {@link Request#args}.
     */
    public void serveCommand(String verb, Request.Handler handler) {
        serve(new Connection.Verb(null, verb), handler);
    }

    private void serve(Connection.Verb verb, Request.Handler handler) {
        Stream<Asked> requests = new Stream<>(connection, null, (full, asked) ->
                connection.append(failed(asked, "too many requests wait")));
        Ask ask = verb.serve();
        ask.onSend = () -> {
            if (connection.served.putIfAbsent(verb, requests) != null) {
                throw new AntiphonException("refused", "this client serves " + verb.name()
                        + (verb.group() == null ? "" : " in " + verb.group()) + " already", Ran.NO);
            }
            Connection.daemon("antiphon " + verb.name(), () -> answer(requests, handler)).start();
        };
        ask.onFailure = error -> {
            connection.served.remove(verb, requests);
            requests.discard();
        };
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

    /**
     * Has nodes do something of their list of commands, and waits for their replies. An error if there is none.
     *
     * @param args each is a text, a whole number or a boolean
     */
    public Answers command(String verb, Map<String, ?> args, To to, CommandOption... how) {
        Ask ask = new Ask("command").with("verb", verb).with("args", Json.arguments(args)).with("to", to.json);
        for (CommandOption option : how) {
            option.change.accept(ask);
        }
        return Json.answers(connection.ask(ask));
    }

    /** The list's version, the queues to the peers, and how many commands there were, in JSON. */
    public String commands() {
        return connection.ask(new Ask("commands")).get("commands").toString();
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

    int asks() {
        return connection.asks();
    }

    /** Ends it without a word. */
    void abandon() {
        connection.lose("this client was abandoned");
    }

    void cut() throws IOException {
        connection.link.cut();
    }

    boolean waits(Thread thread) {
        return connection.waits(thread);
    }

    long unread(String group) {
        return connection.locked(() -> connection.groups.get(group).bytes);
    }

    private void answer(Stream<Asked> requests, Request.Handler handler) {
        try {
            while (requests.hasNext()) {
                answer(requests.next(), handler);
            }
        } catch (AntiphonException over) {
            // The connection is over, and so are the requests.
        }
    }

    private void answer(Asked asked, Request.Handler handler) {
        try {
            byte[] payload = handler.answer(asked.request());
            Thread.interrupted(); // that of a handler ends with it
            answer(asked, payload);
        } catch (Exception | Error error) { // whatever it is, the caller is told
            Thread.interrupted();
            String reason = error.getMessage() == null ? error.toString() : error.getMessage();
            try {
                connection.say(failed(asked, reason), false);
            } catch (AntiphonException gone) {
                // Nobody waits for it: the connection is over, or this client is another one.
            }
        }
    }

    private void answer(Asked asked, byte[] payload) {
        Ask answer = answer(asked).with("payload", payload == null ? new byte[0] : payload);
        // An answer that is not taken, as one that is too large, is an error to the caller.
        answer.onFailure = refusal -> {
            if (refusal != null && Json.failure(refusal).code().equals("refused")) {
                connection.append(failed(asked, Json.failure(refusal).reason()));
            }
        };
        connection.say(answer, true);
    }

    private static Ask failed(Asked asked, String reason) {
        return answer(asked).with("error", reason.substring(0, Math.min(reason.length(), MOST_REASON)));
    }

    private static Ask answer(Asked asked) {
        Ask answer = new Ask("answer").with("request", asked.request().number());
        answer.life = asked.life();
        return answer;
    }
}
