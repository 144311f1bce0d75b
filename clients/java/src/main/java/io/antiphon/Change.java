package io.antiphon;

/** What a {@link Watch} tells. */
public sealed interface Change {
    /** The watch begins, or begins anew: as many {@link Changed} follow as there are entries. */
    record Watching(long entries) implements Change {}

    /**
     * A key has another value, or none any more.
     *
     * @param value null if there is none
     * @param version unsigned, as all versions
     * @param gone "removed" or "expired" if there is no value, else null
     */
    record Changed(String key, byte[] value, long version, String gone) implements Change {
        /** The value as text; null if there is none. */
        public String text() {
            return value == null ? null : new String(value, java.nio.charset.StandardCharsets.UTF_8);
        }
    }
}
