package io.antiphon;

import java.time.Duration;
import javax.net.ssl.SSLContext;

/** How a client connects. What is not given has a default. */
public final class Options {
    /** The longest time that an agent holds a client's place. */
    private static final Duration MOST_GRACE = Duration.ofSeconds(10);

    Duration timeout = Duration.ofSeconds(10);
    int bufferBytes = Connection.BUFFER_BYTES;
    Duration grace = Duration.ZERO;
    String token;
    SSLContext tls;

    /** For connecting, and again for the agent's first reply; 10 s. */
    public Options timeout(Duration timeout) {
        this.timeout = timeout;
        return this;
    }

    /** Of a group, a watch or a served verb: with more unread, the client stops reading; 1 MiB. */
    public Options bufferBytes(int bufferBytes) {
        this.bufferBytes = bufferBytes;
        return this;
    }

    /**
     * If the connection breaks, the client comes back by itself for up to this time, 10 s at most. For so long
     * the agent holds its place: it goes on where it was, and nobody sees a change.
     *
     * <p>If the time was over, or the agent is another process, the client comes back as a new one of the same
     * name. It joins its groups again, which are told {@link Event.Resync}, and serves its verbs again. What it
     * held and watched is lost. Operations under way fail with the code {@code connection}; messages that were
     * sent without {@link Send#WAIT} may be lost.
     */
    public Options grace(Duration grace) {
        if (grace.isNegative() || grace.compareTo(MOST_GRACE) > 0) {
            throw new IllegalArgumentException("the grace is " + grace + ": give 0 to " + MOST_GRACE);
        }
        this.grace = grace;
        return this;
    }

    /** Is shown to an agent that asks for one. */
    public Options token(String token) {
        this.token = token;
        return this;
    }

    /** At a TCP address TLS is spoken; the agent's certificate is for the address's host. */
    public Options tls(SSLContext tls) {
        this.tls = tls;
        return this;
    }
}
