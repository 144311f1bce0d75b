package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** An agent that follows a script: it takes one connection, answers hello, and then plays. */
final class Peer implements AutoCloseable {
    static final Duration WITHIN = Duration.ofSeconds(20);

    interface Script {
        void play(Peer peer) throws Exception;
    }

    private final ServerSocket listener;
    private final CompletableFuture<Void> played = new CompletableFuture<>();
    private Socket socket;
    private BufferedReader lines;

    Peer(Script script) throws IOException {
        listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        Connection.daemon("peer", () -> {
            try (listener; Socket accepted = listener.accept()) {
                socket = accepted;
                socket.setSoTimeout((int) WITHIN.toMillis());
                lines = new BufferedReader(new InputStreamReader(socket.getInputStream(), UTF_8));
                reply("hello", "'welcome':{'client':'x','node':'a','cluster':'shop','build':'0.1.0'}");
                script.play(this);
                played.complete(null);
            } catch (Throwable error) {
                played.completeExceptionally(error);
            }
        }).start();
    }

    String address() {
        return "127.0.0.1:" + listener.getLocalPort();
    }

    /** A client with small buffers. */
    Client connect(int bufferBytes, int mostBytes) {
        return Client.connect(address(), "x", new Options().timeout(WITHIN).bufferBytes(bufferBytes), mostBytes);
    }

    Client connect() {
        return Client.connect(address(), "x");
    }

    /** Waits until the script is played, and fails if it does. */
    @Override
    public void close() throws Exception {
        played.get(WITHIN.toSeconds(), TimeUnit.SECONDS);
    }

    // For scripts. Single quotes stand for double ones.

    JsonObject hear(String op) throws IOException {
        String line = lines.readLine();
        JsonObject heard = JsonParser.parseString(line).getAsJsonObject();
        assertTrue(heard.has(op), "expected " + op + ", came " + line);
        return heard.getAsJsonObject(op);
    }

    void hear(String op, String fields) throws IOException {
        assertEquals(json(fields), hear(op), op);
    }

    void say(String... events) throws IOException {
        for (String event : events) {
            socket.getOutputStream().write((event.replace('\'', '"') + "\n").getBytes(UTF_8));
        }
    }

    /** Hears this operation and replies to it. */
    long reply(String op, String... fields) throws IOException {
        long id = hear(op).get("id").getAsLong();
        replyTo(id, op, fields);
        return id;
    }

    void replyTo(long id, String op, String... fields) throws IOException {
        String more = fields.length == 0 ? "" : "," + String.join(",", fields);
        say("{'event':'reply','op':'" + op + "','id':" + id + more + "}");
    }

    /** Until the client ends the connection in order. */
    void hearTheEnd() throws IOException {
        hear("leave");
    }

    void sayMessages(int count, int bytes) throws IOException {
        for (int seq = 1; seq <= count; seq++) {
            say(message(seq, "x".repeat(bytes)));
        }
    }

    static String message(int seq, String payload) {
        return "{'event':'message','group':'g','view':'1.1','sender':'a/y','seq':" + seq + ",'payload':'" + payload
                + "'}";
    }

    static final String VIEW = "{'event':'view','group':'g','id':'1.1','members':['a/x'],'joined':['a/x'],'left':[],"
            + "'crashed':['b/y'],'causes':{'b/y':'slow: why'},'transitional':[],'primary':true}";

    static JsonElement json(String text) {
        return JsonParser.parseString(text.replace('\'', '"'));
    }
}
