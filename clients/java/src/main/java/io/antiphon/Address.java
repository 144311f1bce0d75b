package io.antiphon;

import io.antiphon.AntiphonException.Ran;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketOption;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import jdk.net.ExtendedSocketOptions;

/** Where an agent serves programs: "host:port" or "unix:/path". */
final class Address {
    /** Seconds of silence, seconds, times: as the agent asks its clients. */
    private static final Map<SocketOption<Integer>, Integer> ASKS = Map.of(ExtendedSocketOptions.TCP_KEEPIDLE, 60,
            ExtendedSocketOptions.TCP_KEEPINTERVAL, 10, ExtendedSocketOptions.TCP_KEEPCOUNT, 6);

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

    /**
     * Lines go at once, and a host that goes without a word is noticed within two minutes, as long as nothing waits to
     * be sent to it.
     */
    static void prepare(Socket socket) throws IOException {
        socket.setTcpNoDelay(true);
        socket.setKeepAlive(true);
        for (Map.Entry<SocketOption<Integer>, Integer> asks : ASKS.entrySet()) {
            if (socket.supportedOptions().contains(asks.getKey())) { // not on each system
                socket.setOption(asks.getKey(), asks.getValue());
            }
        }
    }

    private static SocketChannel tcp(SocketAddress where, Duration timeout) throws IOException {
        SocketChannel channel = SocketChannel.open();
        try {
            prepare(channel.socket());
            channel.socket().connect(where, (int) Math.min(Math.max(1, timeout.toMillis()), Integer.MAX_VALUE));
            return channel;
        } catch (IOException | UnresolvedAddressException error) {
            channel.close();
            throw error;
        }
    }
}
