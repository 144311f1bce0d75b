package io.antiphon;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/** What a group is told, in the order of the group. Members are named NODE/CLIENT. */
public sealed interface Event {
    /** The group's name. */
    String group();

    /**
     * The members of the group: messages that follow are delivered among these.
     *
     * @param joined members that the view before did not have
     * @param left those that left in order
     * @param crashed those that are gone without having left
     * @param causes why each of those is gone
     * @param transitional those that came from the same view as this client, with the same messages
     */
    record View(String group, String id, List<String> members, List<String> joined, List<String> left,
                List<String> crashed, Map<String, String> causes, List<String> transitional, boolean primary)
            implements Event {}

    /**
     * What a member has sent.
     *
     * @param seq counts what all clients of the sender's node have said
     * @param part its place in its bundle, whose messages have one {@code seq}; 0 if it was sent alone
     */
    record Message(String group, String view, String sender, long seq, byte[] payload, boolean safe, int part)
            implements Event {
        /** The payload as text. */
        public String text() {
            return new String(payload, StandardCharsets.UTF_8);
        }
    }

    /** What follows until the group's next view was completed among these members. */
    record Transitional(String group, List<String> members) implements Event {}

    /** Nothing is delivered and nothing can be sent until there is a majority. */
    record Suspended(String group) implements Event {}

    /** The agent's node was away: what this client knows of the group may be old. A view follows. */
    record Resync(String group, String cause) implements Event {}

    /** This client is out of the group, and the events end. It may join again. */
    record Lost(String group, String cause) implements Event {}

    /**
     * A message of this client, sent without {@link Send#WAIT}, was not taken. A long payload does not come back: it
     * is null, and of a bundle there is one such event.
     */
    record Refused(String group, String reason, byte[] payload) implements Event {}
}
