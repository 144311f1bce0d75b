package io.antiphon;

import java.util.Map;
import java.util.OptionalLong;

/**
 * Something was not done.
 *
 * <p>The codes are those of the agent ({@code conflict}, {@code timeout}, {@code cancelled}, {@code
 * not_held}, {@code lost}, {@code unavailable}, {@code refused}, {@code unknown}, {@code failed}) and two
 * of this client: {@code connection} is that of a {@link ConnectionLostException}, or says that the client
 * came back as a new one meanwhile, and {@code interrupted} that the thread was interrupted while it waited.
 * Its interrupt status is set again then.
 */
public class AntiphonException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Whether something happened all the same. */
    public enum Ran {
        /** It did not, and will not: trying again is safe. */
        NO,
        /** Nobody can say; it may happen yet. Read before you try again. */
        MAYBE,
        /** It did: the handler of a call ran. */
        YES
    }

    private final String code;
    private final String reason;
    private final Ran ran;
    private final transient Long version;
    private final transient byte[] payload;
    private final transient Map<String, AntiphonException> failures;

    AntiphonException(String code, String reason, Ran ran) {
        this(code, reason, ran, null, null, Map.of());
    }

    AntiphonException(String code, String reason, Ran ran, Long version, byte[] payload,
                      Map<String, AntiphonException> failures) {
        super(code + ": " + reason);
        this.code = code;
        this.reason = reason;
        this.ran = ran;
        this.version = version;
        this.payload = payload;
        this.failures = failures;
    }

    /** What a program decides by. */
    public String code() {
        return code;
    }

    /** For people: what is wrong, and what to do. */
    public String reason() {
        return reason;
    }

    /** Whether it happened all the same. */
    public Ran ran() {
        return ran;
    }

    /** Of a conflict: the version that the key has, if it has a value. */
    public OptionalLong version() {
        return version == null ? OptionalLong.empty() : OptionalLong.of(version);
    }

    /** Of a handler that failed: what it said; else null. */
    public byte[] payload() {
        return payload;
    }

    /** Of a call: why each node gave no answer, by its name. */
    public Map<String, AntiphonException> failures() {
        return failures;
    }
}
