package io.antiphon;

/** A job that this client leads. */
public final class Leadership extends Guard {
    Leadership(Connection connection, String job) {
        super(connection, "lead", "resign", job, null);
    }

    /** Leads no more: the node that has waited longest does. */
    public void resign() {
        unlock();
    }

    /** This node leads next; it must wait for it. */
    public void resign(String node) {
        giveBackTo(node);
    }
}
