package io.antiphon;

import java.nio.charset.StandardCharsets;

/**
 * What a key has.
 *
 * @param version rises with each change of the map. Unsigned: compare with {@link Long#compareUnsigned}
 */
public record Item(byte[] value, long version) {
    /** The value as text. */
    public String text() {
        return new String(value, StandardCharsets.UTF_8);
    }
}
