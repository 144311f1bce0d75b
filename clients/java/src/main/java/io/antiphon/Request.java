package io.antiphon;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;

/**
 * What a node of the cluster wants done: a call, or a command.
 *
 * @param group null of a command
 * @param sender the node that calls
 * @param payload empty of a command
 * @param args of a command: each is a String, a Long or a Boolean
 * @param within for how long it still waits
 * @param number what the agent calls this request
 */
public record Request(String group, String verb, String sender, byte[] payload, Map<String, Object> args,
                      Duration within, long number) {
    /** The payload as text. */
    public String text() {
        return new String(payload, StandardCharsets.UTF_8);
    }

    /** Answers requests. */
    @FunctionalInterface
    public interface Handler {
        /**
         * The answer; null is an empty one.
         *
         * @throws Exception whatever it is, the caller is told its message
         */
        byte[] answer(Request request) throws Exception;
    }
}
