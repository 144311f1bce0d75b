package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import io.antiphon.AntiphonException.Ran;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import jdk.net.ExtendedSocketOptions;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class ClientTest {
    /** In a thread of its own. */
    private static <T> CompletableFuture<T> begin(Connection.Waits<T> what) {
        CompletableFuture<T> done = new CompletableFuture<>();
        Connection.daemon("begun", () -> {
            try {
                done.complete(what.run());
            } catch (Throwable error) {
                done.completeExceptionally(error);
            }
        }).start();
        return done;
    }

    private static <T> T get(CompletableFuture<T> future) throws Exception {
        return future.get(Peer.WITHIN.toSeconds(), TimeUnit.SECONDS);
    }

    private static AntiphonException fails(String code, org.junit.jupiter.api.function.Executable what) {
        AntiphonException error = assertThrows(AntiphonException.class, what);
        assertEquals(code, error.code(), error.reason());
        return error;
    }

    private static int seq(Event event) {
        return (int) assertInstanceOf(Event.Message.class, event).seq();
    }

    // Replies and events.

    @Test
    void replies_in_any_order_find_those_that_asked() throws Exception {
        try (Peer peer = new Peer(script -> {
            long first = script.hear("add").get("id").getAsLong();
            long second = script.hear("add").get("id").getAsLong();
            script.replyTo(second, "add", "'value':2,'version':1");
            script.replyTo(first, "add", "'value':-1,'version':2");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            var thread = new CompletableFuture<Thread>();
            var first = begin(() -> {
                thread.complete(Thread.currentThread());
                return client.counter("c").add(1);
            });
            while (!client.waits(get(thread))) {
                Thread.onSpinWait();
            }
            assertEquals(2, client.counter("c").add(1));
            assertEquals(-1, get(first));
        }
    }

    @Test
    void tokens_and_versions_keep_all_of_their_64_bits() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("lock", "'token':18446744073709551615");
            script.hear("unlock", "{'name':'till','token':'18446744073709551615','id':3}");
            script.replyTo(3, "unlock");
            long id = script.hear("put").get("id").getAsLong();
            script.replyTo(id, "put", "'version':9223372036854775809,"
                    + "'error':{'code':'conflict','reason':'k has another','ran':'no'}");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            try (Guard guard = client.lock("till")) {
                assertEquals("18446744073709551615", Long.toUnsignedString(guard.token()));
                assertTrue(guard.isHeld());
            }
            AntiphonException conflict = fails("conflict", () -> client.map("m").put("k", "v", Put.ifVersion(7)));
            assertEquals(Ran.NO, conflict.ran());
            assertEquals("9223372036854775809", Long.toUnsignedString(conflict.version().getAsLong()));
        }
    }

    @Test
    void an_operation_is_written_as_the_agent_reads_it() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.hear("put", "{'map':'m','key':'k','value':{'base64':'/wD+'},'if_version':'0','ttl':'251ms','id':2}");
            script.replyTo(2, "put", "'version':7");
            script.hear("call", "{'group':'g','verb':'v','to':['a','b'],'payload':'?','within':'2000ms','id':3}");
            script.replyTo(3, "call", "'replies':{'a':'yes'},"
                    + "'failures':{'b':{'code':'failed','reason':'its handler did','ran':'yes','payload':'no'}}");
            script.hear("why", "{'node':'a'}");
            script.say("{'event':'why','node':'a','facts':['joined']}");
            script.hear("take_ids", "{'count':-1,'id':5}");
            script.say("{'event':'error','reason':'not so many','request':{'take_ids':{'count':-1,'id':5}}}");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            byte[] bytes = {(byte) 0xff, 0, (byte) 0xfe};
            Duration ttl = Duration.ofNanos(250_000_001);
            assertEquals(7, client.map("m").put("k", bytes, Put.ifAbsent(), Put.ttl(ttl)));
            Answers answers = client.call("g", "v", To.nodes("a", "b"), "?", Duration.ofSeconds(2));
            assertEquals("yes", answers.text("a"));
            assertNull(answers.text("b"));
            assertEquals("no", new String(answers.failures().get("b").payload(), UTF_8));
            assertEquals(List.of("joined"), client.why("a"));
            fails("refused", () -> client.takeIds(-1));
        }
    }

    @Test
    void an_argument_that_is_no_whole_number_is_refused() throws Exception {
        try (Peer peer = new Peer(script -> {
            Map<String, JsonElement> asked = script.hear("command").asMap();
            assertEquals(Peer.json("{'big':9223372036854775807,'now':true,'text':'t'}"), asked.get("args"));
            script.replyTo(asked.get("id").getAsLong(), "command", "'replies':{}");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            var tooLarge = BigInteger.ONE.shiftLeft(63);
            for (Number number : List.of(Double.NaN, Float.POSITIVE_INFINITY, 1.5, tooLarge)) {
                fails("refused", () -> client.command("v", Map.of("x", number), To.ALL));
            }
            client.command("v", Map.of("big", Long.MAX_VALUE, "now", true, "text", "t"), To.ALL);
        }
    }

    @Test
    void a_line_that_the_agent_cannot_read_ends_the_connection() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.hear("add");
            script.say("{'event':'error','reason':'not JSON','request':'{add:'}");
        }); Client client = peer.connect()) {
            AntiphonException error = fails("connection", () -> client.counter("c").add(1));
            assertTrue(error.reason().contains("not JSON"), error.reason());
        }
    }

    @Test
    void a_group_is_told_in_one_stream_until_it_is_over() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.say("{'event':'something of a newer agent','group':'g'}", Peer.VIEW);
            script.say("{'event':'message','group':'g','view':'1.1','sender':'a/y','seq':1,"
                    + "'payload':{'base64':'/wD+'},'safe':true}");
            script.hear("send", "{'group':'g','payload':'p','safe':true}");
            script.say("{'event':'refused','group':'g','reason':'no','fatal':false,"
                    + "'request':{'send':{'group':'g','payload':'p'}}}");
            script.say("{'event':'lost','what':'group','name':'g','cause':'slow: why'}", Peer.message(2, "late"));
            script.reply("join");
            script.say(Peer.VIEW);
            script.reply("leave");
            script.say(Peer.message(3, "unread"), "{'event':'group_left','group':'g'}");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            fails("refused", () -> client.join("g"));
            group.send("p", Send.SAFE);
            List<Event> events = new ArrayList<>();
            group.forEach(events::add);
            assertEquals(new Event.View("g", "1.1", List.of("a/x"), List.of("a/x"), List.of(), List.of("b/y"),
                    Map.of("b/y", "slow: why"), List.of(), true), events.get(0));
            Event.Message message = (Event.Message) events.get(1);
            assertArrayEquals(new byte[] {(byte) 0xff, 0, (byte) 0xfe}, message.payload());
            assertTrue(message.safe());
            assertEquals("no", ((Event.Refused) events.get(2)).reason());
            assertEquals(new Event.Lost("g", "slow: why"), events.get(3));
            assertEquals(4, events.size());
            fails("not_held", () -> group.send("too late"));
            assertThrows(NoSuchElementException.class, () -> group.next(Duration.ZERO));
            client.join("g").close();
            assertFalse(group.iterator().hasNext());
        }
    }

    @Test
    void a_group_that_is_lost_while_it_is_left_is_out() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.reply("leave");
            script.say("{'event':'lost','what':'group','name':'g','cause':'slow: why'}");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            assertTimeoutPreemptively(Peer.WITHIN, group::close);
            assertFalse(group.iterator().hasNext());
        }
    }

    private static String bundle(String payloads) {
        return "{'event':'bundle','group':'g','view':'1.1','sender':'a/y','seq':7,'safe':true,'payloads':[" + payloads
                + "]}";
    }

    @Test
    void a_bundle_is_told_as_messages_with_their_parts() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.hear("join", "{'group':'g','bundles':true,'id':2}");
            script.replyTo(2, "join");
            script.say(bundle("'one',{'base64':'/wD+'},'','gr\\u00fc\\u00dfe'"));
            script.say("{'event':'message','group':'g','view':'1.1','sender':'a/y','seq':8,'part':3,'payload':''}");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            for (byte[] payload : List.of("one".getBytes(UTF_8), new byte[] {(byte) 0xff, 0, (byte) 0xfe}, new byte[0],
                    "gr\u00fc\u00dfe".getBytes(UTF_8))) {
                Event.Message message = (Event.Message) group.next(Peer.WITHIN).orElseThrow();
                assertArrayEquals(payload, message.payload());
                assertEquals("a/y 1.1 7 true", message.sender() + " " + message.view() + " " + message.seq() + " "
                        + message.safe());
            }
            Event.Message last = (Event.Message) group.next(Peer.WITHIN).orElseThrow();
            assertEquals(8, last.seq());
            assertEquals(3, last.part());
            assertEquals(0, client.unread("g"));
        }
    }

    @Test
    void a_refused_message_that_does_not_come_back_has_no_payload() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            for (String request : List.of("{'send':{'group':'g'}}", "{'send_bundle':{'group':'g'}}", "{'send':{}}",
                    "{'send':{'payload':''}}")) {
                script.say("{'event':'refused','group':'g','reason':'no','fatal':false,'request':" + request + "}");
            }
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            for (byte[] payload : new byte[][] {null, null, null, {}}) {
                Event.Refused refused = (Event.Refused) group.next(Peer.WITHIN).orElseThrow();
                assertEquals("no", refused.reason());
                assertArrayEquals(payload, refused.payload());
            }
        }
    }

    @Test
    void several_payloads_are_said_in_one_line_and_refused_one_by_one() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.hear("send_bundle", "{'group':'g','payloads':['one',{'base64':'/wD+'},''],'safe':true,'id':3}");
            script.replyTo(3, "send_bundle");
            script.hear("send_bundle", "{'group':'g','payloads':['two']}");
            script.say("{'event':'refused','group':'g','reason':'no','fatal':false,"
                    + "'request':{'send_bundle':{'group':'g','payloads':['p',{'base64':'/w=='}]}}}");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            byte[] bytes = {(byte) 0xff, 0, (byte) 0xfe};
            group.sendBundle(List.of("one".getBytes(UTF_8), bytes, new byte[0]), Send.SAFE, Send.WAIT);
            group.sendBundle(List.of("two".getBytes(UTF_8)));
            for (byte[] payload : List.of("p".getBytes(UTF_8), new byte[] {(byte) 0xff})) {
                Event.Refused refused = (Event.Refused) group.next(Peer.WITHIN).orElseThrow();
                assertArrayEquals(payload, refused.payload());
            }
            fails("refused", () -> group.sendBundle(List.of()));
        }
    }

    @Test
    void no_bundle_within_its_bounds_makes_a_line_that_is_too_long() throws Exception {
        List<byte[]> even = Collections.nCopies(4096, new byte[253]);
        List<byte[]> mixed = new ArrayList<>(Collections.nCopies(4095, new byte[122]));
        mixed.add(new byte[540_000]);
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            for (List<byte[]> payloads : List.of(even, mixed)) {
                var asked = script.hear("send_bundle");
                var said = asked.getAsJsonArray("payloads");
                assertEquals(payloads.size(), said.size());
                for (int part = 0; part < said.size(); part++) {
                    assertArrayEquals(payloads.get(part), Json.decode(said.get(part)));
                }
                script.replyTo(asked.get("id").getAsLong(), "send_bundle");
            }
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            group.sendBundle(even, Send.WAIT);
            group.sendBundle(mixed, Send.WAIT);
        }
    }

    @Test
    void a_time_that_is_up_takes_nothing() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.hear("send");
            script.say(Peer.message(1, "x"));
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            assertEquals(Optional.empty(), group.next(Duration.ofMillis(20)));
            group.send("now");
            assertEquals(1, seq(group.next(Peer.WITHIN).orElseThrow()));
        }
    }

    @Test
    void a_watch_begins_with_what_is_there_and_may_be_lost() throws Exception {
        try (Peer peer = new Peer(script -> {
            long id = script.reply("watch");
            script.say("{'event':'watching','map':'m','id':" + id + ",'entries':1}");
            script.say("{'event':'changed','map':'m','id':" + id + ",'key':'u/1','value':'v','version':7}");
            script.say("{'event':'changed','map':'m','id':" + id + ",'key':'u/1','value':null,'version':8,"
                    + "'gone':'expired'}");
            script.say("{'event':'lost','what':'watch','name':'m','id':" + id + ",'cause':'no majority'}");
            script.hear("cancel", "{'of':" + script.reply("watch") + "}");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Watch watch = client.map("m").watchPrefix("u/");
            var changes = watch.iterator();
            assertEquals(new Change.Watching(1), changes.next());
            assertEquals("v", ((Change.Changed) changes.next()).text());
            assertEquals(new Change.Changed("u/1", null, 8, "expired"), changes.next());
            assertEquals("no majority", fails("lost", changes::hasNext).reason());
            client.map("m").watch().close();
        }
    }

    @Test
    void requests_are_answered_whatever_the_handler_does() throws Exception {
        var answered = new CompletableFuture<Void>();
        try (Peer peer = new Peer(script -> {
            script.reply("serve");
            for (String payload : List.of("yes", "fail", "interrupt", "large", "last")) {
                script.say("{'event':'request','group':'g','request':1,'verb':'v','from':'b','payload':'" + payload
                        + "','within_ms':1500}");
            }
            script.hear("answer", "{'request':1,'payload':'YES','id':3}");
            script.hear("answer", "{'request':1,'error':'not this'}");
            script.hear("answer", "{'request':1,'payload':'','id':4}");
            script.replyTo(script.hear("answer").get("id").getAsLong(), "answer",
                    "'error':{'code':'refused','reason':'at most 59744 bytes','ran':'no'}");
            script.hear("answer", "{'request':1,'payload':'LAST','id':6}");
            script.hear("answer", "{'request':1,'error':'at most 59744 bytes'}");
            answered.complete(null);
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            client.serve("g", "v", request -> {
                assertEquals(Duration.ofMillis(1500), request.within());
                switch (request.text()) {
                    case "fail" -> throw new IllegalStateException("not this");
                    case "interrupt" -> {
                        Thread.currentThread().interrupt();
                        return null;
                    }
                    case "large" -> {
                        return new byte[100_000];
                    }
                    default -> {
                        return request.text().toUpperCase().getBytes(UTF_8);
                    }
                }
            });
            fails("refused", () -> client.serve("g", "v", request -> null));
            get(answered);
        }
    }

    @Test
    void a_line_that_no_agent_takes_is_refused_here() throws Exception {
        try (Peer peer = new Peer(Peer::hearTheEnd); Client client = peer.connect()) {
            AntiphonException error = fails("refused", () -> client.map("m").put("k", new byte[5 << 20]));
            assertEquals(Ran.NO, error.ran());
        }
    }

    // Back-pressure.

    @Test
    void a_thread_that_does_not_read_its_group_still_gets_its_reply() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.sayMessages(1000, 1000);
            script.reply("lock", "'token':7");
            script.reply("unlock");
            script.hearTheEnd();
        }); Client client = peer.connect(10_000, Connection.MOST_BYTES)) {
            Group group = client.join("g");
            try (Guard guard = client.lock("till")) {
                assertEquals(7, guard.token());
            }
            for (int seq = 1; seq <= 1000; seq++) {
                assertEquals(seq, seq(group.next(Peer.WITHIN).orElseThrow()));
            }
        }
    }

    @Test
    void a_group_that_nobody_reads_stops_the_reading_until_somebody_does() throws Exception {
        int count = 30_000; // of 1 KB: more than the system holds of one connection
        var said = new CompletableFuture<Void>();
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.sayMessages(10, 10_000);
            long lock = script.hear("lock").get("id").getAsLong();
            script.sayMessages(count, 1000);
            said.complete(null);
            script.replyTo(lock, "lock", "'token':7");
            script.hearTheEnd();
        }); Client client = peer.connect(10_000, Connection.MOST_BYTES)) {
            Group group = client.join("g");
            var lock = begin(() -> client.lock("till"));
            Thread.sleep(500); // time in which nothing may happen
            assertFalse(said.isDone(), "the peer has to wait");
            assertFalse(lock.isDone(), "the reply is behind what is not read");
            assertTrue(client.unread("g") < 25_000, "the buffer is bounded");
            for (int at = 0; at < 10 + count; at++) {
                group.next(Peer.WITHIN).orElseThrow();
            }
            assertEquals(7, get(lock).token());
        }
    }

    @Test
    void a_bundle_counts_until_its_last_message_is_taken() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.say(bundle("'x'" + ",'x'".repeat(99)), Peer.message(8, "behind"));
            script.hearTheEnd();
        }); Client client = peer.connect(5_000, Connection.MOST_BYTES)) {
            Group group = client.join("g");
            for (int part = 0; part < 100; part++) {
                assertEquals(part, ((Event.Message) group.next(Peer.WITHIN).orElseThrow()).part());
                assertEquals(part < 99, client.unread("g") > 5_000);
            }
            assertEquals(8, seq(group.next(Peer.WITHIN).orElseThrow()));
        }
    }

    @Test
    void a_reader_that_waits_while_too_much_comes_is_out_of_the_group() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            long add = script.hear("add").get("id").getAsLong();
            script.sayMessages(100, 1000);
            script.replyTo(add, "add", "'value':1,'version':1");
            script.hear("leave", "{'group':'g'}");
            script.say("{'event':'group_left','group':'g'}");
            script.hearTheEnd();
        }); Client client = peer.connect(10_000, 20_000)) {
            Group group = client.join("g");
            assertEquals(1, client.counter("c").add(1));
            List<Event> events = new ArrayList<>();
            group.forEach(events::add);
            assertTrue(events.size() < 20, "the buffer is bounded");
            assertInstanceOf(Event.Lost.class, events.get(events.size() - 1));
        }
    }

    @Test
    void those_that_send_wait_while_the_agent_does_not_read() throws Exception {
        var go = new CompletableFuture<Void>();
        int count = 60; // more than the system holds of one connection
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            go.get();
            for (int at = 0; at < count; at++) {
                script.hear("send");
            }
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            var sent = begin(() -> {
                for (int at = 0; at < count; at++) {
                    group.send("x".repeat(500_000));
                }
                return true;
            });
            Thread.sleep(500); // time in which nothing may happen
            assertFalse(sent.isDone(), "30 MB are nowhere");
            go.complete(null);
            assertTrue(get(sent));
        }
    }

    @Test
    void a_lock_is_not_held_after_unlock_and_a_job_is_led_until_it_is_handed_over() throws Exception {
        String unavailable = "'error':{'code':'unavailable','reason':'no majority','ran':'maybe'}";
        try (Peer peer = new Peer(script -> {
            script.reply("lock", "'token':7");
            script.reply("unlock", unavailable);
            script.reply("lead", "'token':8");
            script.reply("resign", unavailable);
            script.reply("resign", unavailable);
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            try (Guard guard = client.lock("till")) {
                fails("unavailable", guard::unlock);
                assertFalse(guard.isHeld());
            }
            Leadership leadership = client.lead("job");
            fails("unavailable", () -> leadership.resign("b"));
            assertTrue(leadership.isHeld());
            fails("unavailable", leadership::resign);
            assertFalse(leadership.isHeld());
        }
    }

    // Interruption.

    @Test
    void an_interrupted_wait_for_a_lock_leaves_no_lock_behind() throws Exception {
        var waits = new CompletableFuture<Thread>();
        var interrupted = new CompletableFuture<Boolean>();
        var unlocked = new CompletableFuture<Void>();
        try (Peer peer = new Peer(script -> {
            long lock = script.hear("lock").get("id").getAsLong();
            waits.get().interrupt();
            script.hear("cancel", "{'of':" + lock + "}");
            script.replyTo(lock, "lock", "'token':7"); // it was granted before that came
            script.hear("unlock", "{'name':'till','token':'7'}");
            unlocked.complete(null);
            script.reply("add", "'value':1,'version':1");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Connection.daemon("interrupted", () -> {
                waits.complete(Thread.currentThread());
                AntiphonException error = fails("interrupted", () -> client.lock("till"));
                interrupted.complete(error.ran() == Ran.NO && Thread.currentThread().isInterrupted());
            }).start();
            assertTrue(get(interrupted));
            get(unlocked);
            assertEquals(1, client.counter("c").add(1), "the connection goes on");
        }
    }

    @Test
    void a_thread_that_is_interrupted_already_asks_nothing_and_gives_back_all() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("lock", "'token':7");
            script.reply("join");
            script.hear("unlock", "{'name':'till','token':'7','id':4}");
            script.hear("leave", "{'group':'g','id':5}");
            script.hear("leave", "{}");
        })) {
            try (Client client = peer.connect(); Group group = client.join(lockFirst(client)); Guard guard = held) {
                Thread.currentThread().interrupt();
                assertEquals(Ran.NO, fails("interrupted", () -> client.counter("c").add(1)).ran());
                fails("interrupted", () -> client.lock("other"));
                fails("interrupted", () -> group.send("x"));
                fails("interrupted", () -> group.next(Peer.WITHIN));
                assertTrue(guard.isHeld());
            } finally {
                assertTrue(Thread.interrupted());
            }
        }
    }

    private Guard held;

    private String lockFirst(Client client) {
        held = client.lock("till");
        return "g";
    }

    // Losses.

    @Test
    void a_loss_right_behind_the_grant_is_told_outside_of_the_thread_that_reads() throws Exception {
        try (Peer peer = new Peer(script -> {
            long id = script.reply("lock", "'token':7");
            script.say("{'event':'lost','what':'lock','name':'x','token':7,'id':" + id + ",'cause':'lease'}");
            script.reply("add", "'value':1,'version':1");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            try (Guard guard = client.lock("x", Duration.ofSeconds(5))) {
                // What depends on it may ask: the thread that reads is another one.
                assertEquals(1L, get(guard.lost().thenApply(cause -> client.counter(cause).add(1))).longValue());
                assertEquals("lease", get(guard.lost()));
                assertFalse(guard.isHeld());
            }
        }
    }

    @Test
    void a_lost_connection_is_told_to_all_behind_what_was_said_before() throws Exception {
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.reply("lock", "'token':7");
            script.hear("add");
            script.say(Peer.message(1, "last"));
            script.say("{'event':'refused','group':null,'reason':'this agent ends','fatal':true}");
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            Guard guard = client.lock("till");
            AntiphonException lost = fails("connection", () -> client.counter("c").add(1));
            assertEquals(Ran.MAYBE, lost.ran());
            assertEquals("this agent ends", ((ConnectionLostException) lost).lostCause());
            assertEquals("this agent ends", get(guard.lost()));
            var events = group.iterator();
            assertEquals(1, seq(events.next()));
            assertThrows(ConnectionLostException.class, events::hasNext);
            assertEquals(Ran.NO, fails("connection", client::members).ran());
            assertEquals(Ran.NO, fails("connection", () -> group.send("x")).ran());
            guard.close();
            group.close();
        }
    }

    @Test
    void what_is_no_agent_is_told_so() throws Exception {
        try (Peer peer = new Peer(script -> script.say("HTTP/1.1 400 Bad Request"))) {
            fails("connection", () -> {
                try (Client client = peer.connect()) {
                    client.members();
                }
            });
        }
        var nobody = assertThrows(ConnectionLostException.class, () -> Client.connect("127.0.0.1:1"));
        assertEquals(Ran.NO, nobody.ran());
        assertTrue(nobody.getMessage().contains("127.0.0.1:1"), nobody.getMessage());
        assertThrows(ConnectionLostException.class, () -> Client.connect("unix:/nowhere/a.sock"));
        assertThrows(ConnectionLostException.class, () -> Client.connect("nowhere.invalid:7480"));
    }

    @Test
    void an_agent_that_does_not_welcome_is_not_waited_for_without_end() throws Exception {
        try (var listener = new java.net.ServerSocket(0, 1, java.net.InetAddress.getLoopbackAddress())) {
            String address = "127.0.0.1:" + listener.getLocalPort();
            fails("timeout", () -> Client.connect(address, "x", new Options().timeout(Duration.ofMillis(200))));
        }
    }

    @Test
    void a_host_that_goes_without_a_word_is_noticed() throws Exception {
        try (var listener = new java.net.ServerSocket(0, 1, java.net.InetAddress.getLoopbackAddress());
                var channel = (SocketChannel) Address.connect("127.0.0.1:" + listener.getLocalPort(), Peer.WITHIN,
                        null)) {
            assertIsKeptAlive(channel.socket());
        }
    }

    /** It asks after 60 s without a word, each 10 s, 6 times. */
    static void assertIsKeptAlive(Socket socket) throws Exception {
        assertTrue(socket.getKeepAlive());
        assertTrue(socket.getTcpNoDelay());
        var asks = Map.of(ExtendedSocketOptions.TCP_KEEPIDLE, 60, ExtendedSocketOptions.TCP_KEEPINTERVAL, 10,
                ExtendedSocketOptions.TCP_KEEPCOUNT, 6);
        for (var option : asks.keySet()) {
            if (socket.supportedOptions().contains(option)) {
                assertEquals(asks.get(option), socket.getOption(option), option.name());
            }
        }
    }

    // Words.

    @Test
    void addresses_are_read_as_they_are_written() {
        assertEquals(UnixDomainSocketAddress.of("/run/a.sock"), Address.parse("unix:/run/a.sock"));
        assertEquals(new InetSocketAddress("::1", 7480), Address.parse("[::1]:7480"));
        assertEquals(new InetSocketAddress("127.0.0.1", 7480), Address.parse("127.0.0.1:7480"));
        for (String wrong : List.of("localhost", ":7480", "localhost:", "localhost:x", "localhost:123456")) {
            assertThrows(IllegalArgumentException.class, () -> Address.parse(wrong), wrong);
        }
    }

    @Test
    void no_payload_of_a_group_makes_a_line_that_is_too_long() {
        byte[] controls = "\u0001".repeat(1_048_570).getBytes(UTF_8);
        byte[] letters = "ä".repeat(524_285).getBytes(UTF_8);
        byte[] bytes = new byte[1_048_570];
        java.util.Arrays.fill(bytes, (byte) 0xff);
        for (byte[] payload : List.of(controls, letters, bytes, new byte[0])) {
            Ask ask = new Ask("send").with("payload", payload);
            assertTrue(ask.line().length < 4 << 20);
            assertArrayEquals(payload, Json.decode(ask.fields.get("payload")));
        }
    }

    @Test
    void every_event_of_the_golden_file_is_taken() throws Exception {
        Path golden = Path.of("../../crates/antiphon-api/golden/events.txt");
        Assumptions.assumeTrue(Files.exists(golden), "not in the repository");
        // A client is told no payload in a file, and `lost` and what ends a group are told elsewhere.
        List<String> events = Files.readAllLines(golden).stream()
                .filter(line -> line.startsWith("{") && !line.contains("\"file\"") && !line.contains("\"lost\"")
                        && !line.contains("\"group_left\""))
                .toList();
        assertTrue(events.size() > 40);
        try (Peer peer = new Peer(script -> {
            script.reply("join");
            script.say(events.toArray(String[]::new));
            script.say(Peer.message(1, "the last"));
            script.reply("add", "'value':1,'version':1");
            script.hearTheEnd();
        }); Client client = peer.connect()) {
            Group group = client.join("g");
            int told = 0;
            while (!(group.iterator().next() instanceof Event.Message message && message.text().equals("the last"))) {
                told++;
            }
            assertTrue(told >= 7, "events of g: " + told);
            assertEquals(1, client.counter("c").add(1));
        }
    }
}
