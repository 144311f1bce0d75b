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
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * An agent that follows a script: it takes a connection, answers hello, and then plays. With further scripts
 * it takes a connection for each, when the one before is over, and leaves hello to them.
 */
final class Peer implements AutoCloseable {
    static final Duration WITHIN = Duration.ofSeconds(20);

    interface Script {
        void play(Peer peer) throws Exception;
    }

    private final ServerSocket listener;
    private final CompletableFuture<Void> played = new CompletableFuture<>();
    private Socket socket;
    private BufferedReader lines;

    Peer(Script first, Script... further) throws IOException {
        listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        Connection.daemon("peer", () -> {
            try (listener) {
                play(script -> {
                    reply("hello", RESUMABLE);
                    first.play(script);
                });
                for (Script script : further) {
                    play(script);
                }
                played.complete(null);
            } catch (Throwable error) {
                played.completeExceptionally(error);
            }
        }).start();
    }

    private void play(Script script) throws Exception {
        try (Socket accepted = listener.accept()) {
            socket = accepted;
            socket.setSoTimeout((int) WITHIN.toMillis());
            lines = new BufferedReader(new InputStreamReader(socket.getInputStream(), UTF_8));
            script.play(this);
        }
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

    /** Answers a client that comes back: it has so many lines, and so many of its own were taken. */
    void resumes(int has, int taken) throws IOException {
        JsonObject hello = hear("hello");
        assertEquals(json("{'name':'x','grace':'10000ms','resume':'KEY','lines':" + has + "}"), hello);
        resumed(taken);
    }

    void resumed(int taken) throws IOException {
        say("{'event':'reply','op':'hello'," + RESUMABLE.replace("}", ",'resumed':" + taken + "}") + "}");
    }

    void sayHalf(String event) throws IOException {
        socket.getOutputStream().write(event.replace('\'', '"').substring(0, event.length() / 2).getBytes(UTF_8));
    }

    void hearBytes(int count) throws IOException {
        for (int at = 0; at < count; at++) {
            lines.read();
        }
    }

    Map<String, JsonElement> hearAny() throws IOException {
        return JsonParser.parseString(lines.readLine()).getAsJsonObject().asMap();
    }

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

    static final String RESUMABLE =
            "'welcome':{'client':'x','node':'a','cluster':'shop','build':'0.1.0','resume':'KEY'}";

    static final String VIEW = "{'event':'view','group':'g','id':'1.1','members':['a/x'],'joined':['a/x'],'left':[],"
            + "'crashed':['b/y'],'causes':{'b/y':'slow: why'},'transitional':[],'primary':true}";

    static JsonElement json(String text) {
        return JsonParser.parseString(text.replace('\'', '"'));
    }
}
