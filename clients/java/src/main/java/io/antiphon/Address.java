package io.antiphon;

import io.antiphon.AntiphonException.Ran;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;

/** Where an agent serves programs: "host:port" or "unix:/path". */
final class Address {
    private Address() {}

    /** @param tls is not spoken if it is null, or at a Unix socket */
    static ByteChannel connect(String address, Duration timeout, SSLContext tls) {
        SocketAddress where = parse(address);
        try {
            if (where instanceof UnixDomainSocketAddress path) {
                return local(path);
            }
            return tls == null ? tcp(where, timeout) : Tls.connect((InetSocketAddress) where, tls, timeout);
        } catch (IOException | UnresolvedAddressException error) {
            if (Thread.currentThread().isInterrupted()) {
                throw Connection.interrupted(Ran.NO);
            }
            if (error instanceof SSLException) {
                throw new ConnectionLostException("TLS with " + address + " failed (" + error + "): the context has to "
                        + "trust the authority of the agent's certificate, and that has to be for this host", Ran.NO);
            }
            throw new ConnectionLostException("no agent serves at " + address + " (" + error + "): start one there, "
                    + "or give the address that it says in its line `serving`", Ran.NO);
        }
    }

    static SocketAddress parse(String text) {
        if (text.startsWith("unix:")) {
            return UnixDomainSocketAddress.of(text.substring("unix:".length()));
        }
        int colon = text.lastIndexOf(':');
        if (colon <= 0 || !text.substring(colon + 1).matches("\\d{1,5}")) {
            throw new IllegalArgumentException("an address is \"host:port\" or \"unix:/path\", not \"" + text + '"');
        }
        String host = text.substring(0, colon).replaceAll("^\\[|]$", "");
        return new InetSocketAddress(host, Integer.parseInt(text.substring(colon + 1)));
    }

    private static SocketChannel local(UnixDomainSocketAddress path) throws IOException {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        try {
            channel.connect(path);
            return channel;
        } catch (IOException error) {
            channel.close();
            throw error;
        }
    }

    private static SocketChannel tcp(SocketAddress where, Duration timeout) throws IOException {
        SocketChannel channel = SocketChannel.open();
        try {
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            channel.socket().connect(where, (int) Math.min(Math.max(1, timeout.toMillis()), Integer.MAX_VALUE));
            return channel;
        } catch (IOException | UnresolvedAddressException error) {
            channel.close();
            throw error;
        }
    }
}
