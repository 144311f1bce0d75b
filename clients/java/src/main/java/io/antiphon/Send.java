package io.antiphon;

/** How {@link Group#send} and {@link Group#sendBundle} send. */
public enum Send {
    /** The message is delivered only when every node of the group holds it. */
    SAFE,
    /** The call returns when the message was delivered, or throws if it was not taken. */
    WAIT
}
