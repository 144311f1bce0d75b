#include "client.h"

#include <stdlib.h>
#include <string.h>

/* A line may have 4 MiB, and a payload 1 MiB: what is larger is not even sent. */
#define MOST_DATA_BYTES ((size_t)2 << 20)
#define MOST_LINE_BYTES ((size_t)4 << 20)
#define MOST_ANSWER_BYTES ((size_t)59744)
#define MOST_COMMAND_ANSWER_BYTES ((size_t)1 << 20)
#define LATE_MS 5000	      /* for the agent to say that a time is over */
#define MOST_COMMAND_MS 600000 /* that a list gives a command */

/* ---- lines ---- */

static void key(struct text *out, const char *key)
{
	/* The first of an object has no comma. */
	if (out->length && out->bytes[out->length - 1] != '{')
		text_add_string(out, ",");
	text_add_quoted(out, key, strlen(key));
	text_add_string(out, ":");
}

static void put_string(struct text *out, const char *name, const char *value)
{
	if (value) {
		key(out, name);
		text_add_quoted(out, value, strlen(value));
	}
}

static void put_u64(struct text *out, const char *name, uint64_t value)
{
	key(out, name);
	text_add_u64(out, value);
}

static void put_ms(struct text *out, const char *name, uint64_t ms)
{
	key(out, name);
	text_add_string(out, "\"");
	text_add_u64(out, ms);
	text_add_string(out, "ms\"");
}

static void put_data(struct text *out, const char *name, antiphon_bytes data)
{
	key(out, name);
	text_add_payload(out, data.bytes ? data.bytes : "", data.bytes ? data.length : 0);
}

static void put_payloads(struct text *out, const antiphon_bytes *payloads, size_t count)
{
	key(out, "payloads");
	text_add_string(out, "[");
	for (size_t i = 0; i < count; i++) {
		text_add_string(out, i ? "," : "");
		text_add_payload(out, payloads[i].bytes ? payloads[i].bytes : "",
				 payloads[i].bytes ? payloads[i].length : 0);
	}
	text_add_string(out, "]");
}

static void put_true(struct text *out, const char *name, bool value)
{
	if (value) {
		key(out, name);
		text_add_string(out, "true");
	}
}

static void put_receivers(struct text *out, const antiphon_request *request)
{
	const char *const *nodes = request->nodes ? request->nodes : &request->to;
	size_t count = request->nodes ? request->node_count : 1;
	bool is_word = !request->nodes && (!strcmp(request->to, "any") || !strcmp(request->to, "all") ||
					   (request->op == ANTIPHON_COMMAND && !strcmp(request->to, "one")));
	if (is_word)
		return put_string(out, "to", request->to);
	key(out, "to");
	text_add_string(out, "[");
	for (size_t i = 0; i < count; i++) {
		text_add_string(out, i ? "," : "");
		text_add_quoted(out, nodes[i], strlen(nodes[i]));
	}
	text_add_string(out, "]");
}

static void put_args(struct text *out, const antiphon_arg *args, size_t count)
{
	key(out, "args");
	text_add_string(out, "{");
	for (size_t i = 0; i < count; i++) {
		key(out, args[i].name);
		if (args[i].type == ANTIPHON_INTEGER)
			text_add_i64(out, args[i].integer);
		else if (args[i].type == ANTIPHON_BOOLEAN)
			text_add_string(out, args[i].integer ? "true" : "false");
		else
			text_add_quoted(out, args[i].text, strlen(args[i].text));
	}
	text_add_string(out, "}");
}

/* What each operation's word is, and what its `name` and `key` are called. */
static const struct {
	const char *word, *name, *key;
} ops[] = {
	[ANTIPHON_JOIN] = { "join", "group", NULL },	     [ANTIPHON_LEAVE] = { "leave", "group", NULL },
	[ANTIPHON_SEND] = { "send", "group", NULL },	     [ANTIPHON_LOCK] = { "lock", "name", NULL },
	[ANTIPHON_UNLOCK] = { "unlock", "name", NULL },	     [ANTIPHON_LEAD] = { "lead", "name", NULL },
	[ANTIPHON_RESIGN] = { "resign", "name", NULL },	     [ANTIPHON_GET] = { "get", "map", "key" },
	[ANTIPHON_PUT] = { "put", "map", "key" },	     [ANTIPHON_REMOVE] = { "remove", "map", "key" },
	[ANTIPHON_WATCH] = { "watch", "map", "key" },	     [ANTIPHON_ADD] = { "add", "counter", NULL },
	[ANTIPHON_TAKE_IDS] = { "take_ids", NULL, NULL },    [ANTIPHON_SERVE] = { "serve", "group", "verb" },
	[ANTIPHON_CALL] = { "call", "group", "verb" },	     [ANTIPHON_MEMBERS] = { "members", NULL, NULL },
	[ANTIPHON_WHY] = { "why", "node", NULL },	     [ANTIPHON_CANCEL] = { "cancel", NULL, NULL },
	[ANTIPHON_COMMAND] = { "command", NULL, "verb" },    [ANTIPHON_COMMANDS] = { "commands", NULL, NULL },
	[ANTIPHON_SERVE_COMMAND] = { "serve_command", NULL, "verb" },
	[ANTIPHON_SEND_BUNDLE] = { "send_bundle", "group", NULL },
	[OP_HELLO] = { "hello", "name", NULL },
};

/* Whether all is there that an operation needs. */
static const char *what_is_missing(const antiphon_request *request)
{
	antiphon_op op = request->op;
	bool needs_key = op == ANTIPHON_GET || op == ANTIPHON_PUT || op == ANTIPHON_REMOVE || op == ANTIPHON_SERVE ||
			 op == ANTIPHON_CALL || op == ANTIPHON_COMMAND || op == ANTIPHON_SERVE_COMMAND;
	if (op < ANTIPHON_JOIN || op > OP_HELLO || !ops[op].word)
		return "there is no such operation";
	if (ops[op].name && !request->name && op != OP_HELLO && op != ANTIPHON_LEAVE)
		return "the operation needs a name";
	if (needs_key && !request->key)
		return "the operation needs a key, or a verb";
	if ((op == ANTIPHON_CALL || op == ANTIPHON_COMMAND) && !request->to && !request->nodes)
		return "a call and a command need a receiver: any, all, or nodes";
	if (op == ANTIPHON_SEND_BUNDLE && (!request->payloads || !request->payload_count))
		return "a bundle has one payload at least";
	for (size_t i = 0; op == ANTIPHON_COMMAND && i < request->arg_count; i++) {
		const antiphon_arg *arg = &request->args[i];
		bool is_known = arg->type >= ANTIPHON_TEXT && arg->type <= ANTIPHON_BOOLEAN;
		if (!arg->name || !is_known || (arg->type == ANTIPHON_TEXT && !arg->text))
			return "an argument needs a name, a type, and a value of that type";
	}
	return NULL;
}

/* A line that was put from this place on stays, or is taken back. */
static int end_line(antiphon *client, size_t before, antiphon_error *error)
{
	struct text *out = &client->link.out;
	size_t length = out->length - before;
	if (!out->failed && length <= MOST_LINE_BYTES && (!client->back || back_keep(client, before)))
		return 0;
	out->failed = false;
	out->length = before;
	if (length > MOST_LINE_BYTES)
		return fail(error, ANTIPHON_REFUSED, ANTIPHON_RAN_NO,
			    "a line has at most 4 MiB: use shorter names, or send less at once");
	return fail(error, ANTIPHON_NO_MEMORY, ANTIPHON_RAN_NO, "no memory for a line");
}

static void put_hello(antiphon *client)
{
	struct text *out = &client->link.out;
	put_string(out, "token", client->token);
	if (!client->back)
		return;
	put_ms(out, "grace", (uint64_t)client->back->grace_ms);
	if (client->is_down) {
		put_string(out, "resume", client->back->key);
		put_u64(out, "lines", client->back->lines);
	}
}

static void put_line(antiphon *client, const antiphon_request *request, uint64_t id)
{
	struct text *out = &client->link.out;
	antiphon_op op = request->op;
	text_add_string(out, "{");
	key(out, ops[op].word);
	text_add_string(out, "{");
	if (ops[op].name)
		put_string(out, ops[op].name, request->name);
	if (ops[op].key)
		put_string(out, ops[op].key, request->key);
	switch (op) {
	case ANTIPHON_JOIN:
		put_true(out, "bundles", true);
		break;
	case ANTIPHON_SEND:
		put_data(out, "payload", request->data);
		put_true(out, "safe", request->safe);
		break;
	case ANTIPHON_SEND_BUNDLE:
		put_payloads(out, request->payloads, request->payload_count);
		put_true(out, "safe", request->safe);
		break;
	case ANTIPHON_LOCK:
		if (request->within_ms >= 0)
			put_ms(out, "within", (uint64_t)request->within_ms);
		break;
	case ANTIPHON_RESIGN:
		put_string(out, "to", request->to);
		/* fall through */
	case ANTIPHON_UNLOCK:
		put_u64(out, "token", request->token);
		break;
	case ANTIPHON_GET:
		put_true(out, "latest", request->latest);
		break;
	case ANTIPHON_PUT:
		put_data(out, "value", request->data);
		if (request->ttl_ms)
			put_ms(out, "ttl", request->ttl_ms);
		/* fall through */
	case ANTIPHON_REMOVE:
		if (request->if_version)
			put_u64(out, "if_version", *request->if_version);
		break;
	case ANTIPHON_WATCH:
		put_string(out, "prefix", request->prefix);
		break;
	case ANTIPHON_ADD:
		key(out, "by");
		text_add_i64(out, request->by);
		break;
	case ANTIPHON_TAKE_IDS:
		put_u64(out, "count", request->count);
		break;
	case ANTIPHON_CALL:
		put_receivers(out, request);
		put_data(out, "payload", request->data);
		if (request->within_ms > 0)
			put_ms(out, "within", (uint64_t)request->within_ms);
		break;
	case ANTIPHON_CANCEL:
		put_u64(out, "of", request->of);
		break;
	case ANTIPHON_COMMAND:
		put_args(out, request->args, request->arg_count);
		put_receivers(out, request);
		put_string(out, "by", request->way);
		if (request->no_reply) {
			key(out, "reply");
			text_add_string(out, "false");
		}
		if (request->within_ms > 0)
			put_ms(out, "within", (uint64_t)request->within_ms);
		break;
	default:
		if (op == OP_HELLO)
			put_hello(client);
	}
	if (id && op != ANTIPHON_WHY) /* which has none: answers come in the order of the questions */
		put_u64(out, "id", id);
	text_add_string(out, "}}\n");
}

static bool is_too_large(const antiphon_request *request)
{
	size_t count = request->op == ANTIPHON_SEND_BUNDLE ? request->payload_count : 0, left = MOST_DATA_BYTES;
	for (size_t i = 0; i < count; i++) {
		size_t length = request->payloads[i].bytes ? request->payloads[i].length : 0;
		if (length > left)
			return true;
		left -= length;
	}
	return request->data.bytes && request->data.length > MOST_DATA_BYTES;
}

int put_request(antiphon *client, const antiphon_request *request, uint64_t id, antiphon_error *error)
{
	const char *missing = what_is_missing(request);
	if (missing)
		return fail(error, ANTIPHON_INVALID, ANTIPHON_RAN_NO, missing);
	if (is_too_large(request))
		return fail(error, ANTIPHON_REFUSED, ANTIPHON_RAN_NO,
			    "a payload, or all of a bundle, has at most 1048570 bytes: send it in parts");
	size_t before = client->link.out.length;
	put_line(client, request, id);
	return end_line(client, before, error);
}

void put_hello_again(antiphon *client)
{
	put_line(client, &(antiphon_request){ .op = OP_HELLO, .name = client->asked_name }, 0);
}

void give_back(antiphon *client, const antiphon_event *reply)
{
	if (reply->error.code != ANTIPHON_OK || (reply->op != ANTIPHON_LOCK && reply->op != ANTIPHON_LEAD))
		return;
	antiphon_op undo = reply->op == ANTIPHON_LOCK ? ANTIPHON_UNLOCK : ANTIPHON_RESIGN;
	put_request(client, &(antiphon_request){ .op = undo, .name = reply->name, .token = reply->token }, 0, NULL);
	write_some(client);
}

/* ---- operations that wait ---- */

/* The reply in `reply`, to be freed if this is 0. */
static int reply_to(antiphon *client, const antiphon_request *request, int timeout_ms, antiphon_event **reply,
		    antiphon_error *error)
{
	uint64_t id = antiphon_start(client, request, error);
	if (!id)
		return -1;
	if (antiphon_wait(client, id, timeout_ms, reply, error)) {
		antiphon_forget(client, id);
		return -1;
	}
	if ((*reply)->error.code == ANTIPHON_OK)
		return 0;
	if (error)
		*error = (*reply)->error;
	if (!(*reply)->answer_count) { /* of a call or a command */
		antiphon_event_free(*reply);
		*reply = NULL;
	}
	return -1;
}

static int perform(antiphon *client, const antiphon_request *request, int timeout_ms, uint64_t *token,
		   uint64_t *version, antiphon_error *error)
{
	antiphon_event *reply;
	if (reply_to(client, request, timeout_ms, &reply, error))
		return -1;
	if (token)
		*token = reply->token;
	if (version)
		*version = reply->version;
	antiphon_event_free(reply);
	return 0;
}

int antiphon_join(antiphon *client, const char *group, int timeout_ms, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_JOIN, .name = group };
	return perform(client, &request, timeout_ms, NULL, NULL, error);
}

int antiphon_leave(antiphon *client, const char *group, int timeout_ms, antiphon_error *error)
{
	if (!group)
		return fail(error, ANTIPHON_INVALID, ANTIPHON_RAN_NO, "the operation needs a name");
	const antiphon_request request = { .op = ANTIPHON_LEAVE, .name = group };
	return perform(client, &request, timeout_ms, NULL, NULL, error);
}

/* Does not wait until it is delivered. */
static int say(antiphon *client, const antiphon_request *request, antiphon_error *error)
{
	if (may_write(client, error) || put_request(client, request, 0, error))
		return -1;
	write_all(client);
	return client->over ? fail(error, ANTIPHON_CONNECTION, ANTIPHON_RAN_MAYBE, client->cause) : 0;
}

int antiphon_send(antiphon *client, const char *group, const void *bytes, size_t length, int flags,
		  antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_SEND, .name = group, .data = { bytes, length },
					   .safe = flags & ANTIPHON_SAFE };
	return say(client, &request, error);
}

int antiphon_send_bundle(antiphon *client, const char *group, const antiphon_bytes *payloads, size_t count, int flags,
			 antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_SEND_BUNDLE, .name = group, .payloads = payloads,
					   .payload_count = count, .safe = flags & ANTIPHON_SAFE };
	return say(client, &request, error);
}

int antiphon_send_bundle_wait(antiphon *client, const char *group, const antiphon_bytes *payloads, size_t count,
			      int flags, int timeout_ms, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_SEND_BUNDLE, .name = group, .payloads = payloads,
					   .payload_count = count, .safe = flags & ANTIPHON_SAFE };
	return perform(client, &request, timeout_ms, NULL, NULL, error);
}

int antiphon_send_wait(antiphon *client, const char *group, const void *bytes, size_t length, int flags,
		       int timeout_ms, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_SEND, .name = group, .data = { bytes, length },
					   .safe = flags & ANTIPHON_SAFE };
	return perform(client, &request, timeout_ms, NULL, NULL, error);
}

int antiphon_lock(antiphon *client, const char *name, int within_ms, uint64_t *token, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_LOCK, .name = name, .within_ms = within_ms };
	int timeout_ms = within_ms < 0 || within_ms > INT32_MAX - LATE_MS ? -1 : within_ms + LATE_MS;
	return perform(client, &request, timeout_ms, token, NULL, error);
}

int antiphon_unlock(antiphon *client, const char *name, uint64_t token, int timeout_ms, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_UNLOCK, .name = name, .token = token };
	return perform(client, &request, timeout_ms, NULL, NULL, error);
}

int antiphon_lead(antiphon *client, const char *job, int timeout_ms, uint64_t *token, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_LEAD, .name = job };
	return perform(client, &request, timeout_ms, token, NULL, error);
}

int antiphon_resign(antiphon *client, const char *job, uint64_t token, const char *to, int timeout_ms,
		    antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_RESIGN, .name = job, .token = token, .to = to };
	return perform(client, &request, timeout_ms, NULL, NULL, error);
}

/* Copies what a key has, or had. */
static int take_value(antiphon *client, const antiphon_request *request, int timeout_ms, antiphon_value *value,
		      antiphon_error *error)
{
	antiphon_event *reply;
	if (value)
		*value = (antiphon_value){ 0 };
	if (reply_to(client, request, timeout_ms, &reply, error))
		return -1;
	int result = 0;
	if (value && reply->has_value) {
		value->bytes = malloc(reply->data.length + 1);
		if (value->bytes) {
			memcpy(value->bytes, reply->data.bytes, reply->data.length + 1);
			value->exists = true;
			value->length = reply->data.length;
			value->version = reply->version;
		} else {
			result = fail(error, ANTIPHON_NO_MEMORY, ANTIPHON_RAN_YES, "no memory for a value");
		}
	}
	antiphon_event_free(reply);
	return result;
}

void antiphon_value_free(antiphon_value *value)
{
	free(value->bytes);
	*value = (antiphon_value){ 0 };
}

int antiphon_get(antiphon *client, const char *map, const char *key, bool latest, int timeout_ms,
		 antiphon_value *value, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_GET, .name = map, .key = key, .latest = latest };
	return take_value(client, &request, timeout_ms, value, error);
}

int antiphon_put(antiphon *client, const char *map, const char *key, const void *bytes, size_t length,
		 const uint64_t *if_version, uint64_t ttl_ms, int timeout_ms, uint64_t *version,
		 antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_PUT, .name = map, .key = key, .data = { bytes, length },
					   .if_version = if_version, .ttl_ms = ttl_ms };
	return perform(client, &request, timeout_ms, NULL, version, error);
}

int antiphon_remove(antiphon *client, const char *map, const char *key, const uint64_t *if_version, int timeout_ms,
		    antiphon_value *had, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_REMOVE, .name = map, .key = key, .if_version = if_version };
	return take_value(client, &request, timeout_ms, had, error);
}

int antiphon_watch(antiphon *client, const char *map, const char *key, const char *prefix, int timeout_ms,
		   uint64_t *id, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_WATCH, .name = map, .key = key, .prefix = prefix };
	antiphon_event *reply;
	if (reply_to(client, &request, timeout_ms, &reply, error))
		return -1;
	if (id)
		*id = reply->id;
	antiphon_event_free(reply);
	return 0;
}

int antiphon_unwatch(antiphon *client, uint64_t id, int timeout_ms, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_CANCEL, .of = id };
	return perform(client, &request, timeout_ms, NULL, NULL, error);
}

int antiphon_add(antiphon *client, const char *counter, int64_t by, int timeout_ms, int64_t *value,
		 antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_ADD, .name = counter, .by = by };
	antiphon_event *reply;
	if (reply_to(client, &request, timeout_ms, &reply, error))
		return -1;
	if (value)
		*value = reply->value;
	antiphon_event_free(reply);
	return 0;
}

int antiphon_take_ids(antiphon *client, uint32_t count, int timeout_ms, uint64_t *first, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_TAKE_IDS, .count = count };
	antiphon_event *reply;
	if (reply_to(client, &request, timeout_ms, &reply, error))
		return -1;
	*first = reply->number;
	antiphon_event_free(reply);
	return 0;
}

int antiphon_serve(antiphon *client, const char *group, const char *verb, int timeout_ms, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_SERVE, .name = group, .key = verb };
	return perform(client, &request, timeout_ms, NULL, NULL, error);
}

static int put_answer(antiphon *client, uint64_t request, const char *as, antiphon_bytes data, uint64_t id,
		      antiphon_error *error)
{
	struct text *out = &client->link.out;
	size_t before = out->length;
	text_add_string(out, "{\"answer\":{");
	put_u64(out, "request", request - client->gone_requests);
	put_data(out, as, data);
	if (id)
		put_u64(out, "id", id);
	text_add_string(out, "}}\n");
	return end_line(client, before, error);
}

void answer_refused(antiphon *client, uint64_t request, const char *reason)
{
	put_answer(client, request, "error", (antiphon_bytes){ reason, strlen(reason) }, 0, NULL);
	write_some(client);
}

static int answer(antiphon *client, uint64_t request, const char *as, antiphon_bytes data, antiphon_error *error)
{
	if (may_write(client, error))
		return -1;
	if (data.length > (client->serves_commands ? MOST_COMMAND_ANSWER_BYTES : MOST_ANSWER_BYTES))
		return fail(error, ANTIPHON_REFUSED, ANTIPHON_RAN_NO,
			    "an answer has at most 59744 bytes, and one to a command 1 MiB");
	if (client->gone_requests && request <= client->gone_requests)
		return fail(error, ANTIPHON_NOT_HELD, ANTIPHON_RAN_NO,
			    "the request came by a connection that broke, and this client is a new one");
	/* An error has no id: nobody would be told if it is not taken. */
	uint64_t id = strcmp(as, "error") ? client->last_id + 1 : 0;
	if (put_answer(client, request, as, data, id, error))
		return -1;
	if (id && add_pending(client, id, &(antiphon_request){ .op = OP_ANSWER })) {
		client->last_id = id;
		struct pending *pending = &client->pending[client->pending_count - 1];
		pending->token = request;
		pending->forgotten = true;
	}
	write_all(client);
	return client->over ? fail(error, ANTIPHON_CONNECTION, ANTIPHON_RAN_MAYBE, client->cause) : 0;
}

int antiphon_answer(antiphon *client, uint64_t request, const void *bytes, size_t length, antiphon_error *error)
{
	return answer(client, request, "payload", (antiphon_bytes){ bytes, length }, error);
}

int antiphon_answer_error(antiphon *client, uint64_t request, const char *reason, antiphon_error *error)
{
	return answer(client, request, "error", (antiphon_bytes){ reason, strlen(reason) }, error);
}

int antiphon_call(antiphon *client, const char *group, const char *verb, const char *to, const void *bytes,
		  size_t length, int within_ms, antiphon_event **reply, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_CALL, .name = group, .key = verb, .to = to,
					   .data = { bytes, length }, .within_ms = within_ms };
	*reply = NULL;
	int timeout_ms = within_ms <= 0 ? 10000 + LATE_MS : within_ms > INT32_MAX - LATE_MS ? -1 : within_ms + LATE_MS;
	return reply_to(client, &request, timeout_ms, reply, error);
}

int antiphon_members(antiphon *client, int timeout_ms, antiphon_event **reply, antiphon_error *error)
{
	*reply = NULL;
	return reply_to(client, &(antiphon_request){ .op = ANTIPHON_MEMBERS }, timeout_ms, reply, error);
}

int antiphon_why(antiphon *client, const char *node, int timeout_ms, antiphon_event **reply, antiphon_error *error)
{
	*reply = NULL;
	return reply_to(client, &(antiphon_request){ .op = ANTIPHON_WHY, .name = node }, timeout_ms, reply, error);
}

int antiphon_command(antiphon *client, const char *verb, const antiphon_arg *args, size_t arg_count, const char *to,
		     int within_ms, antiphon_event **reply, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_COMMAND, .key = verb, .args = args, .arg_count = arg_count,
					   .to = to, .within_ms = within_ms };
	*reply = NULL;
	int timeout_ms = within_ms <= 0 || within_ms > MOST_COMMAND_MS ? MOST_COMMAND_MS : within_ms;
	return reply_to(client, &request, timeout_ms + LATE_MS, reply, error);
}

int antiphon_serve_command(antiphon *client, const char *verb, int timeout_ms, antiphon_error *error)
{
	const antiphon_request request = { .op = ANTIPHON_SERVE_COMMAND, .key = verb };
	return perform(client, &request, timeout_ms, NULL, NULL, error);
}

int antiphon_commands(antiphon *client, int timeout_ms, antiphon_event **reply, antiphon_error *error)
{
	*reply = NULL;
	return reply_to(client, &(antiphon_request){ .op = ANTIPHON_COMMANDS }, timeout_ms, reply, error);
}
