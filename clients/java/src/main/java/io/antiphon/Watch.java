package io.antiphon;

import io.antiphon.AntiphonException.Ran;

/** A watch of a map: what is there, and then each change. It ends with {@link #close}. */
public final class Watch extends Events<Change> {
    private final long id;

    private Watch(Connection connection, Stream<Change> stream, long id) {
        super(connection, stream);
        this.id = id;
    }

    static Watch begin(Connection connection, Ask ask) {
        Stream<Change> stream = new Stream<>(connection, Thread.currentThread(), (full, unread) -> {
            end(connection, ask.id);
            String cause = "slow: its program waited for a reply while " + connection.mostBytes + " bytes were unread";
            full.end(() -> new AntiphonException("lost", cause, Ran.NO));
        });
        ask.onReply = reply -> connection.watches.put(ask.id, stream);
        ask.undo = reply -> new Ask("cancel").with("of", ask.id);
        connection.ask(ask);
        return new Watch(connection, stream, ask.id);
    }

    @Override
    public void close() {
        connection.locked(() -> {
            end(connection, id);
            stream.discard();
            return null;
        });
    }

    private static void end(Connection connection, long id) {
        if (connection.watches.remove(id) != null) {
            connection.append(new Ask("cancel").with("of", id));
        }
    }
}
