#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUEUE_BYTES ((size_t)64 << 20)
#define WRITE_MS 30000	  /* for the agent to take something */
#define MOST_KEPT_BYTES ((size_t)1 << 20) /* with so many that wait to be taken, no line follows */
#define MAX_PENDING 16384 /* the agent has 1024 and 2048 under way; then its lines wait */
#define MAX_DISPATCHED 4096

static const char *const code_names[] = { "ok",	     "conflict",    "timeout",	 "cancelled", "not_held",
					  "lost",    "unavailable", "refused",	 "unknown",   "failed",
					  "connection", "invalid",  "no_memory", "other" };

const char *antiphon_code_name(antiphon_code code)
{
	return (size_t)code < sizeof code_names / sizeof *code_names ? code_names[code] : "other";
}

const char *antiphon_ran_name(antiphon_ran ran)
{
	return ran == ANTIPHON_RAN_NO ? "no" : ran == ANTIPHON_RAN_YES ? "yes" : "maybe";
}

int fail(antiphon_error *error, antiphon_code code, antiphon_ran ran, const char *reason)
{
	if (error) {
		*error = (antiphon_error){ .code = code, .ran = ran };
		copy_reason(error->reason, sizeof error->reason, reason);
	}
	return -1;
}

/* ---- what is under way ---- */

static void put_behind(antiphon *client, struct owned_event *owned)
{
	*client->last = owned;
	client->last = &owned->next;
	client->queued++;
	client->queued_bytes += owned->size;
}

static void take_bundle_apart(antiphon *client)
{
	struct owned_event *part;
	while (client->bundle && (part = next_of_bundle(client)))
		put_behind(client, part);
}

struct pending *find_pending(antiphon *client, uint64_t id)
{
	for (size_t i = 0; i < client->pending_count; i++)
		if (client->pending[i].id == id)
			return &client->pending[i];
	return NULL;
}

struct pending *oldest_pending(antiphon *client, antiphon_op op)
{
	for (size_t i = 0; i < client->pending_count; i++)
		if (client->pending[i].op == op)
			return &client->pending[i];
	return NULL;
}

bool add_pending(antiphon *client, uint64_t id, const antiphon_request *request)
{
	bool keeps = client->back || request->op == ANTIPHON_LOCK || request->op == ANTIPHON_LEAD;
	if (client->pending_count == client->pending_capacity) {
		size_t capacity = client->pending_capacity ? client->pending_capacity * 2 : 16;
		struct pending *pending = realloc(client->pending, capacity * sizeof *pending);
		if (!pending)
			return false;
		client->pending = pending;
		client->pending_capacity = capacity;
	}
	struct pending pending = { .id = id, .op = request->op };
	bool has_name = keeps && request->name, has_key = client->back && request->key;
	pending.name = has_name ? strdup(request->name) : NULL;
	pending.key = has_key ? strdup(request->key) : NULL;
	if (has_name != !!pending.name || has_key != !!pending.key) {
		free(pending.name);
		free(pending.key);
		return false;
	}
	if (client->back) {
		pending.line = client->back->sent;
		pending.token = request->op == ANTIPHON_CANCEL ? request->of : request->token;
		pending.hands_over = request->op == ANTIPHON_RESIGN && request->to;
	}
	client->pending[client->pending_count++] = pending;
	return true;
}

struct pending take_pending(antiphon *client, struct pending *pending)
{
	struct pending taken = *pending;
	size_t behind = (size_t)(client->pending + client->pending_count - pending) - 1;
	memmove(pending, pending + 1, behind * sizeof *pending);
	client->pending_count--;
	return taken;
}

void fail_pending(antiphon *client, const char *cause)
{
	if (client->back)
		back_note(client);
	/* Without memory for it this loses the connection, and then nothing is pending any more. */
	take_bundle_apart(client);
	for (size_t i = 0; i < client->pending_count; i++) {
		struct pending *pending = &client->pending[i];
		struct owned_event *owned = pending->forgotten ? NULL : event_new(ANTIPHON_REPLY, 0);
		bool was_taken = !client->back || pending->line <= client->back->maybe_taken;
		free(pending->name);
		free(pending->key);
		if (!owned)
			continue;
		owned->event.id = pending->id;
		owned->event.op = pending->op;
		fail(&owned->event.error, ANTIPHON_CONNECTION, was_taken ? ANTIPHON_RAN_MAYBE : ANTIPHON_RAN_NO, cause);
		queue_event(client, owned);
	}
	client->pending_count = 0;
}

/* ---- events ---- */

void queue_event(antiphon *client, struct owned_event *owned)
{
	take_bundle_apart(client);
	put_behind(client, owned);
}

static struct owned_event *unlink_at(antiphon *client, struct owned_event **at)
{
	struct owned_event *owned = *at;
	*at = owned->next;
	if (client->last == &owned->next)
		client->last = at;
	owned->next = NULL;
	client->queued--;
	client->queued_bytes -= owned->size;
	return owned;
}

void lose(antiphon *client, const char *cause)
{
	if (client->over)
		return;
	client->over = true; /* first: what follows may have no memory, and come here again */
	copy_reason(client->cause, sizeof client->cause, *client->last_words ? client->last_words : cause);
	fail_pending(client, client->cause);
	struct owned_event *last = event_new(ANTIPHON_CLOSED, 0);
	if (last) {
		last->event.cause = client->cause;
		queue_event(client, last);
	}
	link_close(&client->link);
	back_free(client);
}

static void lose_errno(antiphon *client, int error)
{
	char cause[CAUSE_BYTES];
	snprintf(cause, sizeof cause, "the connection broke: %s", strerror(error));
	const char *why = error ? cause : "the agent closed the connection";
	/* The agent would send that line again. */
	if (error == EMSGSIZE)
		return lose(client, "the agent sent a line that is longer than this library takes");
	client->broke = error || link_unwritten(&client->link);
	if (!back_off(client, why))
		lose(client, why);
}

/* The next event of what was read already. */
static struct owned_event *read_event(antiphon *client)
{
	size_t length;
	char *line;
	struct owned_event *part = client->bundle ? next_of_bundle(client) : NULL;
	if (part)
		return part;
	while (!client->over && !client->is_down && (line = link_line(&client->link, &length))) {
		const char *wrong;
		struct owned_event *owned = event_of_line(client, line, length, &wrong);
		if (owned)
			return owned;
		if (wrong) {
			char cause[CAUSE_BYTES];
			snprintf(cause, sizeof cause, "the agent sent what this library cannot read: %s", wrong);
			lose(client, cause);
		}
	}
	return NULL;
}

/* Reads and writes what can be now, waiting until the deadline for one of both. */
static void move_bytes(antiphon *client, int64_t deadline_ms)
{
	struct pollfd fd = { .fd = client->link.fd, .events = POLLIN };
	if (client->over)
		return;
	if (client->is_down)
		return back_move(client, deadline_ms);
	if (link_unwritten(&client->link))
		fd.events |= POLLOUT;
	if (poll(&fd, 1, left_ms(deadline_ms)) > 0) {
		/* After a failed write what the agent said before is there to read, and then the end. */
		if (fd.revents & ~POLLIN)
			link_flush(&client->link);
		if ((fd.revents & ~POLLOUT) && link_fill(&client->link) < 0)
			lose_errno(client, errno);
	}
	if (client->back)
		back_watch(client);
}

/* Bytes that the agent may not have taken, if the client comes back. */
static size_t kept(const antiphon *client)
{
	return client->back ? client->back->kept.length - client->back->kept_begin : 0;
}

static bool must_wait(const antiphon *client, size_t most_kept)
{
	return (!client->is_down && link_unwritten(&client->link)) || kept(client) >= most_kept;
}

static void write_until(antiphon *client, size_t most_kept)
{
	int64_t deadline_ms = now_ms() + WRITE_MS;
	bool is_up = !client->over && !client->is_down;
	if (is_up && !link_flush(&client->link) && errno != EPIPE && errno != ECONNRESET)
		lose_errno(client, errno);
	while (!client->over && must_wait(client, most_kept)) {
		size_t before = link_unwritten(&client->link) + kept(client);
		struct owned_event *owned;
		while (client->queued_bytes < client->most_bytes && (owned = read_event(client)))
			put_behind(client, owned);
		/* What was read may say that enough was taken. */
		if (client->queued_bytes >= client->most_bytes || !must_wait(client, most_kept))
			return;
		move_bytes(client, deadline_ms);
		if (!client->over && link_unwritten(&client->link) + kept(client) < before)
			deadline_ms = now_ms() + WRITE_MS;
		else if (!client->over && !left_ms(deadline_ms))
			lose(client, "the agent has taken nothing for 30 s");
	}
}

void write_all(antiphon *client)
{
	write_until(client, SIZE_MAX);
}

void write_some(antiphon *client)
{
	if (client->over || client->is_down)
		return;
	link_flush(&client->link);
	if (client->back)
		back_watch(client);
}

int may_write(antiphon *client, antiphon_error *error)
{
	if (must_wait(client, MOST_KEPT_BYTES))
		write_until(client, MOST_KEPT_BYTES);
	if (client->over)
		return fail(error, ANTIPHON_CONNECTION, ANTIPHON_RAN_NO, client->cause);
	if (must_wait(client, MOST_KEPT_BYTES))
		return fail(error, ANTIPHON_UNAVAILABLE, ANTIPHON_RAN_NO,
			    "the agent takes nothing while so many events are unread: take them");
	return 0;
}

int antiphon_next(antiphon *client, int timeout_ms, antiphon_event **event, antiphon_error *error)
{
	int64_t deadline_ms = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
	for (bool last = false;; last = !left_ms(deadline_ms)) {
		struct owned_event *owned = client->first ? unlink_at(client, &client->first) : read_event(client);
		if (owned) {
			*event = &owned->event;
			return 1;
		}
		if (client->first)
			continue;
		if (client->over)
			return fail(error, ANTIPHON_CONNECTION, ANTIPHON_RAN_NO, client->cause);
		if (last)
			return 0;
		move_bytes(client, deadline_ms);
	}
}

void antiphon_event_free(antiphon_event *event)
{
	free(event);
}

int antiphon_dispatch(antiphon *client, antiphon_handler handler, void *user, antiphon_error *error)
{
	int count = 0, next = 0;
	antiphon_event *event;
	while (count < MAX_DISPATCHED && (next = antiphon_next(client, 0, &event, error)) == 1) {
		handler(client, event, user);
		antiphon_event_free(event);
		count++;
	}
	return count ? count : next;
}

size_t antiphon_pending(const antiphon *client)
{
	const struct text *in = &client->link.in;
	bool line = in->length > client->link.taken &&
		    memchr(in->bytes + client->link.taken, '\n', in->length - client->link.taken);
	return client->queued + left_of_bundle(client) + line;
}

/* ---- operations ---- */

uint64_t antiphon_start(antiphon *client, const antiphon_request *request, antiphon_error *error)
{
	if (may_write(client, error))
		return 0;
	if (client->pending_count >= MAX_PENDING) {
		fail(error, ANTIPHON_UNAVAILABLE, ANTIPHON_RAN_NO, "too many operations wait for their replies");
		return 0;
	}
	uint64_t id = client->last_id + 1;
	if (put_request(client, request, id, error))
		return 0;
	client->last_id = id;
	client->closes |= request->op == ANTIPHON_LEAVE && !request->name;
	client->serves_commands |= request->op == ANTIPHON_SERVE_COMMAND;
	if (!add_pending(client, id, request)) {
		/* The line stays: its reply is for nobody. */
		fail(error, ANTIPHON_NO_MEMORY, ANTIPHON_RAN_MAYBE, "no memory for the reply");
		return 0;
	}
	write_all(client);
	return id;
}

static struct owned_event *take_reply(antiphon *client, uint64_t id)
{
	for (struct owned_event **at = &client->first; *at; at = &(*at)->next)
		if ((*at)->event.kind == ANTIPHON_REPLY && (*at)->event.id == id)
			return unlink_at(client, at);
	return NULL;
}

int antiphon_wait(antiphon *client, uint64_t id, int timeout_ms, antiphon_event **reply, antiphon_error *error)
{
	int64_t deadline_ms = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
	struct owned_event *owned = take_reply(client, id);
	for (bool last = false; !owned; last = !left_ms(deadline_ms)) {
		/* What broke off has a reply. */
		if (!client->over && !find_pending(client, id) && !(owned = take_reply(client, id)))
			return fail(error, ANTIPHON_INVALID, ANTIPHON_RAN_NO, "nothing with this id is under way");
		if (owned)
			break;
		while (!owned && client->queued_bytes < client->most_bytes && (owned = read_event(client))) {
			if (owned->event.kind == ANTIPHON_REPLY && owned->event.id == id)
				break;
			put_behind(client, owned);
			owned = NULL;
		}
		if (owned || (owned = take_reply(client, id)))
			break;
		if (client->over) /* and there was no memory for its reply */
			return fail(error, ANTIPHON_CONNECTION, ANTIPHON_RAN_MAYBE, client->cause);
		if (client->queued_bytes >= client->most_bytes)
			return fail(error, ANTIPHON_UNAVAILABLE, ANTIPHON_RAN_MAYBE,
				    "too many events are unread: take them, the reply is behind them");
		if (last)
			return fail(error, ANTIPHON_TIMEOUT, ANTIPHON_RAN_MAYBE,
				    "the agent gave no reply within the time");
		move_bytes(client, deadline_ms);
	}
	*reply = &owned->event;
	return 0;
}

void antiphon_forget(antiphon *client, uint64_t id)
{
	struct pending *pending = find_pending(client, id);
	struct owned_event *owned = pending ? NULL : take_reply(client, id);
	if (owned) {
		give_back(client, &owned->event);
		free(owned);
		write_all(client);
	}
	if (!pending)
		return;
	pending->forgotten = true;
	if (pending->op == ANTIPHON_LOCK || pending->op == ANTIPHON_LEAD || pending->op == ANTIPHON_WATCH) {
		uint64_t cancel = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_CANCEL, .of = id }, NULL);
		if ((pending = find_pending(client, cancel)))
			pending->forgotten = true;
	}
}

/* ---- a connection ---- */

bool take_name(antiphon *client, const char *name)
{
	if (!strcmp(name, client->name))
		return true;
	struct former_name *former = malloc(sizeof *former);
	char *copy = strdup(name), *member = NULL;
	if (!former || !copy || asprintf(&member, "%s/%s", client->node, name) < 0) {
		free(former);
		free(copy);
		return false;
	}
	*former = (struct former_name){ client->former_names, client->name, client->member };
	client->former_names = former;
	client->name = copy;
	client->member = member;
	return true;
}

/* Says hello, and waits for the welcome. */
static bool say_hello(antiphon *client, int64_t deadline_ms, antiphon_error *error)
{
	antiphon_event *reply = NULL;
	uint64_t id = antiphon_start(client, &(antiphon_request){ .op = OP_HELLO, .name = client->asked_name },
				     error);
	if (!id || antiphon_wait(client, id, left_ms(deadline_ms), &reply, error))
		return false;
	bool is_member = client->node && client->name && client->cluster && client->build &&
			 asprintf(&client->member, "%s/%s", client->node, client->name) >= 0;
	if (reply->error.code && error)
		*error = reply->error;
	else if (!is_member)
		fail(error, ANTIPHON_REFUSED, ANTIPHON_RAN_NO, "what answered is no agent");
	is_member &= !reply->error.code;
	antiphon_event_free(reply);
	return is_member;
}

antiphon *antiphon_connect_with(const char *address, const antiphon_options *given, int timeout_ms,
				antiphon_error *error)
{
	int64_t deadline_ms = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
	char reason[ANTIPHON_REASON_BYTES];
	antiphon_options options = { .size = sizeof options };
	if (given && given->size != sizeof options) {
		fail(error, ANTIPHON_INVALID, ANTIPHON_RAN_NO, "`size` of the options is sizeof(antiphon_options)");
		return NULL;
	}
	if (given)
		options = *given;
	if (options.grace_ms < 0 || options.grace_ms > ANTIPHON_MAX_GRACE_MS) {
		fail(error, ANTIPHON_INVALID, ANTIPHON_RAN_NO, "`grace_ms` is from 0 to 10000");
		return NULL;
	}
	antiphon *client = calloc(1, sizeof *client);
	if (client)
		client->link.fd = -1;
	if (client && options.token)
		client->token = strdup(options.token);
	if (client && options.name)
		client->asked_name = strdup(options.name);
	if (!client || (options.token && !client->token) || (options.name && !client->asked_name)) {
		fail(error, ANTIPHON_NO_MEMORY, ANTIPHON_RAN_NO, "no memory for a connection");
		antiphon_drop(client);
		return NULL;
	}
	client->last = &client->first;
	client->most_bytes = QUEUE_BYTES;
	if (!link_open(&client->link, address, timeout_ms, reason, sizeof reason)) {
		fail(error, errno == EINVAL ? ANTIPHON_INVALID : ANTIPHON_CONNECTION, ANTIPHON_RAN_NO, reason);
		antiphon_drop(client);
		return NULL;
	}
	if (options.grace_ms && !back_begin(client, options.grace_ms)) {
		fail(error, ANTIPHON_NO_MEMORY, ANTIPHON_RAN_NO, "no descriptors or no memory for coming back");
		antiphon_drop(client);
		return NULL;
	}
	if (say_hello(client, deadline_ms, error))
		return client;
	if (client->back)
		antiphon_close(client, 0); /* so that the agent does not wait for it */
	else
		antiphon_drop(client);
	return NULL;
}

antiphon *antiphon_connect(const char *address, const char *name, int timeout_ms, antiphon_error *error)
{
	const antiphon_options options = { .size = sizeof options, .name = name };
	return antiphon_connect_with(address, &options, timeout_ms, error);
}

static void drop_queue(antiphon *client)
{
	while (client->first)
		free(unlink_at(client, &client->first));
	free(client->bundle);
	client->bundle = NULL;
}

int antiphon_close(antiphon *client, int timeout_ms)
{
	int64_t deadline_ms = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
	while (!client->over && client->is_down && left_ms(deadline_ms))
		move_bytes(client, deadline_ms);
	client->closes = true;
	bool in_time = !client->is_down, is_waited_for = client->back && !client->over;
	if (!client->over && in_time)
		put_request(client, &(antiphon_request){ .op = ANTIPHON_LEAVE }, 0, NULL);
	drop_queue(client);
	/* Its last line is the end of the connection; what comes before it is for nobody. */
	while (!client->over && in_time) {
		client->link.in.length = client->link.taken = client->link.searched = 0;
		move_bytes(client, deadline_ms);
		in_time = client->over || left_ms(deadline_ms) != 0;
	}
	/* The agent waits for one that comes back, unless it has read that this one leaves. */
	bool has_left = in_time && !(is_waited_for && client->broke);
	antiphon_drop(client);
	return has_left ? 0 : -1;
}

void antiphon_drop(antiphon *client)
{
	if (!client)
		return;
	drop_queue(client);
	for (size_t i = 0; i < client->pending_count; i++) {
		free(client->pending[i].name);
		free(client->pending[i].key);
	}
	back_free(client);
	for (struct former_name *former; (former = client->former_names);) {
		client->former_names = former->next;
		free(former->name);
		free(former->member);
		free(former);
	}
	free(client->token);
	free(client->asked_name);
	link_close(&client->link);
	json_free(&client->document);
	free(client->pending);
	free(client->name);
	free(client->node);
	free(client->cluster);
	free(client->build);
	free(client->member);
	free(client);
}

const char *antiphon_member(const antiphon *client)
{
	return client->member;
}

const char *antiphon_name(const antiphon *client)
{
	return client->name;
}

const char *antiphon_node(const antiphon *client)
{
	return client->node;
}

const char *antiphon_cluster(const antiphon *client)
{
	return client->cluster;
}

const char *antiphon_build(const antiphon *client)
{
	return client->build;
}

int antiphon_fd(const antiphon *client)
{
	return client->back ? client->back->poll_fd : client->link.fd;
}

void antiphon_set_queue_bytes(antiphon *client, size_t bytes)
{
	client->most_bytes = bytes;
}
