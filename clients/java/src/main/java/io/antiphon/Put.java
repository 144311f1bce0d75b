package io.antiphon;

import java.time.Duration;
import java.util.function.Consumer;

/** A condition of {@link SharedMap#put}, or for how long the value is there. */
public final class Put {
    final Consumer<Ask> onto;

    private Put(Consumer<Ask> onto) {
        this.onto = onto;
    }

    /** Only if the key has this version; else there is a {@code conflict}. */
    public static Put ifVersion(long version) {
        return new Put(ask -> ask.unsigned("if_version", version));
    }

    /** Only if the key has no value. */
    public static Put ifAbsent() {
        return ifVersion(0);
    }

    /** The value goes after this time. */
    public static Put ttl(Duration ttl) {
        return new Put(ask -> ask.with("ttl", ttl));
    }
}
