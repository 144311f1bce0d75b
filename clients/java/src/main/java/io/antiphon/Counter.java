package io.antiphon;

/** A number that all nodes share. */
public final class Counter {
    private final Connection connection;
    private final String name;

    Counter(Connection connection, String name) {
        this.connection = connection;
        this.name = name;
    }

    /** Its new value. */
    public long add(long by) {
        return connection.ask(new Ask("add").with("counter", name).with("by", by)).get("value").getAsLong();
    }
}
