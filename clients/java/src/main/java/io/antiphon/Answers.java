package io.antiphon;

import java.nio.charset.StandardCharsets;
import java.util.Map;

/** What nodes answered to a call or a command, and why the others did not, by their names. */
public record Answers(Map<String, byte[]> replies, Map<String, AntiphonException> failures) {
    /** The answer of this node as text; null if it gave none. */
    public String text(String node) {
        byte[] reply = replies.get(node);
        return reply == null ? null : new String(reply, StandardCharsets.UTF_8);
    }
}
