package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigInteger;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;

/** The driver of the client: see ../conformance/README.md. */
final class ConformanceDriver {
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false, UTF_8);

    private volatile Client client;
    private final Map<String, Group> groups = new ConcurrentHashMap<>();
    private final Map<String, Guard> held = new ConcurrentHashMap<>();
    /** Of each group: printing the next event takes the only permit, and so does a pause. */
    private final Map<String, Semaphore> flowing = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        ConformanceDriver driver = new ConformanceDriver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            driver.take(JsonParser.parseString(line).getAsJsonObject());
        }
        System.exit(0);
    }

    /** What may wait for others has a thread of its own; the next command begins behind it. */
    private void take(JsonObject command) throws InterruptedException {
        boolean takesLong = switch (command.get("do").getAsString()) {
            case "connect", "lock", "lead", "call" -> true;
            default -> flag(command, "wait");
        };
        if (!takesLong) {
            obey(command);
            return;
        }
        Thread thread = Connection.daemon("command", () -> obey(command));
        thread.start();
        while (client != null && thread.isAlive() && !client.waits(thread)) {
            Thread.sleep(1);
        }
    }

    private void obey(JsonObject command) {
        JsonObject answer = new JsonObject();
        answer.add("id", command.get("id"));
        try {
            answer.add("ok", done(command));
        } catch (AntiphonException error) {
            answer.add("error", json(error));
        } catch (Exception error) {
            answer.add("error", object("code", "driver", "reason", error.toString(), "ran", "maybe"));
        }
        say(answer);
    }

    private JsonElement done(JsonObject of) throws Exception {
        String name = text(of, "name");
        String group = text(of, "group");
        String verb = text(of, "verb");
        String key = text(of, "key");
        switch (of.get("do").getAsString()) {
            case "connect" -> {
                Options options = new Options();
                if (of.has("grace")) {
                    options.grace(seconds(of, "grace"));
                }
                client = Client.connect(text(of, "address"), name, options);
                groups.clear();
                held.clear();
                flowing.clear();
                return object("member", client.member());
            }
            case "cut" -> client.cut();
            case "close" -> client.close();
            case "members" -> {
                return object("nodes", array(client.members().names()));
            }
            case "why" -> {
                return object("facts", array(client.why(text(of, "node"))));
            }
            case "join" -> {
                Group joined = client.join(group);
                groups.put(group, joined);
                Semaphore flow = new Semaphore(1);
                flowing.put(group, flow);
                follow(joined, "group", group, flow);
            }
            case "leave" -> groups.remove(group).close();
            case "send", "send_bundle" -> {
                List<Send> how = new ArrayList<>();
                if (flag(of, "safe")) {
                    how.add(Send.SAFE);
                }
                if (flag(of, "wait")) {
                    how.add(Send.WAIT);
                }
                Send[] ways = how.toArray(Send[]::new);
                if (of.has("payloads")) {
                    groups.get(group).sendBundle(
                            of.getAsJsonArray("payloads").asList().stream().map(Json::decode).toList(), ways);
                } else {
                    groups.get(group).send(payload(of, "payload"), ways);
                }
            }
            case "pause" -> flowing.get(group).acquire();
            case "resume" -> flowing.get(group).release();
            case "lock" -> {
                return hold("lock", client.lock(name, seconds(of, "within")));
            }
            case "lead" -> {
                return hold("lead", client.lead(name));
            }
            case "unlock" -> held.remove(name).unlock();
            case "resign" -> {
                Leadership leadership = (Leadership) held.get(name);
                if (of.has("to")) {
                    leadership.resign(text(of, "to"));
                } else {
                    leadership.resign();
                }
                held.remove(name, leadership);
            }
            case "get" -> {
                SharedMap map = client.map(text(of, "map"));
                return json(flag(of, "latest") ? map.getLatest(key) : map.get(key));
            }
            case "put" -> {
                List<Put> options = new ArrayList<>();
                if (of.has("if_version")) {
                    options.add(Put.ifVersion(Json.unsigned(of, "if_version")));
                }
                if (of.has("ttl")) {
                    options.add(Put.ttl(seconds(of, "ttl")));
                }
                SharedMap map = client.map(text(of, "map"));
                return object("version", unsigned(map.put(key, payload(of, "value"), options.toArray(Put[]::new))));
            }
            case "remove" -> {
                SharedMap map = client.map(text(of, "map"));
                return json(of.has("if_version") ? map.remove(key, Json.unsigned(of, "if_version")) : map.remove(key));
            }
            case "watch" -> {
                SharedMap map = client.map(text(of, "map"));
                Watch watch = key != null ? map.watchKey(key)
                        : of.has("prefix") ? map.watchPrefix(text(of, "prefix")) : map.watch();
                follow(watch, "map", text(of, "map"), new Semaphore(1));
            }
            case "add" -> {
                return object("value", client.counter(text(of, "counter")).add(of.get("by").getAsLong()));
            }
            case "take_ids" -> {
                long[] ids = client.takeIds(of.get("count").getAsInt());
                return object("first", unsigned(ids[0]), "count", ids.length);
            }
            case "serve" -> client.serve(group, verb, request -> {
                say(object("event", "request", "group", group, "verb", verb));
                return switch (text(of, "how")) {
                    case "echo" -> request.payload();
                    case "name" -> client.member().getBytes(UTF_8);
                    case "error" -> throw new IllegalStateException("no");
                    default -> {
                        new CountDownLatch(1).await(); // never
                        yield null;
                    }
                };
            });
            case "call" -> {
                byte[] payload = of.has("payload") ? payload(of, "payload") : new byte[0];
                Answers answers = client.call(group, verb, to(of.get("to")), payload, seconds(of, "within"));
                JsonObject replies = new JsonObject();
                answers.replies().forEach((node, reply) -> replies.add(node, Json.encode(reply)));
                return object("replies", replies, "failures", json(answers.failures()));
            }
            default -> throw new IllegalArgumentException("no such command: " + of);
        }
        return JsonNull.INSTANCE;
    }

    private JsonElement hold(String what, Guard guard) {
        held.put(guard.name(), guard);
        JsonObject lost = object("event", "lost", "what", what, "name", guard.name());
        guard.lost().thenAccept(cause -> {
            lost.addProperty("cause", cause);
            say(lost);
        });
        return object("token", unsigned(guard.token()));
    }

    /** Prints the events of a group or of a map. */
    private static void follow(Events<?> events, String field, String name, Semaphore flow) {
        Connection.daemon("follow " + name, () -> {
            try {
                for (Object event : events) {
                    JsonObject line = json(event);
                    line.addProperty(field, name);
                    say(line);
                    flow.acquireUninterruptibly();
                    flow.release();
                }
            } catch (ConnectionLostException lost) {
                say(object("event", "connection_lost", field, name, "cause", lost.lostCause()));
            } catch (AntiphonException lost) {
                say(object("event", "lost", "what", "watch", field, name, "cause", lost.reason()));
            }
        }).start();
    }

    /** A record: its name in small letters is the event; fields are as they are, with bytes as payloads. */
    private static JsonObject json(Object event) {
        JsonObject json = object("event", event.getClass().getSimpleName().toLowerCase(Locale.ROOT));
        for (var component : event.getClass().getRecordComponents()) {
            try {
                Object value = component.getAccessor().invoke(event);
                if (component.getName().equals("version")) {
                    value = unsigned((long) value);
                }
                put(json, component.getName(), value);
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }
        return json;
    }

    private static JsonObject json(AntiphonException error) {
        JsonObject json = object("code", error.code(), "reason", error.reason(),
                "ran", error.ran().name().toLowerCase(Locale.ROOT));
        error.version().ifPresent(version -> json.add("version", unsigned(version)));
        put(json, "payload", error.payload());
        if (!error.failures().isEmpty()) {
            json.add("failures", json(error.failures()));
        }
        return json;
    }

    private static JsonObject json(Map<String, AntiphonException> failures) {
        JsonObject json = new JsonObject();
        failures.forEach((node, error) -> json.add(node, json(error)));
        return json;
    }

    private static JsonElement json(Optional<Item> item) {
        return item.<JsonElement>map(of -> object("value", of.value(), "version", unsigned(of.version())))
                .orElse(JsonNull.INSTANCE);
    }

    private static JsonObject object(Object... namesAndValues) {
        JsonObject json = new JsonObject();
        for (int at = 0; at < namesAndValues.length; at += 2) {
            put(json, (String) namesAndValues[at], namesAndValues[at + 1]);
        }
        return json;
    }

    private static void put(JsonObject json, String name, Object value) {
        if (value instanceof byte[] bytes) {
            json.add(name, Json.encode(bytes));
        } else if (value instanceof String text) {
            json.addProperty(name, text);
        } else if (value instanceof Number number) {
            json.addProperty(name, number);
        } else if (value instanceof Boolean flag) {
            json.addProperty(name, flag);
        } else if (value instanceof JsonElement element) {
            json.add(name, element);
        } else if (value instanceof List<?> list) {
            json.add(name, array(list));
        } else if (value instanceof Map<?, ?> map) {
            JsonObject object = new JsonObject();
            map.forEach((key, of) -> put(object, (String) key, of));
            json.add(name, object);
        }
    }

    private static JsonArray array(List<?> names) {
        JsonArray array = new JsonArray();
        names.forEach(name -> array.add((String) name));
        return array;
    }

    private static JsonPrimitive unsigned(long value) {
        return new JsonPrimitive(new BigInteger(Long.toUnsignedString(value)));
    }

    private static To to(JsonElement to) {
        if (to != null && to.isJsonArray()) {
            return To.nodes(to.getAsJsonArray().asList().stream().map(JsonElement::getAsString).toList());
        }
        return to != null && to.getAsString().equals("all") ? To.ALL : To.ANY;
    }

    private static String text(JsonObject of, String name) {
        return Json.text(of, name);
    }

    private static boolean flag(JsonObject of, String name) {
        return Json.flag(of, name);
    }

    private static byte[] payload(JsonObject of, String name) {
        return Json.decode(of.get(name));
    }

    private static Duration seconds(JsonObject of, String name) {
        JsonElement seconds = Json.field(of, name);
        return seconds == null ? null : Duration.ofNanos(Math.round(seconds.getAsDouble() * 1e9));
    }

    private static void say(JsonObject line) {
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }
}
