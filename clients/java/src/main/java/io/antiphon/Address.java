package io.antiphon;

import io.antiphon.AntiphonException.Ran;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;

/** Where an agent serves programs: "host:port" or "unix:/path". */
final class Address {
    private Address() {}

    static SocketChannel connect(String address, Duration timeout) {
        SocketAddress where = parse(address);
        try {
            return where instanceof UnixDomainSocketAddress path ? local(path) : tcp(where, timeout);
        } catch (IOException | UnresolvedAddressException error) {
            if (Thread.currentThread().isInterrupted()) {
                throw Connection.interrupted(Ran.NO);
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
