package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.time.Duration;
import java.util.concurrent.locks.Condition;
import java.util.function.Consumer;
import java.util.function.Function;

/** An operation: what is asked, and what becomes of the reply. A field without a value is left out. */
final class Ask {
    final String op;
    final JsonObject fields = new JsonObject();

    /**
     * Is called when there is room for the operation, before the agent knows of it; may refuse. A client that comes
     * back as a new one asks again for what it has: it must have nothing that was never asked for.
     */
    Runnable onSend = () -> {};
    /** Is called before the next line is read, so what the reply begins is in place for what follows it. */
    Consumer<JsonObject> onReply = reply -> {};
    /** Is called with the reply that has the error, or with null if there will be none. */
    Consumer<JsonObject> onFailure = reply -> {};
    /** What gives back what was granted when nobody waits for it any more. */
    Function<JsonObject, Ask> undo;
    /** It gives something back: it goes out even if there is no room, or the thread is interrupted. */
    boolean urgent;

    // Under the lock of the connection.
    long id;
    /** The client that asks; another one begins with each coming back as a new one. */
    long life = -1;
    byte[] line;
    JsonObject reply;
    boolean abandoned;
    Condition answered;
    Thread waiter;

    Ask(String op) {
        this.op = op;
    }

    Ask with(String field, String value) {
        return value == null ? this : with(field, new JsonPrimitive(value));
    }

    Ask with(String field, byte[] payload) {
        return payload == null ? this : with(field, Json.encode(payload));
    }

    Ask with(String field, Duration time) {
        return time == null ? this : with(field, Json.span(time));
    }

    Ask with(String field, long value) {
        return with(field, new JsonPrimitive(value));
    }

    /** A token or a version: the agent takes them as text, too. */
    Ask unsigned(String field, long value) {
        return with(field, Long.toUnsignedString(value));
    }

    Ask flag(String field, boolean value) {
        return value ? with(field, new JsonPrimitive(true)) : this;
    }

    Ask with(String field, JsonElement value) {
        fields.add(field, value);
        return this;
    }

    Ask urgent() {
        urgent = true;
        return this;
    }

    byte[] line() {
        JsonObject whole = new JsonObject();
        whole.add(op, fields);
        line = (whole + "\n").getBytes(UTF_8);
        return line;
    }
}
