package io.antiphon;

/**
 * The connection to the agent is over, or there is none. What this client held is free, and it is out of its
 * groups. Connect again, here or at another agent, as a new client.
 */
public final class ConnectionLostException extends AntiphonException {
    private static final long serialVersionUID = 1;

    ConnectionLostException(String cause, Ran ran) {
        super("connection", cause, ran);
    }

    /** Why the connection is over. */
    public String lostCause() {
        return reason();
    }
}
