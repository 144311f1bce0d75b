package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.antiphon.AntiphonException.Ran;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class ComeBackTest {
    private static final Options GRACE = new Options().timeout(Peer.WITHIN).grace(Duration.ofSeconds(10));

    private static CompletableFuture<AntiphonException> failing(Runnable what) {
        return CompletableFuture.supplyAsync(() -> assertThrows(AntiphonException.class, what::run),
                task -> Connection.daemon("failing", task).start());
    }

    private static void is(String code, Ran ran, CompletableFuture<AntiphonException> error) throws Exception {
        AntiphonException came = error.get(Peer.WITHIN.toSeconds(), TimeUnit.SECONDS);
        assertEquals(code + ran, came.code() + came.ran(), came.reason());
    }

    private static String request(String payload) {
        return "{'event':'request','group':'g','request':1,'verb':'v','from':'b','payload':'" + payload
                + "','within_ms':9}";
    }

    @Test
    void no_line_follows_while_a_mebibyte_is_not_confirmed() {
        Traffic traffic = new Traffic(true);
        traffic.add(new byte[(1 << 20) - 1]);
        assertFalse(traffic.isFull());
        traffic.drain();
        traffic.add(new byte[1]);
        assertTrue(traffic.isFull());
        traffic.letGo(1);
        assertFalse(traffic.isFull());
    }

    @Test
    void what_is_cut_off_in_the_middle_of_a_line_comes_once_in_both_directions() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.say(Peer.message(1, "x"));
            script.sayHalf(Peer.message(2, "x"));
            script.hearBytes(20); // of the next command
        }, script -> script.resumes(3, 2) /* and breaks again before it has done anything */, script -> {
            script.resumes(3, 2);
            script.say(Peer.message(2, "x"));
            script.hear("send", "{'group':'g','payload':'once'}");
            script.say(Peer.message(3, "x"));
            script.reply("add", "'value':1,'version':1");
            script.hearTheEnd();
        }); Client client = Client.connect(peer.address(), "x", GRACE); Group group = client.join("g")) {
            group.iterator().next();
            group.send("once");
            for (int seq = 2; seq <= 3; seq++) {
                assertEquals(seq, assertInstanceOf(Event.Message.class, group.iterator().next()).seq());
            }
            assertEquals(1, client.counter("c").add(1));
            client.close();
        }
    }

    @Test
    void a_bundle_counts_as_one_line_in_both_directions() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.say("{'event':'bundle','group':'g','view':'1.1','sender':'a/y','seq':1,'payloads':['0','1','2']}");
            script.hear("send_bundle", "{'group':'g','payloads':['one','two']}");
        }, script -> {
            script.resumes(3, 3);
            script.reply("send_bundle");
            script.hearTheEnd();
        }); Client client = Client.connect(peer.address(), "x", GRACE); Group group = client.join("g")) {
            for (int part = 0; part < 3; part++) {
                assertEquals(part, assertInstanceOf(Event.Message.class, group.iterator().next()).part());
            }
            List<byte[]> payloads = List.of("one".getBytes(UTF_8), "two".getBytes(UTF_8));
            group.sendBundle(payloads);
            group.sendBundle(payloads, Send.WAIT);
            client.close();
        }
    }

    @Test
    void a_client_that_is_closed_while_its_connection_is_broken_leaves_in_order() throws Exception {
        var closing = new CountDownLatch(1);
        var broken = new CountDownLatch(1);
        try (Peer peer = new Peer(script -> { }, script -> {
            script.hear("hello");
            broken.countDown();
            closing.await();
            script.resumed(1);
            script.hearTheEnd();
        })) {
            Client client = Client.connect(peer.address(), "x", GRACE);
            broken.await();
            Connection.daemon("closes", client::close).start();
            closing.countDown();
        }
    }

    @Test
    void a_client_that_does_not_come_back_in_time_is_lost() throws Exception {
        try (Peer peer = new Peer(script -> script.hear("add"))) {
            Client client = Client.connect(peer.address(), "x", new Options().grace(Duration.ofMillis(250)));
            long began = System.nanoTime();
            var lost = assertThrows(ConnectionLostException.class, () -> client.counter("c").add(1));
            assertTrue(lost.lostCause().contains("within 250ms: no agent serves"), lost.lostCause());
            assertTrue(System.nanoTime() - began >= 250_000_000L);
        }
        assertThrows(IllegalArgumentException.class, () -> new Options().grace(Duration.ofSeconds(11)));
    }

    @Test
    void a_client_that_comes_back_as_a_new_one_is_in_its_groups_again_and_holds_nothing() throws Exception {
        var breaks = new CountDownLatch(1);
        var back = new CountDownLatch(1);
        var added = new CountDownLatch(1);
        var old = new CountDownLatch(1);
        Map<String, JsonElement> again = new HashMap<>();
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.reply("lock", "'token':7");
            script.reply("watch");
            script.reply("serve");
            script.reply("serve_command");
            script.say(request("old"));
            script.hear("add");
            breaks.await();
        }, script -> { // the name is taken still
            script.hear("hello");
            script.say("{'event':'reply','op':'hello','error':{'code':'refused','reason':'called x','ran':'no'}}");
            script.hearTheEnd();
        }, script -> {
            script.hear("hello");
            back.countDown();
            added.await();
            script.say("{'event':'reply','op':'hello'," + Peer.RESUMABLE + "}");
            for (int op = 0; op < 3; op++) { // in any order
                script.hearAny().forEach((word, of) -> {
                    again.put(word, of);
                    try {
                        script.replyTo(of.getAsJsonObject().get("id").getAsLong(), word);
                    } catch (IOException broken) {
                        throw new UncheckedIOException(broken);
                    }
                });
            }
            script.say(request("new"));
            old.countDown();
            JsonObject answer = script.hear("answer");
            assertEquals("new", answer.get("payload").getAsString());
            script.say(Peer.VIEW);
            script.reply("send");
            script.hearTheEnd();
        }); Client client = Client.connect(peer.address(), "x", GRACE)) {
            Group group = client.join("g");
            Guard lock = client.lock("till");
            Watch watch = client.map("m").watch();
            var begun = new CountDownLatch(1);
            Request.Handler handler = request -> {
                if (request.text().equals("old")) {
                    begun.countDown();
                    old.await();
                }
                return request.payload();
            };
            client.serve("g", "v", handler);
            client.serveCommand("flush", handler);
            begun.await();
            int asked = client.asks();
            var maybe = failing(() -> client.counter("c").add(1));
            while (client.asks() == asked) {
                Thread.sleep(1);
            }
            breaks.countDown();
            back.await();
            var no = failing(() -> client.counter("c").add(1)); // which is not even written
            while (client.asks() < asked + 2) {
                Thread.sleep(1);
            }
            added.countDown();
            assertEquals(Connection.ANEW, assertInstanceOf(Event.Resync.class, group.iterator().next()).cause());
            assertInstanceOf(Event.View.class, group.iterator().next());
            is("connection", Ran.MAYBE, maybe);
            is("connection", Ran.NO, no);
            assertEquals(Connection.ANEW, lock.lost().get());
            is("lost", Ran.NO, failing(() -> watch.iterator().next()));
            assertEquals(Set.of("join", "serve", "serve_command"), again.keySet());
            group.send("back", Send.WAIT);
        }
    }

    @Test
    void sending_waits_while_the_agent_takes_nothing() throws Exception {
        var let = new CountDownLatch(1);
        var sender = new CompletableFuture<Thread>();
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            for (int heard = 0; heard < 11; heard++) {
                script.hear("send");
            }
            let.await();
            script.say("{'event':'took','lines':13}");
            for (int heard = 0; heard < 5; heard++) {
                script.hear("send");
            }
            script.hearTheEnd();
        }); Client client = Client.connect(peer.address(), "x", GRACE)) {
            Group group = client.join("g");
            int[] sent = {0};
            var done = CompletableFuture.runAsync(() -> {
                sender.complete(Thread.currentThread());
                for (; sent[0] < 16; sent[0]++) {
                    group.send("x".repeat(100_000));
                }
            }, task -> Connection.daemon("sender", task).start());
            Thread thread = sender.get();
            while (thread.getState() != Thread.State.WAITING || !client.waits(thread)) {
                Thread.sleep(1);
            }
            assertEquals(11, sent[0]);
            let.countDown();
            done.get();
        }
    }

    @Test
    void what_waits_for_room_while_its_client_comes_back_as_a_new_one_is_not_asked_for() throws Exception {
        var breaks = new CountDownLatch(1);
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            for (int heard = 0; heard < 11; heard++) {
                script.hear("send");
            }
            breaks.await();
        }, script -> {
            script.hear("hello");
            script.say("{'event':'reply','op':'hello'," + Peer.RESUMABLE + "}");
            assertEquals("g", script.hear("join").get("group").getAsString());
            script.reply("join");
            script.reply("serve");
            script.hearTheEnd();
        }); Client client = Client.connect(peer.address(), "x", GRACE)) {
            Group group = client.join("g");
            for (int sent = 0; sent < 11; sent++) {
                group.send("x".repeat(100_000));
            }
            List<Runnable> both = List.of(() -> client.join("h"), () -> client.serve("g", "v", Request::payload));
            List<CompletableFuture<AntiphonException>> failing = new ArrayList<>();
            for (Runnable asks : both) {
                var thread = new CompletableFuture<Thread>();
                failing.add(failing(() -> {
                    thread.complete(Thread.currentThread());
                    asks.run();
                }));
                while (!client.waits(thread.get())) {
                    Thread.sleep(1);
                }
            }
            breaks.countDown();
            for (var error : failing) {
                is("connection", Ran.NO, error);
            }
            both.forEach(Runnable::run);
        }
    }

    // A connection that breaks anywhere.

    /** An agent's side of the protocol. Its connections break after random bytes, in each direction. */
    private static final class Keeper implements AutoCloseable {
        private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        private final Random random;
        private int breaks;
        private int number;
        private int accepted;
        private int tookSaid;
        private int tookHeard;
        private final Set<Long> ids = new HashSet<>();
        private final List<String> told = new ArrayList<>();
        private String wrong;

        Keeper(long seed, int breaks) throws IOException {
            random = new Random(seed);
            this.breaks = breaks;
            Connection.daemon("keeper", () -> {
                while (true) {
                    try {
                        Socket socket = listener.accept();
                        Connection.daemon("kept", () -> serve(socket)).start();
                    } catch (IOException closed) {
                        return;
                    }
                }
            }).start();
        }

        private synchronized int begin() {
            notifyAll();
            return ++number;
        }

        private synchronized int budget() {
            return breaks-- > 0 ? 300 + random.nextInt(30_000) : Integer.MAX_VALUE;
        }

        private void serve(Socket socket) {
            int now = begin();
            int most = budget();
            try (socket) {
                var in = new BufferedReader(new InputStreamReader(socket.getInputStream(), UTF_8));
                int heard = 0;
                boolean first = true;
                // A line that the end of the connection has cut off is no line.
                for (String line = whole(in); line != null; line = whole(in)) {
                    heard += line.length();
                    if (heard > most) {
                        return;
                    }
                    JsonObject command = JsonParser.parseString(line).getAsJsonObject();
                    String op = command.keySet().iterator().next();
                    if (!take(now, op, command.getAsJsonObject(op), socket, first, most)) {
                        return;
                    }
                    first = false;
                }
            } catch (IOException broken) {
                // So it was to be.
            }
        }

        private static String whole(BufferedReader in) throws IOException {
            var line = new StringBuilder();
            for (int c = in.read(); c >= 0; c = in.read()) {
                if (c == '\n') {
                    return line.toString();
                }
                line.append((char) c);
            }
            return null;
        }

        private synchronized boolean take(int now, String op, JsonObject of, Socket socket, boolean first, int most)
                throws IOException {
            if (now != number) {
                return false;
            }
            if (first) {
                int from = 0;
                String welcome = "{'event':'reply','op':'hello','id':1," + Peer.RESUMABLE + "}";
                if (of.has("resume")) {
                    from = of.get("lines").getAsInt();
                    String reply = welcome.replace("}}", ",'resumed':" + accepted + "}}");
                    socket.getOutputStream().write((reply.replace('\'', '"') + "\n").getBytes(UTF_8));
                } else {
                    accepted++;
                    told.add(welcome);
                }
                int begin = from;
                Connection.daemon("tells", () -> tell(now, socket, begin, most)).start();
                return true;
            }
            if (op.equals("took")) {
                int lines = of.get("lines").getAsInt();
                if (lines <= tookHeard || lines > told.size()) {
                    wrong = "the client took " + tookHeard + ", then " + lines + " of " + told.size();
                }
                tookHeard = lines;
                return true;
            }
            accepted++;
            if (of.has("id")) {
                long id = of.get("id").getAsLong();
                if (!ids.add(id)) {
                    wrong = op + " with id " + id + " came twice";
                }
                told.add("{'event':'reply','op':'" + op + "','id':" + id + ",'value':1,'version':1}");
            }
            if (op.equals("send")) {
                told.add(Peer.message(1, of.get("payload").getAsString()));
            }
            notifyAll();
            return true;
        }

        private void tell(int now, Socket socket, int from, int most) {
            int left = most;
            try (socket) {
                for (int at = from; ; ) {
                    String line;
                    synchronized (this) {
                        while (now == number && at >= told.size() && accepted < tookSaid + 256) {
                            wait();
                        }
                        if (now != number) {
                            return;
                        }
                        if (accepted >= tookSaid + 256) {
                            tookSaid = accepted;
                            line = "{'event':'took','lines':" + accepted + "}";
                        } else {
                            line = told.get(at++);
                        }
                    }
                    byte[] bytes = (line.replace('\'', '"') + "\n").getBytes(UTF_8);
                    socket.getOutputStream().write(bytes, 0, Math.min(bytes.length, left));
                    left -= Math.min(bytes.length, left);
                    if (left == 0) {
                        return;
                    }
                }
            } catch (IOException | InterruptedException broken) {
                // So it was to be.
            }
        }

        @Override
        public void close() throws IOException {
            listener.close();
        }
    }

    @Test
    void a_connection_that_breaks_anywhere_loses_and_repeats_nothing() throws Exception {
        final int many = 3000;
        for (long seed = 0; seed < 3; seed++) {
            try (Keeper keeper = new Keeper(seed, 20)) {
                Client client = Client.connect("127.0.0.1:" + keeper.listener.getLocalPort(), "x", GRACE);
                Group group = client.join("g");
                var sends = CompletableFuture.runAsync(() -> {
                    for (int at = 0; at < many; at++) {
                        group.send(at + " " + "x".repeat(80));
                    }
                }, task -> Connection.daemon("sends", task).start());
                var adds = CompletableFuture.runAsync(() -> {
                    for (int at = 0; at < 300; at++) {
                        client.counter("c").add(1);
                    }
                }, task -> Connection.daemon("adds", task).start());
                for (int at = 0; at < many; at++) {
                    String text = assertInstanceOf(Event.Message.class, group.iterator().next()).text();
                    assertTrue(text.startsWith(at + " x"), "seed " + seed + ", expected " + at + ", came " + text);
                }
                CompletableFuture.allOf(sends, adds).get(Peer.WITHIN.toSeconds(), TimeUnit.SECONDS);
                synchronized (keeper) {
                    assertEquals(null, keeper.wrong);
                    assertEquals(1 + 1 + many + 300, keeper.accepted);
                    assertTrue(keeper.breaks < 0, keeper.breaks + " breaks were not needed");
                    assertTrue(keeper.told.size() - keeper.tookHeard <= 512, keeper.tookHeard + " were taken");
                }
                client.abandon();
            }
        }
    }

    // Commands.

    @Test
    void a_command_is_asked_for_and_carried_out() throws Exception {
        var answered = new CompletableFuture<Void>();
        try (Peer peer = new Peer(script -> {
            script.hear("command", "{'verb':'flush','args':{'key':'/tea'},'to':['b','c'],'by':'udp',"
                    + "'within':'2000ms','id':2}");
            script.replyTo(2, "command", "'replies':{'b':'forgotten'}",
                    "'failures':{'c':{'code':'unavailable','reason':'no','ran':'no'}}");
            script.hear("command", "{'verb':'flush','args':{},'to':'one','reply':false,'id':3}");
            script.replyTo(3, "command", "'failures':{'b':{'code':'failed','reason':'r','ran':'yes'}}",
                    "'error':{'code':'failed','reason':'no node did it','ran':'yes'}");
            script.reply("commands", "'commands':{'list':5}");
            script.reply("serve_command");
            script.say("{'event':'command','request':3,'verb':'flush','from':'b',"
                    + "'args':{'depth':9007199254740993,'key':'x','deep':false},'within_ms':1990}");
            JsonObject answer = script.hear("answer");
            assertEquals("3 done", answer.get("request") + " " + answer.get("payload").getAsString());
            answered.complete(null);
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Answers answers = client.command("flush", Map.of("key", "/tea"), To.nodes("b", "c"),
                    CommandOption.by("udp"), CommandOption.within(Duration.ofSeconds(2)));
            assertEquals("forgotten", answers.text("b"));
            assertEquals(Ran.NO, answers.failures().get("c").ran());
            var failed = assertThrows(AntiphonException.class,
                    () -> client.command("flush", Map.of(), To.ONE, CommandOption.noReply()));
            assertEquals("r", failed.failures().get("b").reason());
            assertEquals("{\"list\":5}", client.commands());
            var came = new CompletableFuture<Request>();
            client.serveCommand("flush", request -> {
                came.complete(request);
                return "done".getBytes(UTF_8);
            });
            Request request = came.get(Peer.WITHIN.toSeconds(), TimeUnit.SECONDS);
            assertEquals(Map.of("depth", 9007199254740993L, "key", "x", "deep", false), request.args());
            assertArrayEquals(new byte[0], request.payload());
            answered.get(Peer.WITHIN.toSeconds(), TimeUnit.SECONDS);
        }
    }
}
