package io.antiphon;

import com.google.gson.JsonPrimitive;
import java.time.Duration;
import java.util.function.Consumer;

/** How nodes are commanded. */
public final class CommandOption {
    final Consumer<Ask> change;

    private CommandOption(Consumer<Ask> change) {
        this.change = change;
    }

    /**
     * The way to the nodes: {@code library}, which it is if not given, {@code http}, {@code https}, {@code
     * http_kept}, {@code https_kept}, {@code websocket}, {@code resp} or {@code udp}.
     */
    public static CommandOption by(String way) {
        return new CommandOption(ask -> ask.with("by", way));
    }

    /** How long it may take; as long as the list says if not given. */
    public static CommandOption within(Duration within) {
        return new CommandOption(ask -> ask.with("within", within));
    }

    /**
     * There is a reply when the command is in the queues, with the failures of the nodes whose queue is full or
     * that are no members.
     */
    public static CommandOption noReply() {
        return new CommandOption(ask -> ask.with("reply", new JsonPrimitive(false)));
    }
}
