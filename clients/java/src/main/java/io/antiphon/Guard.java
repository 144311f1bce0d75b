package io.antiphon;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/**
 * A lock that is held. Give its token to what the lock protects: that must refuse a lower one than it has
 * seen, since this process may be stopped between its last look at the lock and what it does.
 */
public sealed class Guard implements AutoCloseable permits Leadership {
    /** With these nothing is held either. */
    private static final Set<String> FREE = Set.of("not_held", "connection", "interrupted");

    private final Connection connection;
    private final String name;
    private final String giveBack;
    private final long id;
    private final long token;
    private final CompletableFuture<String> lost = new CompletableFuture<>();

    /** Waits until it is held. */
    Guard(Connection connection, String op, String giveBack, String name, Duration within) {
        this.connection = connection;
        this.name = name;
        this.giveBack = giveBack;
        Ask ask = new Ask(op).with("name", name).with("within", within);
        ask.onReply = reply -> connection.held.put(ask.id, lost);
        ask.undo = reply -> giveBack(Json.unsigned(reply, "token"));
        token = Json.unsigned(connection.ask(ask), "token");
        id = ask.id;
    }

    /** The name of the lock, or of the job. */
    public String name() {
        return name;
    }

    /** Rises with each grant of the lock. Unsigned: compare with {@link Long#compareUnsigned}. */
    public long token() {
        return token;
    }

    /** Is completed with the cause when the lock is lost; never if it is given back. */
    public CompletableFuture<String> lost() {
        return lost;
    }

    /** Whether it is neither lost nor given back, as far as this process was told. */
    public boolean isHeld() {
        return connection.locked(() -> connection.held.get(id) == lost);
    }

    /** Gives it back. If this thread is interrupted, the agent was told all the same. */
    public void unlock() {
        giveBackTo(null);
    }

    /** Gives it back if it is held. */
    @Override
    public void close() {
        try {
            if (isHeld()) {
                unlock();
            }
        } catch (AntiphonException error) {
            if (!FREE.contains(error.code())) {
                throw error;
            }
        }
    }

    void giveBackTo(String node) {
        Ask ask = giveBack(token).with("to", node).urgent();
        ask.onReply = reply -> connection.held.remove(id);
        // Without a node the agent holds it no more, whatever its reply is. If a job cannot be handed over, the agent
        // leads on.
        ask.onFailure = reply -> {
            if (node == null && reply != null && !Json.failure(reply).code().equals("connection")) {
                connection.held.remove(id);
            }
        };
        connection.ask(ask);
    }

    private Ask giveBack(long token) {
        return new Ask(giveBack).with("name", name).unsigned("token", token);
    }
}
