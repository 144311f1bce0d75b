package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.antiphon.AntiphonException.Ran;
import java.util.List;

/** A group that this client is in: iterate over it. It is left with {@link #close}. */
public final class Group extends Events<Event> {
    private final String name;

    private Group(Connection connection, String name, Stream<Event> stream) {
        super(connection, stream);
        this.name = name;
    }

    static Group join(Connection connection, String name) {
        Stream<Event> stream = new Stream<>(connection, Thread.currentThread(), (full, unread) -> {
            connection.append(leave(name));
            full.endWith(new Event.Lost(name, "slow: its program waited for a reply while "
                    + connection.mostBytes + " bytes were unread"));
        });
        Ask ask = ask(name);
        ask.onSend = () -> {
            if (connection.groups.putIfAbsent(name, stream) != null) {
                throw new AntiphonException("refused", "this client has joined " + name + " already", Ran.NO);
            }
        };
        ask.onFailure = error -> connection.groups.remove(name, stream);
        ask.undo = reply -> {
            stream.discard();
            return leave(name);
        };
        connection.ask(ask);
        return new Group(connection, name, stream);
    }

    static Ask ask(String name) {
        return new Ask("join").with("group", name).flag("bundles", true);
    }

    /** The group's name. */
    public String name() {
        return name;
    }

    /**
     * Says it to all members, this client too. Without {@link Send#WAIT}, what is not taken is {@code
     * Refused}.
     */
    public void send(byte[] payload, Send... how) {
        say(new Ask("send").with("group", name).with("payload", payload), List.of(how));
    }

    /**
     * Says several things in one line. All members are told all of them, with nothing in between, or none: each
     * is a message, with the same {@code seq} and its {@code part}.
     */
    public void sendBundle(List<byte[]> payloads, Send... how) {
        if (payloads.isEmpty()) {
            throw new AntiphonException("refused", "a bundle has one payload at least", Ran.NO);
        }
        say(new Ask("send_bundle").with("group", name).with("payloads", Json.encode(payloads)), List.of(how));
    }

    private void say(Ask ask, List<Send> ways) {
        boolean in = connection.locked(() -> {
            connection.check();
            return connection.groups.get(name) == stream && !stream.over;
        });
        if (!in) {
            throw new AntiphonException("not_held", "this client is not in " + name + ": join it again", Ran.NO);
        }
        ask.flag("safe", ways.contains(Send.SAFE));
        if (ways.contains(Send.WAIT)) {
            connection.ask(ask);
        } else {
            connection.say(ask, false);
        }
    }

    /** Says this text. */
    public void send(String payload, Send... how) {
        send(payload.getBytes(UTF_8), how);
    }

    /** Leaves the group. What is unread is dropped. */
    @Override
    public void close() {
        try {
            connection.leave(name, stream);
        } catch (AntiphonException gone) {
            // It is out, or will be: the agent was told, or the connection is over.
        }
    }

    private static Ask leave(String name) {
        return new Ask("leave").with("group", name);
    }
}
