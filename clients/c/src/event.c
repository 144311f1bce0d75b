#include "client.h"

#include <stdlib.h>
#include <string.h>

/* One line on its way to an event: one allocation has the event, its lists, and a copy of the line. */
struct reading {
	antiphon *client;
	const struct json *root;
	const char *line;
	struct owned_event *owned;
	char *room; /* for lists */
	char *copy;
};

struct owned_event *event_new(antiphon_kind kind, size_t more)
{
	struct owned_event *owned = malloc(sizeof *owned + more);
	if (!owned)
		return NULL;
	*owned = (struct owned_event){ .size = sizeof *owned + more };
	owned->event.kind = kind;
	owned->event.data.bytes = "";
	return owned;
}

struct owned_event *event_about(antiphon_kind kind, const char *name, const char *cause)
{
	size_t length = name ? strlen(name) + 1 : 0;
	struct owned_event *owned = event_new(kind, length + strlen(cause) + 1);
	if (!owned)
		return NULL;
	char *room = (char *)(owned + 1);
	if (name)
		owned->event.name = memcpy(room, name, length);
	owned->event.cause = strcpy(room + length, cause);
	return owned;
}

void copy_reason(char *to, size_t size, const char *reason)
{
	size_t length = strlen(reason);
	if (length >= size)
		length = utf8_prefix(reason, size - 1);
	memcpy(to, reason, length);
	to[length] = 0;
}

static const struct json *member(const struct reading *reading, const struct json *of, const char *key)
{
	return json_member(&reading->client->document, of, key);
}

/* A string of the line where it stands in the copy. */
static const char *text_at(const struct reading *reading, const struct json *value)
{
	const char *text = json_string(value);
	return text ? reading->copy + (text - reading->line) : NULL;
}

static const char *text_of(const struct reading *reading, const char *key)
{
	return text_at(reading, member(reading, reading->root, key));
}

static uint64_t number_of(const struct reading *reading, const char *key)
{
	uint64_t number = 0;
	json_u64(member(reading, reading->root, key), &number);
	return number;
}

static void *take_room(struct reading *reading, size_t bytes)
{
	void *room = reading->room;
	reading->room += (bytes + 7) & ~(size_t)7;
	return room;
}

/* `lists`: bytes that its lists take at most. */
static bool begin(struct reading *reading, antiphon_kind kind, size_t length, size_t lists)
{
	reading->owned = event_new(kind, lists + length + 1);
	if (!reading->owned)
		return false;
	reading->room = (char *)(reading->owned + 1);
	reading->copy = reading->room + lists;
	return true;
}

/* Behind the last change of the line. */
static void keep(struct reading *reading, size_t length)
{
	memcpy(reading->copy, reading->line, length + 1);
}

static antiphon_names names_of(struct reading *reading, const struct json *array)
{
	antiphon_names names = { 0 };
	const struct json_document *document = &reading->client->document;
	if (!array || array->type != JSON_ARRAY || !array->count)
		return names;
	const char **list = take_room(reading, array->count * sizeof *list);
	for (const struct json *one = json_first(document, array); one; one = json_next(document, array, one)) {
		const char *name = text_at(reading, one);
		if (name)
			list[names.count++] = name;
	}
	names.names = list;
	return names;
}

/* Its bytes, where they stand in the copy. It decodes in the line, so before `keep`. */
static bool bytes_of(const struct reading *reading, const struct json *value, antiphon_bytes *bytes)
{
	char *at;
	size_t length;
	if (!value || value->type == JSON_NULL || !json_payload(&reading->client->document, value, &at, &length))
		return false;
	/* What was decoded is shorter than its text, so there is a place for the NUL. */
	at[length] = 0;
	*bytes = (antiphon_bytes){ reading->copy + (at - reading->line), length };
	return true;
}

static void read_error(const struct reading *reading, const struct json *of, antiphon_error *error)
{
	const char *code = json_string(member(reading, of, "code"));
	const char *ran = json_string(member(reading, of, "ran"));
	const char *reason = json_string(member(reading, of, "reason"));
	*error = (antiphon_error){ .code = ANTIPHON_OTHER, .ran = ANTIPHON_RAN_MAYBE };
	for (antiphon_code one = ANTIPHON_CONFLICT; code && one <= ANTIPHON_FAILED; one++)
		if (!strcmp(code, antiphon_code_name(one)))
			error->code = one;
	for (antiphon_ran one = ANTIPHON_RAN_NO; ran && one <= ANTIPHON_RAN_YES; one++)
		if (!strcmp(ran, antiphon_ran_name(one)))
			error->ran = one;
	copy_reason(error->reason, sizeof error->reason, reason ? reason : code ? code : "the agent did not say why");
}

static void read_args(struct reading *reading)
{
	const struct json_document *document = &reading->client->document;
	const struct json *args = member(reading, reading->root, "args");
	antiphon_event *event = &reading->owned->event;
	if (!args || args->type != JSON_OBJECT)
		return;
	antiphon_arg *arg = take_room(reading, args->count * sizeof *arg);
	event->args = arg;
	for (const struct json *one = json_first(document, args); one; one = json_next(document, args, one)) {
		*arg = (antiphon_arg){ .name = reading->copy + (one->key - reading->line) };
		arg->text = text_at(reading, one);
		arg->integer = json_is_true(one);
		if (arg->text)
			arg->type = ANTIPHON_TEXT;
		else if (one->type == JSON_TRUE || one->type == JSON_FALSE)
			arg->type = ANTIPHON_BOOLEAN;
		else if (json_i64(one, &arg->integer))
			arg->type = ANTIPHON_INTEGER;
		else
			continue; /* of a newer agent */
		arg++;
		event->arg_count++;
	}
}

/* Replies and failures of nodes. */
static void read_answers(struct reading *reading)
{
	const struct json_document *document = &reading->client->document;
	const struct json *lists[] = { member(reading, reading->root, "replies"),
				       member(reading, reading->root, "failures") };
	antiphon_event *event = &reading->owned->event;
	size_t count = (lists[0] ? lists[0]->count : 0) + (lists[1] ? lists[1]->count : 0);
	antiphon_node_answer *answer = take_room(reading, count * sizeof *answer);
	event->answers = answer;
	for (int failed = 0; failed < 2; failed++) {
		if (!lists[failed] || lists[failed]->type != JSON_OBJECT)
			continue;
		const struct json *of = lists[failed];
		for (const struct json *one = json_first(document, of); one; one = json_next(document, of, one)) {
			*answer = (antiphon_node_answer){ .data.bytes = "" };
			answer->node = reading->copy + (one->key - reading->line);
			if (failed)
				read_error(reading, one, &answer->error);
			bytes_of(reading, failed ? member(reading, one, "payload") : one, &answer->data);
			answer++;
			event->answer_count++;
		}
	}
}

static void read_nodes(struct reading *reading)
{
	const struct json_document *document = &reading->client->document;
	const struct json *view = member(reading, reading->root, "view"), *members = member(reading, view, "members");
	antiphon_event *event = &reading->owned->event;
	uint64_t number = 0;
	json_u64(member(reading, view, "number"), &number);
	event->number = number;
	event->primary = json_is_true(member(reading, view, "primary"));
	if (!members || members->type != JSON_ARRAY)
		return;
	antiphon_node_info *node = take_room(reading, members->count * sizeof *node);
	event->nodes = node;
	for (const struct json *one = json_first(document, members); one; one = json_next(document, members, one)) {
		node->name = text_at(reading, member(reading, one, "name"));
		node->incarnation = text_at(reading, member(reading, one, "incarnation"));
		node->address = text_at(reading, member(reading, one, "addr"));
		node++;
		event->node_count++;
	}
}

static void read_welcome(antiphon *client, const struct json *welcome)
{
	char **words[] = { &client->name, &client->node, &client->cluster, &client->build };
	static const char *const keys[] = { "client", "node", "cluster", "build" };
	for (int i = 0; i < 4; i++) {
		const char *word = json_string(json_member(&client->document, welcome, keys[i]));
		free(*words[i]);
		*words[i] = strdup(word ? word : "");
	}
	if (client->back)
		back_keyed(client, json_string(json_member(&client->document, welcome, "resume")));
}

/* The reply to an operation; nothing if nobody waits for it. */
static struct owned_event *read_reply(struct reading *reading, struct pending *pending, size_t length,
				      const struct json *error, const char *reason, const char **wrong)
{
	if (!pending)
		return NULL;
	antiphon_op op = pending->op;
	size_t named = pending->name ? (strlen(pending->name) + 8) & ~(size_t)7 : 0, lists = named;
	struct text commands = { 0 };
	const struct json *status = op == ANTIPHON_COMMANDS ? member(reading, reading->root, "commands") : NULL;
	if (status)
		text_add_json(&commands, &reading->client->document, status);
	if (status)
		lists += (commands.length + 8) & ~(size_t)7;
	else if (op == ANTIPHON_CALL || op == ANTIPHON_COMMAND)
		lists += reading->client->document.count * sizeof(antiphon_node_answer);
	else if (op == ANTIPHON_MEMBERS || op == ANTIPHON_WHY)
		lists += reading->client->document.count * sizeof(antiphon_node_info);
	if (commands.failed || !begin(reading, ANTIPHON_REPLY, length, lists)) {
		text_free(&commands);
		*wrong = "no memory for a reply";
		return NULL;
	}
	antiphon_event *event = &reading->owned->event;
	event->id = pending->id;
	event->op = op;
	if (pending->name)
		event->name = strcpy(take_room(reading, named), pending->name);
	if (reason) {
		event->error.code = ANTIPHON_REFUSED;
		copy_reason(event->error.reason, sizeof event->error.reason, reason);
	} else if (error) {
		read_error(reading, error, &event->error);
		event->error.has_version = json_u64(member(reading, reading->root, "version"), &event->error.version);
	}
	event->token = number_of(reading, "token");
	event->version = number_of(reading, "version");
	if (op == ANTIPHON_TAKE_IDS)
		event->number = number_of(reading, "first");
	else if (op == ANTIPHON_ADD)
		json_i64(member(reading, reading->root, "value"), &event->value);
	else if (op == ANTIPHON_GET || op == ANTIPHON_REMOVE)
		event->has_value = bytes_of(reading, member(reading, reading->root, "value"), &event->data);
	else if (op == ANTIPHON_CALL || op == ANTIPHON_COMMAND)
		read_answers(reading);
	else if (status)
		event->data = (antiphon_bytes){ reading->room, commands.length };
	else if (op == ANTIPHON_MEMBERS)
		read_nodes(reading);
	else if (op == ANTIPHON_WHY)
		event->facts = names_of(reading, member(reading, reading->root, "facts"));
	if (status) {
		memcpy(reading->room, commands.bytes, commands.length);
		reading->room[commands.length] = 0;
	}
	text_free(&commands);
	const struct json *welcome = member(reading, reading->root, "welcome");
	if (op == OP_HELLO && welcome)
		read_welcome(reading->client, welcome);
	struct pending done = take_pending(reading->client, pending);
	struct owned_event *instead = reading->client->back ? back_done(reading->client, &done, event) : NULL;
	free(done.name);
	free(done.key);
	if (op == OP_ANSWER && event->error.code == ANTIPHON_REFUSED && !reading->client->over)
		answer_refused(reading->client, done.token, event->error.reason);
	if (done.forgotten || reading->client->over) {
		give_back(reading->client, event);
		free(reading->owned);
		return instead;
	}
	keep(reading, length);
	return reading->owned;
}

/* Events that came in one line: they have all but their data in common. */
struct bundle {
	antiphon_event event;
	size_t texts; /* bytes that its texts have, at the beginning of the copy */
	size_t count, next;
	antiphon_bytes payloads[];
};

/* Puts a text behind those that are there. */
static const char *add_text(char **at, const char *text)
{
	if (!text)
		return NULL;
	size_t length = strlen(text) + 1;
	char *copy = memcpy(*at, text, length);
	*at += length;
	return copy;
}

size_t left_of_bundle(const antiphon *client)
{
	return client->bundle ? client->bundle->count - client->bundle->next : 0;
}

struct owned_event *next_of_bundle(antiphon *client)
{
	struct bundle *bundle = client->bundle;
	const antiphon_bytes payload = bundle->payloads[bundle->next];
	struct owned_event *owned = event_new(bundle->event.kind, bundle->texts + payload.length + 1);
	if (owned) {
		antiphon_event *event = &owned->event;
		char *at = (char *)(owned + 1);
		*event = bundle->event;
		event->name = add_text(&at, event->name);
		event->cause = add_text(&at, event->cause);
		event->view = add_text(&at, event->view);
		event->sender = add_text(&at, event->sender);
		event->data = (antiphon_bytes){ at, payload.length };
		memcpy(at, payload.bytes, payload.length);
		at[payload.length] = 0;
		if (event->kind == ANTIPHON_MESSAGE)
			event->part = (uint32_t)bundle->next;
		bundle->next++;
	}
	if (!owned || bundle->next == bundle->count) {
		free(bundle);
		client->bundle = NULL;
	}
	if (!owned)
		lose(client, "no memory for an event");
	return owned;
}

/* An event for each payload. The first, or NULL. */
static struct owned_event *read_bundle(struct reading *reading, const antiphon_event *event,
				       const struct json *payloads, size_t length, const char **wrong)
{
	antiphon *client = reading->client;
	if (!payloads || payloads->type != JSON_ARRAY || !payloads->count)
		return NULL;
	size_t lists = payloads->count * sizeof(antiphon_bytes);
	struct bundle *bundle = malloc(sizeof *bundle + lists + length + 1);
	if (!bundle) {
		*wrong = "no memory for a bundle";
		return NULL;
	}
	*bundle = (struct bundle){ .event = *event };
	reading->copy = (char *)bundle->payloads + lists;
	for (const struct json *one = json_first(&client->document, payloads); one;
	     one = json_next(&client->document, payloads, one)) {
		bundle->payloads[bundle->count] = (antiphon_bytes){ "", 0 };
		bytes_of(reading, one, &bundle->payloads[bundle->count++]);
	}
	keep(reading, length);
	const char **texts[] = { &bundle->event.name, &bundle->event.cause, &bundle->event.view, &bundle->event.sender };
	for (int i = 0; i < 4; i++) {
		if (!*texts[i])
			continue;
		*texts[i] = reading->copy + (*texts[i] - reading->line);
		bundle->texts += strlen(*texts[i]) + 1;
	}
	client->bundle = bundle;
	return next_of_bundle(client);
}

static struct owned_event *read_messages(struct reading *reading, size_t length, const char **wrong)
{
	const struct json *root = reading->root;
	antiphon_event event = { .kind = ANTIPHON_MESSAGE };
	event.name = json_string(member(reading, root, "group"));
	event.view = json_string(member(reading, root, "view"));
	event.sender = json_string(member(reading, root, "sender"));
	event.seq = number_of(reading, "seq");
	event.safe = json_is_true(member(reading, root, "safe"));
	return read_bundle(reading, &event, member(reading, root, "payloads"), length, wrong);
}

/* A line that was not carried out: of an operation, of messages, or of the connection itself. */
static struct owned_event *read_problem(struct reading *reading, size_t length, const char **wrong)
{
	antiphon *client = reading->client;
	const struct json *request = member(reading, reading->root, "request");
	const struct json *fields = json_first(&client->document, request);
	const char *said = json_string(member(reading, reading->root, "reason"));
	const char *reason = said ? said : "the agent did not say why";
	if (!fields || request->type != JSON_OBJECT) {
		copy_reason(client->last_words, sizeof client->last_words, reason);
		/* A text: the line was no JSON to the agent. One may wait for it, and it has no id. */
		if (json_string(request))
			*wrong = reason;
		return NULL;
	}
	uint64_t id;
	if (!strcmp(fields->key, "why"))
		return read_reply(reading, oldest_pending(client, ANTIPHON_WHY), length, NULL, reason, wrong);
	if (json_u64(member(reading, fields, "id"), &id))
		return read_reply(reading, find_pending(client, id), length, NULL, reason, wrong);
	if (!strcmp(fields->key, "send_bundle")) {
		antiphon_event event = { .kind = ANTIPHON_NOT_SENT, .cause = said, .has_value = true };
		event.name = json_string(member(reading, fields, "group"));
		const struct json *payloads = member(reading, fields, "payloads");
		if (payloads)
			return read_bundle(reading, &event, payloads, length, wrong);
	} else if (strcmp(fields->key, "send")) {
		return NULL;
	}
	if (!begin(reading, ANTIPHON_NOT_SENT, length, 0)) {
		*wrong = "no memory for an event";
		return NULL;
	}
	antiphon_event *event = &reading->owned->event;
	event->name = text_at(reading, member(reading, fields, "group"));
	event->cause = text_of(reading, "reason");
	event->has_value = bytes_of(reading, member(reading, fields, "payload"), &event->data);
	keep(reading, length);
	return reading->owned;
}

static void read_view(struct reading *reading, antiphon_event *event)
{
	const struct json_document *document = &reading->client->document;
	event->view = text_of(reading, "id");
	event->primary = json_is_true(member(reading, reading->root, "primary"));
	event->members = names_of(reading, member(reading, reading->root, "members"));
	event->joined = names_of(reading, member(reading, reading->root, "joined"));
	event->left = names_of(reading, member(reading, reading->root, "left"));
	event->transitional = names_of(reading, member(reading, reading->root, "transitional"));
	const struct json *crashed = member(reading, reading->root, "crashed");
	const struct json *causes = member(reading, reading->root, "causes");
	event->crashed = names_of(reading, crashed);
	if (!event->crashed.count)
		return;
	const char **cause = take_room(reading, event->crashed.count * sizeof *cause);
	event->causes = cause;
	for (const struct json *one = json_first(document, crashed); one; one = json_next(document, crashed, one))
		if (json_string(one))
			*cause++ = text_at(reading, member(reading, causes, one->text));
}

static const struct {
	const char *word;
	antiphon_kind kind;
} kinds[] = {
	{ "message", ANTIPHON_MESSAGE },   { "view", ANTIPHON_VIEW },	      { "changed", ANTIPHON_CHANGED },
	{ "request", ANTIPHON_REQUEST },   { "lost", ANTIPHON_LOST_LOCK },    { "transitional", ANTIPHON_TRANSITIONAL },
	{ "resync", ANTIPHON_RESYNC },	   { "suspended", ANTIPHON_SUSPENDED }, { "group_left", ANTIPHON_LEFT },
	{ "watching", ANTIPHON_WATCHING }, { "command", ANTIPHON_COMMANDED },
};

static antiphon_kind kind_of_lost(const char *what)
{
	if (what && !strcmp(what, "group"))
		return ANTIPHON_LOST_GROUP;
	if (what && !strcmp(what, "watch"))
		return ANTIPHON_LOST_WATCH;
	return what && !strcmp(what, "lead") ? ANTIPHON_LOST_LEAD : ANTIPHON_LOST_LOCK;
}

static struct owned_event *read_told(struct reading *reading, antiphon_kind kind, size_t length, const char **wrong)
{
	bool has_lists = kind == ANTIPHON_VIEW || kind == ANTIPHON_TRANSITIONAL;
	/* Each name stands in one list, and may have a cause. */
	size_t lists = has_lists ? (reading->client->document.count * 2 + 8) * sizeof(char *) : 0;
	if (kind == ANTIPHON_COMMANDED)
		lists = reading->client->document.count * sizeof(antiphon_arg);
	if (kind == ANTIPHON_LOST_LOCK)
		kind = kind_of_lost(json_string(member(reading, reading->root, "what")));
	if (!begin(reading, kind, length, lists)) {
		*wrong = "no memory for an event";
		return NULL;
	}
	antiphon_event *event = &reading->owned->event;
	bool of_group = kind <= ANTIPHON_LEFT || kind == ANTIPHON_REQUEST;
	bool is_request = kind == ANTIPHON_REQUEST || kind == ANTIPHON_COMMANDED;
	bool of_map = kind == ANTIPHON_WATCHING || kind == ANTIPHON_CHANGED;
	event->name = text_of(reading, of_group ? "group" : of_map ? "map" : "name");
	event->id = number_of(reading, is_request ? "request" : "id");
	event->cause = text_of(reading, "cause");
	if (is_request)
		reading->client->last_request = event->id += reading->client->gone_requests;
	switch (kind) {
	case ANTIPHON_VIEW:
		read_view(reading, event);
		break;
	case ANTIPHON_TRANSITIONAL:
		event->members = names_of(reading, member(reading, reading->root, "members"));
		break;
	case ANTIPHON_MESSAGE:
		event->view = text_of(reading, "view");
		event->sender = text_of(reading, "sender");
		event->seq = number_of(reading, "seq");
		event->part = (uint32_t)number_of(reading, "part");
		event->safe = json_is_true(member(reading, reading->root, "safe"));
		bytes_of(reading, member(reading, reading->root, "payload"), &event->data);
		break;
	case ANTIPHON_WATCHING:
		event->number = number_of(reading, "entries");
		break;
	case ANTIPHON_CHANGED:
		event->key = text_of(reading, "key");
		event->gone = text_of(reading, "gone");
		event->version = number_of(reading, "version");
		event->has_value = bytes_of(reading, member(reading, reading->root, "value"), &event->data);
		break;
	case ANTIPHON_COMMANDED:
		read_args(reading);
		/* fall through */
	case ANTIPHON_REQUEST:
		event->key = text_of(reading, "verb");
		event->sender = text_of(reading, "from");
		event->within_ms = (int64_t)(number_of(reading, "within_ms") & INT64_MAX);
		bytes_of(reading, member(reading, reading->root, "payload"), &event->data);
		break;
	default:
		event->token = number_of(reading, "token");
	}
	keep(reading, length);
	if (reading->client->back)
		back_told(reading->client, event);
	return reading->owned;
}

struct owned_event *event_of_line(antiphon *client, char *line, size_t length, const char **wrong)
{
	*wrong = length ? json_parse(&client->document, line, length) : NULL;
	if (*wrong || !length)
		return NULL;
	struct reading reading = { .client = client, .root = client->document.nodes, .line = line };
	const char *word = json_string(member(&reading, reading.root, "event"));
	uint64_t id;
	if (!word) {
		*wrong = "a line without an event";
		return NULL;
	}
	if (client->back && !strcmp(word, "took")) {
		if (!back_took(client, number_of(&reading, "lines")))
			*wrong = "it took lines that it was not sent";
		return NULL;
	}
	if (client->back)
		back_count(client, length);
	if (!strcmp(word, "reply")) {
		if (!json_u64(member(&reading, reading.root, "id"), &id))
			return NULL;
		const struct json *error = member(&reading, reading.root, "error");
		return read_reply(&reading, find_pending(client, id), length, error, NULL, wrong);
	}
	if (!strcmp(word, "why"))
		return read_reply(&reading, oldest_pending(client, ANTIPHON_WHY), length, NULL, NULL, wrong);
	if (!strcmp(word, "bundle"))
		return read_messages(&reading, length, wrong);
	if (!strcmp(word, "error") || !strcmp(word, "refused"))
		return read_problem(&reading, length, wrong);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(word, kinds[i].word))
			return read_told(&reading, kinds[i].kind, length, wrong);
	return NULL; /* of a newer agent */
}
