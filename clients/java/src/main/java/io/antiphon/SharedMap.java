package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Optional;

/** Keys and values that all nodes share. */
public final class SharedMap {
    private final Connection connection;
    private final String name;

    SharedMap(Connection connection, String name) {
        this.connection = connection;
        this.name = name;
    }

    /** What the key has in the copy of this client's node. */
    public Optional<Item> get(String key) {
        return get(key, false);
    }

    /** What the key has, with all that was written before, anywhere. */
    public Optional<Item> getLatest(String key) {
        return get(key, true);
    }

    /** The new version. */
    public long put(String key, byte[] value, Put... options) {
        Ask ask = ask("put").with("key", key).with("value", value);
        for (Put option : options) {
            option.onto.accept(ask);
        }
        return Json.unsigned(connection.ask(ask), "version");
    }

    /** Puts this text; the new version. */
    public long put(String key, String value, Put... options) {
        return put(key, value.getBytes(UTF_8), options);
    }

    /** What the key had. */
    public Optional<Item> remove(String key) {
        return item(ask("remove").with("key", key));
    }

    /** What the key had; only if it has this version, else there is a {@code conflict}. */
    public Optional<Item> remove(String key, long ifVersion) {
        return item(ask("remove").with("key", key).unsigned("if_version", ifVersion));
    }

    /** Watches all keys. */
    public Watch watch() {
        return Watch.begin(connection, ask("watch"));
    }

    /** Watches this key. */
    public Watch watchKey(String key) {
        return Watch.begin(connection, ask("watch").with("key", key));
    }

    /** Watches the keys that begin so. */
    public Watch watchPrefix(String prefix) {
        return Watch.begin(connection, ask("watch").with("prefix", prefix));
    }

    private Optional<Item> get(String key, boolean latest) {
        return item(ask("get").with("key", key).flag("latest", latest));
    }

    private Optional<Item> item(Ask ask) {
        return Optional.ofNullable(Json.item(connection.ask(ask)));
    }

    private Ask ask(String op) {
        return new Ask(op).with("map", name);
    }
}
