package io.antiphon;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonPrimitive;
import java.util.List;

/** Which nodes are called, or commanded. */
public final class To {
    /** One node that serves the verb; the next one as long as it is certain that a command did not run. */
    public static final To ANY = new To(new JsonPrimitive("any"));
    /** All nodes that have served or called in the group, this client's too; all that may be commanded. */
    public static final To ALL = new To(new JsonPrimitive("all"));

    /** Of a command: one of the nodes that the list lets be asked. */
    public static final To ONE = new To(new JsonPrimitive("one"));

    final JsonElement json;

    private To(JsonElement json) {
        this.json = json;
    }

    /** These. */
    public static To nodes(String... names) {
        return nodes(List.of(names));
    }

    /** These. */
    public static To nodes(List<String> names) {
        JsonArray json = new JsonArray();
        names.forEach(json::add);
        return new To(json);
    }
}
