package io.antiphon;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.time.Duration;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** TLS as a channel, for buffers that have an array. */
final class Tls implements ByteChannel {
    final Socket socket;
    private final InputStream in;
    private final OutputStream out;

    private Tls(Socket socket, SSLSocket secured) throws IOException {
        this.socket = socket;
        in = secured.getInputStream();
        out = secured.getOutputStream();
    }

    static Tls connect(InetSocketAddress where, SSLContext context, Duration timeout) throws IOException {
        int millis = (int) Math.min(Math.max(1, timeout.toMillis()), Integer.MAX_VALUE);
        Socket socket = new Socket();
        try {
            Address.prepare(socket);
            socket.connect(where, millis);
            socket.setSoTimeout(millis);
            SSLSocket secured = (SSLSocket) context.getSocketFactory()
                    .createSocket(socket, where.getHostString(), where.getPort(), true);
            SSLParameters parameters = secured.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            secured.setSSLParameters(parameters);
            secured.startHandshake();
            socket.setSoTimeout(0);
            return new Tls(socket, secured);
        } catch (IOException | RuntimeException error) {
            socket.close();
            throw error;
        }
    }

    @Override
    public int read(ByteBuffer into) throws IOException {
        int read = in.read(into.array(), into.arrayOffset() + into.position(), into.remaining());
        into.position(into.position() + Math.max(0, read));
        return read;
    }

    @Override
    public int write(ByteBuffer from) throws IOException {
        int length = from.remaining();
        out.write(from.array(), from.arrayOffset() + from.position(), length);
        from.position(from.limit());
        return length;
    }

    @Override
    public boolean isOpen() {
        return !socket.isClosed();
    }

    /** Without a farewell, for which it might have to wait. */
    @Override
    public void close() throws IOException {
        socket.close();
    }
}
