package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.security.KeyStore;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(120)
class TlsTest {
    private static final char[] PASSWORD = "secret".toCharArray();

    /** A certificate for 127.0.0.1, at both ends. */
    private static SSLContext context(Path folder) throws Exception {
        Path file = folder.resolve("keys.p12");
        int code = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair",
                "-keyalg", "EC", "-dname", "CN=agent", "-ext", "SAN=IP:127.0.0.1", "-storetype", "PKCS12",
                "-keystore", file.toString(), "-storepass", new String(PASSWORD)).inheritIO().start().waitFor();
        assertEquals(0, code);
        KeyStore keys = KeyStore.getInstance(file.toFile(), PASSWORD);
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry("agent", keys.getCertificate("mykey"));
        KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        own.init(keys, PASSWORD);
        TrustManagerFactory others = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        others.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own.getKeyManagers(), others.getTrustManagers(), null);
        return context;
    }

    private static void serve(Socket accepted) {
        try (accepted) {
            String hello = new BufferedReader(new InputStreamReader(accepted.getInputStream(), UTF_8)).readLine();
            String line = hello.contains("\"token\":\"right\"")
                    ? "{'event':'reply','op':'hello','id':1,'welcome':{'client':'x','node':'a'}}"
                    : "{'event':'error','reason':'this token is none of the agent`s','request':null}";
            accepted.getOutputStream().write((line.replace('\'', '"') + "\n").getBytes(UTF_8));
            if (hello.contains("right")) {
                accepted.getInputStream().read(); // what the client says at its end
            }
        } catch (IOException noHandshake) {
            // The client does not trust this certificate.
        }
    }

    @Test
    void a_token_is_shown_over_tls_and_a_wrong_one_is_told(@TempDir Path folder) throws Exception {
        SSLContext context = context(folder);
        try (var listener = context.getServerSocketFactory().createServerSocket(0, 5, InetAddress.getByName("127.0.0.1"))) {
            Connection.daemon("agent", () -> {
                while (true) {
                    try {
                        serve(listener.accept());
                    } catch (IOException closed) {
                        return;
                    }
                }
            }).start();
            String address = "127.0.0.1:" + listener.getLocalPort();
            Options options = new Options().timeout(Peer.WITHIN);
            Client client = Client.connect(address, "x", options.tls(context).token("right"));
            assertEquals("a/x", client.member());
            client.close();
            var wrong = assertThrows(ConnectionLostException.class,
                    () -> Client.connect(address, "x", options.token("wrong")));
            assertEquals("this token is none of the agent`s", wrong.lostCause());
            var stranger = assertThrows(ConnectionLostException.class,
                    () -> Client.connect(address, "x", options.tls(SSLContext.getDefault())));
            assertTrue(stranger.lostCause().startsWith("TLS with 127.0.0.1"), stranger.lostCause());
            try (Tls channel = (Tls) Address.connect(address, Peer.WITHIN, context)) {
                ClientTest.assertIsKeptAlive(channel.socket);
                channel.write(ByteBuffer.wrap("{}\n".getBytes(UTF_8))); // which the agent does not welcome
            }
        }
    }
}
