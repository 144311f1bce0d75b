/* The driver of the C client: ../../conformance/README.md says what it is told and what it tells.
 *
 * Single-threaded: it polls standard input and the connection. What may wait for others (lock, lead,
 * call, a message that is waited for) is begun with antiphon_start, and the rest waits for its reply, so
 * both forms are tested. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "antiphon.h"
#include "client.h" /* to cut its connection */

#define TIMEOUT_MS 30000
#define MOST 256 /* of groups, watches, locks and verbs; a scenario has a few */

struct entry {
	char *name, *verb, *how;
	uint64_t id, token;
	antiphon_kind lost; /* of a lock or a job */
	bool is_paused;
};

struct list {
	struct entry entries[MOST];
	size_t count;
};

static antiphon *client;
static struct list groups, watches, held, served, asked;
static struct json_document document;
static const struct json *command;
static struct text out;

/* ---- what it tells ---- */

static void key(const char *key)
{
	if (out.length && out.bytes[out.length - 1] != '{')
		text_add_string(&out, ",");
	text_add_quoted(&out, key, strlen(key));
	text_add_string(&out, ":");
}

static void put_string(const char *name, const char *value)
{
	if (value) {
		key(name);
		text_add_quoted(&out, value, strlen(value));
	}
}

static void put_u64(const char *name, uint64_t value)
{
	key(name);
	text_add_u64(&out, value);
}

static void put_data(const char *name, antiphon_bytes data)
{
	key(name);
	text_add_payload(&out, data.bytes, data.length);
}

static void put_bool(const char *name, bool value)
{
	key(name);
	text_add_string(&out, value ? "true" : "false");
}

static void put_names(const char *name, antiphon_names names)
{
	key(name);
	text_add_string(&out, "[");
	for (size_t i = 0; i < names.count; i++) {
		text_add_string(&out, i ? "," : "");
		text_add_quoted(&out, names.names[i], strlen(names.names[i]));
	}
	text_add_string(&out, "]");
}

static void put_answers(const char *name, const antiphon_event *reply, bool failed)
{
	key(name);
	text_add_string(&out, "{");
	for (size_t i = 0; i < reply->answer_count; i++) {
		const antiphon_node_answer *answer = &reply->answers[i];
		if (failed != (answer->error.code != ANTIPHON_OK))
			continue;
		if (!failed) {
			put_data(answer->node, answer->data);
			continue;
		}
		key(answer->node);
		text_add_string(&out, "{");
		put_string("code", antiphon_code_name(answer->error.code));
		put_string("reason", answer->error.reason);
		put_string("ran", antiphon_ran_name(answer->error.ran));
		if (answer->error.code == ANTIPHON_FAILED)
			put_data("payload", answer->data);
		text_add_string(&out, "}");
	}
	text_add_string(&out, "}");
}

static void begin(void)
{
	text_add_string(&out, "{");
}

static void end(void)
{
	text_add_string(&out, "}\n");
}

static void begin_event(const char *event, const char *of, const char *name)
{
	begin();
	put_string("event", event);
	put_string(of, name);
}

static void begin_ok(uint64_t id)
{
	begin();
	put_u64("id", id);
	key("ok");
	text_add_string(&out, "{");
}

static void end_ok(void)
{
	text_add_string(&out, "}");
	end();
}

static void tell_null(uint64_t id)
{
	begin();
	put_u64("id", id);
	key("ok");
	text_add_string(&out, "null");
	end();
}

static void tell_error(uint64_t id, const antiphon_error *error, const antiphon_event *reply)
{
	begin();
	put_u64("id", id);
	key("error");
	text_add_string(&out, "{");
	put_string("code", antiphon_code_name(error->code));
	put_string("reason", error->reason);
	put_string("ran", antiphon_ran_name(error->ran));
	if (error->has_version)
		put_u64("version", error->version);
	if (reply && reply->answer_count)
		put_answers("failures", reply, true);
	end_ok();
}

/* ---- what there is ---- */

static struct entry *find(struct list *list, const char *name, const char *verb)
{
	for (size_t i = 0; name && i < list->count; i++) {
		struct entry *entry = &list->entries[i];
		if (!strcmp(entry->name, name) && (!verb || !strcmp(entry->verb, verb)))
			return entry;
	}
	return NULL;
}

static struct entry *find_id(struct list *list, uint64_t id)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->entries[i].id == id)
			return &list->entries[i];
	return NULL;
}

static struct entry *find_token(struct list *list, uint64_t token)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->entries[i].token == token)
			return &list->entries[i];
	return NULL;
}

static struct entry *add(struct list *list, const char *name)
{
	if (list->count == MOST) {
		fputs("the driver keeps 256 of each at most\n", stderr);
		exit(1);
	}
	struct entry *entry = &list->entries[list->count++];
	*entry = (struct entry){ .name = strdup(name) };
	return entry;
}

static void take_out(struct list *list, struct entry *entry)
{
	if (!entry)
		return;
	free(entry->name);
	free(entry->verb);
	free(entry->how);
	*entry = list->entries[--list->count];
}

static void forget_all(void)
{
	struct list *lists[] = { &groups, &watches, &held, &served, &asked };
	for (int i = 0; i < 5; i++)
		while (lists[i]->count)
			take_out(lists[i], lists[i]->entries);
}

static bool is_paused(void)
{
	for (size_t i = 0; i < groups.count; i++)
		if (groups.entries[i].is_paused)
			return true;
	return false;
}

/* ---- events ---- */

static const char *what_of(antiphon_kind lost)
{
	return lost == ANTIPHON_LOST_LEAD ? "lead" : "lock";
}

static void tell_lost(const char *what, const char *of, const char *name, const char *cause)
{
	begin_event("lost", of, name);
	put_string("what", what);
	put_string("cause", cause);
	end();
}

static void tell_reply(const antiphon_event *event)
{
	struct entry *entry = find_id(&asked, event->id);
	if (!entry)
		return;
	uint64_t id = entry->token;
	if (event->error.code) {
		tell_error(id, &event->error, event);
	} else if (event->op == ANTIPHON_LOCK || event->op == ANTIPHON_LEAD) {
		struct entry *lock = add(&held, entry->name);
		lock->token = event->token;
		lock->lost = event->op == ANTIPHON_LEAD ? ANTIPHON_LOST_LEAD : ANTIPHON_LOST_LOCK;
		begin_ok(id);
		put_u64("token", event->token);
		end_ok();
	} else if (event->op == ANTIPHON_CALL) {
		begin_ok(id);
		put_answers("replies", event, false);
		put_answers("failures", event, true);
		end_ok();
	} else {
		tell_null(id);
	}
	take_out(&asked, entry);
}

static void answer(const antiphon_event *event)
{
	const struct entry *entry = find(&served, event->name, event->key);
	begin_event("request", "group", event->name);
	put_string("verb", event->key);
	end();
	if (!entry || !strcmp(entry->how, "never"))
		return;
	if (!strcmp(entry->how, "error"))
		antiphon_answer_error(client, event->id, "no", NULL);
	else if (!strcmp(entry->how, "echo"))
		antiphon_answer(client, event->id, event->data.bytes, event->data.length, NULL);
	else
		antiphon_answer(client, event->id, antiphon_member(client), strlen(antiphon_member(client)), NULL);
}

static void tell_closed(const char *cause)
{
	for (size_t i = 0; i < groups.count; i++) {
		begin_event("connection_lost", "group", groups.entries[i].name);
		put_string("cause", cause);
		end();
	}
	for (size_t i = 0; i < watches.count; i++) {
		begin_event("connection_lost", "map", watches.entries[i].name);
		put_string("cause", cause);
		end();
	}
	for (size_t i = 0; i < held.count; i++)
		tell_lost(what_of(held.entries[i].lost), "name", held.entries[i].name, cause);
	forget_all();
}

static void tell(antiphon *of, const antiphon_event *event, void *unused)
{
	(void)of, (void)unused;
	switch (event->kind) {
	case ANTIPHON_VIEW:
		begin_event("view", "group", event->name);
		put_string("id", event->view);
		put_names("members", event->members);
		put_names("joined", event->joined);
		put_names("left", event->left);
		put_names("crashed", event->crashed);
		put_names("transitional", event->transitional);
		put_bool("primary", event->primary);
		key("causes");
		begin();
		for (size_t i = 0; i < event->crashed.count; i++)
			put_string(event->crashed.names[i], event->causes[i]);
		text_add_string(&out, "}");
		end();
		break;
	case ANTIPHON_MESSAGE:
		begin_event("message", "group", event->name);
		put_string("view", event->view);
		put_string("sender", event->sender);
		put_u64("seq", event->seq);
		put_u64("part", event->part);
		put_bool("safe", event->safe);
		put_data("payload", event->data);
		end();
		break;
	case ANTIPHON_TRANSITIONAL:
		begin_event("transitional", "group", event->name);
		put_names("members", event->members);
		end();
		break;
	case ANTIPHON_SUSPENDED:
		begin_event("suspended", "group", event->name);
		end();
		break;
	case ANTIPHON_RESYNC:
		begin_event("resync", "group", event->name);
		put_string("cause", event->cause);
		end();
		break;
	case ANTIPHON_NOT_SENT:
		begin_event("refused", "group", event->name);
		put_string("reason", event->cause);
		put_data("payload", event->data);
		end();
		break;
	case ANTIPHON_LOST_GROUP:
		begin_event("lost", "group", event->name);
		put_string("cause", event->cause);
		end();
		take_out(&groups, find(&groups, event->name, NULL));
		break;
	case ANTIPHON_LOST_LOCK:
	case ANTIPHON_LOST_LEAD:
		tell_lost(what_of(event->kind), "name", event->name, event->cause);
		take_out(&held, find_token(&held, event->token));
		break;
	case ANTIPHON_LOST_WATCH:
		tell_lost("watch", "map", event->name, event->cause);
		take_out(&watches, find_id(&watches, event->id));
		break;
	case ANTIPHON_WATCHING:
		begin_event("watching", "map", event->name);
		put_u64("entries", event->number);
		end();
		break;
	case ANTIPHON_CHANGED:
		begin_event("changed", "map", event->name);
		put_string("key", event->key);
		put_u64("version", event->version);
		put_string("gone", event->gone);
		if (event->has_value)
			put_data("value", event->data);
		end();
		break;
	case ANTIPHON_REQUEST:
		answer(event);
		break;
	case ANTIPHON_REPLY:
		tell_reply(event);
		break;
	case ANTIPHON_CLOSED:
		tell_closed(event->cause);
		break;
	case ANTIPHON_LEFT:
	case ANTIPHON_COMMANDED:
		break;
	}
}

/* ---- commands ---- */

static const struct json *field(const char *key)
{
	return json_member(&document, command, key);
}

static const char *text(const char *key)
{
	return json_string(field(key));
}

static uint64_t number(const char *key)
{
	uint64_t number = 0;
	json_u64(field(key), &number);
	return number;
}

static bool flag(const char *key)
{
	return json_is_true(field(key));
}

static antiphon_bytes bytes(const struct json *payload)
{
	char *at = "";
	size_t length = 0;
	json_payload(&document, payload, &at, &length);
	return (antiphon_bytes){ at, length };
}

static antiphon_bytes data(const char *key)
{
	return bytes(field(key));
}

/* Seconds as milliseconds, rounded up; -1 without them. */
static int64_t milliseconds(const char *key)
{
	const struct json *value = field(key);
	if (!value || value->type != JSON_NUMBER)
		return -1;
	char digits[64];
	snprintf(digits, sizeof digits, "%.*s", (int)(value->length < 63 ? value->length : 63), value->text);
	return (int64_t)ceil(strtod(digits, NULL) * 1000 - 1e-9);
}

/* Begins something whose reply is told when it comes. */
static int start(uint64_t id, const char *name, const antiphon_request *request, antiphon_error *error)
{
	uint64_t of = antiphon_start(client, request, error);
	if (!of)
		return -1;
	struct entry *entry = add(&asked, name ? name : "");
	entry->id = of;
	entry->token = id;
	return 1;
}

static int end_hold(antiphon_error *error)
{
	struct entry *lock = find(&held, text("name"), NULL);
	if (!lock) {
		*error = (antiphon_error){ .code = ANTIPHON_NOT_HELD };
		return -1;
	}
	int result = lock->lost == ANTIPHON_LOST_LEAD ?
			     antiphon_resign(client, lock->name, lock->token, text("to"), TIMEOUT_MS, error) :
			     antiphon_unlock(client, lock->name, lock->token, TIMEOUT_MS, error);
	if (!result)
		take_out(&held, lock);
	return result;
}

static int tell_value(uint64_t id, int result, antiphon_value *value)
{
	if (result)
		return -1;
	if (!value->exists)
		return 0;
	begin_ok(id);
	put_data("value", (antiphon_bytes){ value->bytes, value->length });
	put_u64("version", value->version);
	end_ok();
	antiphon_value_free(value);
	return 1;
}

static int connect_to(uint64_t id, antiphon_error *error)
{
	antiphon_drop(client);
	forget_all();
	int64_t grace_ms = milliseconds("grace");
	const antiphon_options options = { .size = sizeof options, .name = text("name"),
					   .grace_ms = grace_ms < 0 ? 0 : (int)grace_ms };
	client = antiphon_connect_with(text("address"), &options, 10000, error);
	if (!client)
		return -1;
	begin_ok(id);
	put_string("member", antiphon_member(client));
	end_ok();
	return 1;
}

static int call(uint64_t id, antiphon_error *error)
{
	const char *nodes[64];
	const struct json *to = field("to");
	antiphon_request request = { .op = ANTIPHON_CALL, .name = text("group"), .key = text("verb"),
				     .to = json_string(to), .data = data("payload"),
				     .within_ms = milliseconds("within") };
	if (!to)
		request.to = "any";
	if (to && to->type == JSON_ARRAY) {
		request.nodes = nodes;
		for (const struct json *one = json_first(&document, to); one; one = json_next(&document, to, one))
			if (request.node_count < 64)
				nodes[request.node_count++] = json_string(one);
	}
	return start(id, NULL, &request, error);
}

static int send_bundle(uint64_t id, antiphon_error *error)
{
	static antiphon_bytes payloads[4096];
	antiphon_request request = { .op = ANTIPHON_SEND_BUNDLE, .name = text("group"), .payloads = payloads,
				     .safe = flag("safe") };
	const struct json *given = field("payloads");
	for (const struct json *one = json_first(&document, given); one; one = json_next(&document, given, one))
		if (request.payload_count < 4096)
			payloads[request.payload_count++] = bytes(one);
	if (flag("wait"))
		return start(id, NULL, &request, error);
	return antiphon_send_bundle(client, request.name, payloads, request.payload_count,
				    request.safe ? ANTIPHON_SAFE : 0, error);
}

static int join(const char *group, antiphon_error *error)
{
	/* From the reply on events come. */
	struct entry *entry = find(&groups, group, NULL);
	int result = antiphon_join(client, group, TIMEOUT_MS, error);
	if (!result && !entry)
		add(&groups, group);
	return result;
}

static int watch(antiphon_error *error)
{
	uint64_t id;
	if (antiphon_watch(client, text("map"), text("key"), text("prefix"), TIMEOUT_MS, &id, error))
		return -1;
	add(&watches, text("map"))->id = id;
	return 0;
}

static int serve(antiphon_error *error)
{
	struct entry *entry = add(&served, text("group"));
	entry->verb = strdup(text("verb"));
	entry->how = strdup(text("how"));
	return antiphon_serve(client, text("group"), text("verb"), TIMEOUT_MS, error);
}

/* 0: the answer is null; 1: it was given, or comes later; -1: an error. */
static int obey(const char *what, uint64_t id, antiphon_error *error)
{
	antiphon_event *reply;
	antiphon_value value;
	uint64_t version = number("if_version");
	const uint64_t *if_version = field("if_version") ? &version : NULL;
	if (!strcmp(what, "connect"))
		return connect_to(id, error);
	if (!client) {
		*error = (antiphon_error){ .code = ANTIPHON_CONNECTION, .reason = "not connected" };
		return -1;
	}
	if (!strcmp(what, "close")) {
		forget_all();
		antiphon_close(client, 5000);
		client = NULL;
		return 0;
	}
	if (!strcmp(what, "cut")) {
		shutdown(client->link.fd, SHUT_RDWR);
		return 0;
	}
	if (!strcmp(what, "members")) {
		if (antiphon_members(client, TIMEOUT_MS, &reply, error))
			return -1;
		begin_ok(id);
		key("nodes");
		text_add_string(&out, "[");
		for (size_t i = 0; i < reply->node_count; i++) {
			text_add_string(&out, i ? "," : "");
			text_add_quoted(&out, reply->nodes[i].name, strlen(reply->nodes[i].name));
		}
		text_add_string(&out, "]");
		end_ok();
		antiphon_event_free(reply);
		return 1;
	}
	if (!strcmp(what, "why")) {
		if (antiphon_why(client, text("node"), TIMEOUT_MS, &reply, error))
			return -1;
		begin_ok(id);
		put_names("facts", reply->facts);
		end_ok();
		antiphon_event_free(reply);
		return 1;
	}
	if (!strcmp(what, "join"))
		return join(text("group"), error);
	if (!strcmp(what, "leave")) {
		int result = antiphon_leave(client, text("group"), TIMEOUT_MS, error);
		if (!result)
			take_out(&groups, find(&groups, text("group"), NULL));
		return result;
	}
	if (!strcmp(what, "send")) {
		antiphon_bytes of = data("payload");
		if (!flag("wait"))
			return antiphon_send(client, text("group"), of.bytes, of.length,
					     flag("safe") ? ANTIPHON_SAFE : 0, error);
		return start(id, NULL,
			     &(antiphon_request){ .op = ANTIPHON_SEND, .name = text("group"), .data = of,
						  .safe = flag("safe") },
			     error);
	}
	if (!strcmp(what, "send_bundle"))
		return send_bundle(id, error);
	if (!strcmp(what, "pause") || !strcmp(what, "resume")) {
		struct entry *group = find(&groups, text("group"), NULL);
		if (group)
			group->is_paused = *what == 'p';
		return 0;
	}
	if (!strcmp(what, "lock"))
		return start(id, text("name"),
			     &(antiphon_request){ .op = ANTIPHON_LOCK, .name = text("name"),
						  .within_ms = milliseconds("within") },
			     error);
	if (!strcmp(what, "lead"))
		return start(id, text("name"), &(antiphon_request){ .op = ANTIPHON_LEAD, .name = text("name") },
			     error);
	if (!strcmp(what, "unlock") || !strcmp(what, "resign"))
		return end_hold(error);
	if (!strcmp(what, "get"))
		return tell_value(id, antiphon_get(client, text("map"), text("key"), flag("latest"), TIMEOUT_MS, &value,
						   error), &value);
	if (!strcmp(what, "remove"))
		return tell_value(id, antiphon_remove(client, text("map"), text("key"), if_version, TIMEOUT_MS, &value,
						      error), &value);
	if (!strcmp(what, "put")) {
		antiphon_bytes of = data("value");
		int64_t ttl_ms = milliseconds("ttl");
		if (antiphon_put(client, text("map"), text("key"), of.bytes, of.length, if_version,
				 ttl_ms < 0 ? 0 : (uint64_t)ttl_ms, TIMEOUT_MS, &version, error))
			return -1;
		begin_ok(id);
		put_u64("version", version);
		end_ok();
		return 1;
	}
	if (!strcmp(what, "watch"))
		return watch(error);
	if (!strcmp(what, "add")) {
		int64_t by = 0, sum;
		json_i64(field("by"), &by);
		if (antiphon_add(client, text("counter"), by, TIMEOUT_MS, &sum, error))
			return -1;
		begin_ok(id);
		key("value");
		text_add_i64(&out, sum);
		end_ok();
		return 1;
	}
	if (!strcmp(what, "take_ids")) {
		uint64_t first;
		if (antiphon_take_ids(client, (uint32_t)number("count"), TIMEOUT_MS, &first, error))
			return -1;
		begin_ok(id);
		put_u64("first", first);
		put_u64("count", number("count"));
		end_ok();
		return 1;
	}
	if (!strcmp(what, "serve"))
		return serve(error);
	if (!strcmp(what, "call"))
		return call(id, error);
	*error = (antiphon_error){ .code = ANTIPHON_INVALID, .reason = "the driver knows no such command" };
	return -1;
}

static void take_command(char *line, size_t length)
{
	const char *wrong = json_parse(&document, line, length);
	command = document.nodes;
	if (wrong || !text("do")) {
		fprintf(stderr, "not a command: %s\n", wrong ? wrong : "it has no do");
		exit(1);
	}
	antiphon_error error = { 0 };
	uint64_t id = number("id");
	int result = obey(text("do"), id, &error);
	if (result < 0)
		tell_error(id, &error, NULL);
	else if (!result)
		tell_null(id);
}

static void flush(void)
{
	if (out.length && (fwrite(out.bytes, 1, out.length, stdout) != out.length || fflush(stdout)))
		exit(1);
	out.length = 0;
}

/* False at the end of standard input. */
static bool take_commands(struct text *in)
{
	if (!text_reserve(in, 65536))
		return false;
	ssize_t got = read(0, in->bytes + in->length, 65536);
	if (got <= 0)
		return false;
	in->length += (size_t)got;
	char *line = in->bytes, *end;
	while ((end = memchr(line, '\n', in->length - (size_t)(line - in->bytes)))) {
		take_command(line, (size_t)(end - line));
		flush();
		line = end + 1;
	}
	in->length -= (size_t)(line - in->bytes);
	memmove(in->bytes, line, in->length);
	return true;
}

int main(void)
{
	struct text in = { 0 };
	for (;;) {
		bool takes = client && antiphon_fd(client) >= 0 && !is_paused();
		/* What was read while a command waited, too. */
		if (client && !is_paused())
			antiphon_dispatch(client, tell, NULL, NULL);
		flush();
		struct pollfd fds[] = { { .fd = 0, .events = POLLIN },
					{ .fd = takes ? antiphon_fd(client) : -1, .events = POLLIN } };
		int wait_ms = client && !is_paused() && antiphon_pending(client) ? 0 : -1;
		if (poll(fds, 2, wait_ms) > 0 && fds[0].revents && !take_commands(&in))
			return 0;
	}
}
