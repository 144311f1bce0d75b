package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.time.Duration;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Stream;

/** The protocol's values, to and from JSON. */
final class Json {
    /** A text of control characters has six times as many bytes in JSON, and a line has at most 4 MiB. */
    private static final int MOST_TEXT_BYTES = 600_000;
    /** All texts of a bundle: the rest of its 1 MiB may stand beside them as base64. */
    private static final int MOST_BUNDLE_TEXT_BYTES = 500_000;

    private Json() {}

    /** Those of a bundle, which is one line: each is a text up to its share. */
    static JsonArray encode(List<byte[]> payloads) {
        int share = Math.max(1, MOST_BUNDLE_TEXT_BYTES / payloads.size());
        JsonArray all = new JsonArray(payloads.size());
        payloads.forEach(payload -> all.add(encode(payload, share)));
        return all;
    }

    static JsonElement encode(byte[] payload) {
        return encode(payload, MOST_TEXT_BYTES);
    }

    private static JsonElement encode(byte[] payload, int textBytes) {
        if (payload.length <= textBytes) {
            try {
                return new JsonPrimitive(UTF_8.newDecoder().decode(ByteBuffer.wrap(payload)).toString());
            } catch (CharacterCodingException notText) {
                // It goes as base64.
            }
        }
        JsonObject bytes = new JsonObject();
        bytes.addProperty("base64", Base64.getEncoder().encodeToString(payload));
        return bytes;
    }

    static byte[] decode(JsonElement payload) {
        return payload.isJsonObject()
                ? Base64.getDecoder().decode(text(payload.getAsJsonObject(), "base64"))
                : payload.getAsString().getBytes(UTF_8);
    }

    static String span(Duration time) {
        return time.plusNanos(999_999).toMillis() + "ms";
    }

    /** Null if it is not there, or is null there. */
    static JsonElement field(JsonObject of, String name) {
        JsonElement field = of.get(name);
        return field == null || field.isJsonNull() ? null : field;
    }

    static String text(JsonObject of, String name) {
        JsonElement field = field(of, name);
        return field == null ? null : field.getAsString();
    }

    static boolean flag(JsonObject of, String name) {
        JsonElement field = field(of, name);
        return field != null && field.getAsBoolean();
    }

    static long unsigned(JsonObject of, String name) {
        return Long.parseUnsignedLong(of.get(name).getAsString());
    }

    static List<String> names(JsonObject of, String name) {
        return list(of, name).map(JsonElement::getAsString).toList();
    }

    private static Stream<JsonElement> list(JsonObject of, String name) {
        return of.getAsJsonArray(name).asList().stream();
    }

    static <T> Map<String, T> map(JsonObject of, String name, Function<JsonElement, T> read) {
        Map<String, T> map = new LinkedHashMap<>();
        if (field(of, name) != null) {
            of.getAsJsonObject(name).asMap().forEach((key, value) -> map.put(key, read.apply(value)));
        }
        return map;
    }

    /** The event of a group. */
    static Event event(JsonObject of) {
        String group = text(of, "group");
        return switch (text(of, "event")) {
            case "view" -> new Event.View(group, text(of, "id"), names(of, "members"), names(of, "joined"),
                    names(of, "left"), names(of, "crashed"), map(of, "causes", JsonElement::getAsString),
                    names(of, "transitional"), flag(of, "primary"));
            case "message" -> message(of, of.get("payload"), field(of, "part") == null ? 0 : of.get("part").getAsInt());
            case "transitional" -> new Event.Transitional(group, names(of, "members"));
            case "suspended" -> new Event.Suspended(group);
            case "resync" -> new Event.Resync(group, text(of, "cause"));
            case "lost" -> new Event.Lost(text(of, "name"), text(of, "cause"));
            default -> throw new IllegalArgumentException("not an event of a group: " + of);
        };
    }

    /** What one that came alone says, or a part of a bundle. */
    static Event.Message message(JsonObject of, JsonElement payload, int part) {
        return new Event.Message(text(of, "group"), text(of, "view"), text(of, "sender"), unsigned(of, "seq"),
                decode(payload), flag(of, "safe"), part);
    }

    /** The payloads of a command that was to send them; one null if it does not say them. */
    static List<byte[]> sent(JsonObject request) {
        JsonObject bundle = request.getAsJsonObject("send_bundle");
        JsonElement payload = field(bundle == null ? request.getAsJsonObject("send") : bundle,
                bundle == null ? "payload" : "payloads");
        if (payload == null) {
            return Collections.singletonList(null);
        }
        return bundle == null ? List.of(decode(payload))
                : payload.getAsJsonArray().asList().stream().map(Json::decode).toList();
    }

    static Change.Changed changed(JsonObject of) {
        JsonElement value = field(of, "value");
        return new Change.Changed(text(of, "key"), value == null ? null : decode(value), unsigned(of, "version"),
                text(of, "gone"));
    }

    static Request request(JsonObject of) {
        JsonElement payload = field(of, "payload");
        return new Request(text(of, "group"), text(of, "verb"), text(of, "from"),
                payload == null ? new byte[0] : decode(payload), map(of, "args", Json::argument),
                Duration.ofMillis(of.get("within_ms").getAsLong()), of.get("request").getAsLong());
    }

    private static Object argument(JsonElement value) {
        JsonPrimitive of = value.getAsJsonPrimitive();
        if (of.isBoolean()) {
            return of.getAsBoolean();
        }
        return of.isNumber() ? (Object) of.getAsLong() : of.getAsString();
    }

    static JsonObject arguments(Map<String, ?> of) {
        JsonObject args = new JsonObject();
        of.forEach((name, value) -> {
            if (value instanceof Boolean flag) {
                args.addProperty(name, flag);
            } else if (value instanceof Number number) {
                args.addProperty(name, whole(name, number));
            } else {
                args.addProperty(name, value.toString());
            }
        });
        return args;
    }

    /** The agent takes no other numbers, and could not even read a line with NaN. */
    private static long whole(String name, Number number) {
        try {
            return new BigDecimal(number.toString()).longValueExact();
        } catch (ArithmeticException | NumberFormatException other) {
            throw new AntiphonException("refused", "the argument " + name + " is " + number
                    + ": give a whole number of 64 bits, or a text", AntiphonException.Ran.NO);
        }
    }

    /** A reply with an error. */
    static JsonObject failed(String code, String reason, AntiphonException.Ran ran) {
        JsonObject error = new JsonObject();
        error.addProperty("code", code);
        error.addProperty("reason", reason);
        error.addProperty("ran", ran.name().toLowerCase(Locale.ROOT));
        JsonObject reply = new JsonObject();
        reply.add("error", error);
        return reply;
    }

    /** Null if there is none. */
    static Item item(JsonObject reply) {
        JsonElement value = field(reply, "value");
        return value == null ? null : new Item(decode(value), unsigned(reply, "version"));
    }

    static Answers answers(JsonObject reply) {
        return new Answers(map(reply, "replies", Json::decode), failures(reply));
    }

    static Members members(JsonObject reply) {
        JsonObject view = reply.getAsJsonObject("view");
        List<Members.Node> nodes = list(view, "members").map(JsonElement::getAsJsonObject)
                .map(node -> new Members.Node(text(node, "name"), text(node, "incarnation"), text(node, "addr"),
                        map(node, "metadata", JsonElement::getAsString)))
                .toList();
        return new Members(text(view, "id"), unsigned(view, "number"), flag(view, "primary"), nodes);
    }

    /** The error of a reply. */
    static AntiphonException failure(JsonObject reply) {
        Long version = reply.has("version") ? unsigned(reply, "version") : null;
        return failure(reply.getAsJsonObject("error"), version, failures(reply));
    }

    private static Map<String, AntiphonException> failures(JsonObject reply) {
        return map(reply, "failures", of -> failure(of.getAsJsonObject(), null, Map.of()));
    }

    private static AntiphonException failure(JsonObject of, Long version, Map<String, AntiphonException> failures) {
        JsonElement payload = field(of, "payload");
        AntiphonException.Ran ran = AntiphonException.Ran.valueOf(text(of, "ran").toUpperCase(Locale.ROOT));
        return new AntiphonException(text(of, "code"), text(of, "reason"), ran, version,
                payload == null ? null : decode(payload), failures);
    }
}
