#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Coming back when the connection broke: the protocol is in docs/agent.md, "Coming back".
 *
 *     up ── breaks ──► waits ── connects ──► greets ── welcome ──┬─ resumed ──► up, as if nothing had been
 *                        ▲                     │                 └─ not ──► up, as a new client
 *                        └───── 100 ms ── fails ┘
 *
 * Lines that the agent has not said that it took are kept, and sent again behind those that it says it
 * took when it resumes. What it sent counts when event.c has read it: a line that was cut short, or read
 * into the buffer only, does not, and comes again.
 *
 * There is no thread, so all this happens in the functions that move bytes. For programs that poll there
 * is a descriptor of its own, which tells of the connection of the moment, and of the time of the next
 * try. A new client needs to know what the one before had: `holdings`. */

#define TRY_MS 100
/* Half of what the agent asks for. */
#define TOOK_LINES 128
#define TOOK_BYTES ((size_t)32 << 10)
#define TOOK "{\"took\":{\"lines\":"
#define KEPT_CAPACITY ((size_t)1 << 20) /* of a buffer that a large line made large */

/* A group, a verb, a lock, a leadership or a watch: what its operation gave. */
struct holding {
	struct holding *next;
	antiphon_op op;
	char *name, *key;
	uint64_t id, token;
	bool ends; /* a group: it is being left */
};

bool back_begin(antiphon *client, int grace_ms)
{
	struct back *back = calloc(1, sizeof *back);
	if (!back)
		return false;
	client->back = back;
	back->grace_ms = grace_ms;
	back->last = &back->holdings;
	back->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	back->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN };
	return back->poll_fd >= 0 && back->timer >= 0 &&
	       !epoll_ctl(back->poll_fd, EPOLL_CTL_ADD, back->timer, &event);
}

static void take_out(struct back *back, struct holding **at)
{
	struct holding *holding = *at;
	*at = holding->next;
	if (back->last == &holding->next)
		back->last = at;
	free(holding->name);
	free(holding->key);
	free(holding);
}

void back_free(antiphon *client)
{
	struct back *back = client->back;
	if (!back)
		return;
	while (back->holdings)
		take_out(back, &back->holdings);
	if (back->poll_fd >= 0)
		close(back->poll_fd);
	if (back->timer >= 0)
		close(back->timer);
	free(back->key);
	text_free(&back->kept);
	free(back);
	client->back = NULL;
	client->is_down = false;
}

/* Without a key this client does not come back. */
void back_keyed(antiphon *client, const char *key)
{
	free(client->back->key);
	client->back->key = key ? strdup(key) : NULL;
}

/* ---- lines that count ---- */

bool back_keep(antiphon *client, size_t from)
{
	struct back *back = client->back;
	struct text *out = &client->link.out;
	text_add(&back->kept, out->bytes + from, out->length - from);
	if (back->kept.failed) {
		back->kept.failed = false;
		return false;
	}
	back->sent++;
	if (client->is_down)
		out->length = from;
	return true;
}

bool back_took(antiphon *client, uint64_t lines)
{
	struct back *back = client->back;
	struct text *kept = &back->kept;
	/* Fewer than before: the agent said that before the break, and it comes behind `resumed`. */
	if (lines > back->sent)
		return false;
	for (; back->taken < lines; back->taken++) {
		char *at = kept->bytes + back->kept_begin;
		char *end = memchr(at, '\n', kept->length - back->kept_begin);
		back->kept_begin += (size_t)(end - at) + 1;
	}
	/* Each byte is moved once at most for each byte that is taken. */
	if (back->kept_begin >= kept->length - back->kept_begin) {
		kept->length -= back->kept_begin;
		if (kept->length)
			memmove(kept->bytes, kept->bytes + back->kept_begin, kept->length);
		back->kept_begin = 0;
	}
	if (!kept->length && kept->capacity > KEPT_CAPACITY)
		text_free(kept);
	return true;
}

void back_count(antiphon *client, size_t length)
{
	struct back *back = client->back;
	struct text *out = &client->link.out;
	back->lines++;
	back->told_bytes += length + 1;
	if (back->lines - back->told_lines < TOOK_LINES && back->told_bytes < TOOK_BYTES)
		return;
	if (!text_reserve(out, 64)) {
		out->failed = false;
		return; /* with the next line */
	}
	text_add_string(out, TOOK);
	text_add_u64(out, back->lines);
	text_add_string(out, "}}\n");
	back->told_lines = back->lines;
	back->told_bytes = 0;
	write_some(client);
}

void back_note(antiphon *client)
{
	if (client->is_down)
		return;
	struct back *back = client->back;
	const struct text *out = &client->link.out;
	uint64_t unwritten = 0;
	for (size_t at = 0; at < out->length;) {
		const char *line = out->bytes + at, *end = memchr(line, '\n', out->length - at);
		at = (size_t)(end - out->bytes) + 1;
		if (at > client->link.written && strncmp(line, TOOK, strlen(TOOK)))
			unwritten++;
	}
	back->maybe_taken = back->sent - unwritten;
}

/* ---- what a new client needs to know ---- */

static struct holding **find(struct back *back, antiphon_op op, const char *name, uint64_t number)
{
	for (struct holding **at = &back->holdings; *at; at = &(*at)->next) {
		const struct holding *one = *at;
		if (one->op != op)
			continue;
		if (op == ANTIPHON_JOIN ? name && !strcmp(one->name, name) :
					  number == (op == ANTIPHON_WATCH ? one->id : one->token))
			return at;
	}
	return NULL;
}

static void end_holding(struct back *back, antiphon_op op, const char *name, uint64_t number)
{
	struct holding **at = find(back, op, name, number);
	if (at)
		take_out(back, at);
}

static void hold(antiphon *client, const struct pending *pending, uint64_t token)
{
	struct back *back = client->back;
	bool is_verb = pending->op == ANTIPHON_SERVE || pending->op == ANTIPHON_SERVE_COMMAND;
	for (const struct holding *one = back->holdings; is_verb && one; one = one->next)
		if (one->op == pending->op && !strcmp(one->key, pending->key) &&
		    !strcmp(one->name ? one->name : "", pending->name ? pending->name : ""))
			return; /* once more */
	struct holding *holding = calloc(1, sizeof *holding);
	if (!holding)
		return lose(client, "no memory for what is held");
	*holding = (struct holding){ .op = pending->op, .id = pending->id, .token = token };
	*back->last = holding;
	back->last = &holding->next;
	holding->name = pending->name ? strdup(pending->name) : NULL;
	holding->key = pending->key ? strdup(pending->key) : NULL;
	if (!holding->name != !pending->name || !holding->key != !pending->key)
		lose(client, "no memory for what is held");
}

/* The reply to what a new client asked for by itself. */
static struct owned_event *asked_again(antiphon *client, const struct pending *pending, const antiphon_error *error)
{
	char cause[CAUSE_BYTES];
	if (!error->code)
		return NULL;
	snprintf(cause, sizeof cause, "it came back as a new client, and was refused: %.180s", error->reason);
	if (pending->op != ANTIPHON_JOIN) {
		lose(client, cause); /* there is no other way to tell */
		return NULL;
	}
	end_holding(client->back, ANTIPHON_JOIN, pending->name, 0);
	struct owned_event *owned = event_about(ANTIPHON_LOST_GROUP, pending->name, cause);
	if (!owned)
		lose(client, "no memory for an event");
	return owned;
}

struct owned_event *back_done(antiphon *client, const struct pending *pending, const antiphon_event *reply)
{
	struct back *back = client->back;
	if (pending->is_again)
		return asked_again(client, pending, &reply->error);
	/* The agent holds it no more, whatever its reply is. If a job cannot be handed over, the agent leads on. */
	bool is_given_back = pending->op == ANTIPHON_UNLOCK || (pending->op == ANTIPHON_RESIGN && !pending->hands_over);
	if (reply->error.code && !is_given_back)
		return NULL;
	switch (pending->op) {
	case ANTIPHON_LOCK:
	case ANTIPHON_LEAD:
	case ANTIPHON_WATCH:
		if (pending->forgotten)
			break; /* it is given back */
		/* fall through */
	case ANTIPHON_JOIN:
	case ANTIPHON_SERVE:
	case ANTIPHON_SERVE_COMMAND:
		hold(client, pending, reply->token);
		break;
	case ANTIPHON_LEAVE: {
		struct holding **at = find(back, ANTIPHON_JOIN, pending->name, 0);
		if (at)
			(*at)->ends = true;
		break;
	}
	case ANTIPHON_UNLOCK:
		end_holding(back, ANTIPHON_LOCK, NULL, pending->token);
		break;
	case ANTIPHON_RESIGN:
		end_holding(back, ANTIPHON_LEAD, NULL, pending->token);
		break;
	case ANTIPHON_CANCEL:
		end_holding(back, ANTIPHON_WATCH, NULL, pending->token);
		break;
	default:
		break;
	}
	return NULL;
}

void back_told(antiphon *client, const antiphon_event *event)
{
	struct back *back = client->back;
	if (event->kind == ANTIPHON_LEFT || event->kind == ANTIPHON_LOST_GROUP)
		end_holding(back, ANTIPHON_JOIN, event->name, 0);
	else if (event->kind == ANTIPHON_LOST_LOCK)
		end_holding(back, ANTIPHON_LOCK, NULL, event->token);
	else if (event->kind == ANTIPHON_LOST_LEAD)
		end_holding(back, ANTIPHON_LEAD, NULL, event->token);
	else if (event->kind == ANTIPHON_LOST_WATCH)
		end_holding(back, ANTIPHON_WATCH, NULL, event->id);
}

/* ---- from one connection to the next ---- */

void back_watch(antiphon *client)
{
	struct back *back = client->back;
	uint32_t wanted = client->link.fd < 0 ? 0 : EPOLLIN | (link_unwritten(&client->link) ? EPOLLOUT : 0u);
	struct epoll_event event = { .events = wanted };
	if (wanted == back->watched)
		return;
	/* It fails only without memory: then a program that polls comes back with its next call. */
	epoll_ctl(back->poll_fd, !wanted ? EPOLL_CTL_DEL : back->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
		  client->link.fd, &event);
	back->watched = wanted;
}

/* When the descriptor tells of itself; 0: not. */
static void set_timer(struct back *back, int64_t at_ms)
{
	struct itimerspec at = { .it_value = { .tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000 } };
	timerfd_settime(back->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void close_link(antiphon *client)
{
	struct back *back = client->back;
	if (back->watched)
		epoll_ctl(back->poll_fd, EPOLL_CTL_DEL, client->link.fd, NULL);
	back->watched = 0;
	back->greets = false;
	link_close(&client->link);
}

static void try_failed(antiphon *client, const char *reason)
{
	copy_reason(client->back->reason, sizeof client->back->reason, reason);
	close_link(client);
}

static void connect_again(antiphon *client)
{
	struct back *back = client->back;
	back->next_ms = now_ms() + TRY_MS;
	if (!link_again(&client->link))
		return try_failed(client, strerror(errno));
	back->greets = true;
	put_hello_again(client);
	if (client->link.out.failed)
		return try_failed(client, "no memory for a line");
	link_flush(&client->link);
}

/* It is the same client: the agent took so many lines. */
static void go_on(antiphon *client, uint64_t lines)
{
	struct back *back = client->back;
	struct text *out = &client->link.out;
	if (lines < back->taken || !back_took(client, lines))
		return lose(client, "the agent says that it took lines which this client did not send");
	text_add(out, back->kept.bytes + back->kept_begin, back->kept.length - back->kept_begin);
	if (out->failed)
		return lose(client, "no memory for lines that are sent again");
	back->told_lines = back->lines;
	back->told_bytes = 0;
	client->is_down = false;
	link_flush(&client->link);
}

/* Asks for a group or a verb again. */
static void ask_again(antiphon *client, const struct holding *holding)
{
	const antiphon_request request = { .op = holding->op, .name = holding->name, .key = holding->key };
	if (put_request(client, &request, client->last_id + 1, NULL) ||
	    !add_pending(client, client->last_id + 1, &request))
		return lose(client, "no memory for a line");
	client->last_id++;
	struct pending *pending = &client->pending[client->pending_count - 1];
	pending->is_again = pending->forgotten = true;
}

/* What becomes of what it had, in the order in which it is told; nothing is told of a verb. */
static const struct {
	antiphon_op op;
	antiphon_kind told;
	bool is_kept;
} fates[] = {
	{ ANTIPHON_LOCK, ANTIPHON_LOST_LOCK, false },	{ ANTIPHON_LEAD, ANTIPHON_LOST_LEAD, false },
	{ ANTIPHON_WATCH, ANTIPHON_LOST_WATCH, false }, { ANTIPHON_JOIN, ANTIPHON_RESYNC, true },
	{ ANTIPHON_SERVE, 0, true },			{ ANTIPHON_SERVE_COMMAND, 0, true },
};

static void tell_fate(antiphon *client, const struct holding *holding, antiphon_kind kind, const char *cause)
{
	struct owned_event *owned = event_about(kind, holding->name, cause);
	if (!owned)
		return lose(client, "no memory for an event");
	owned->event.id = holding->op == ANTIPHON_JOIN ? 0 : holding->id;
	owned->event.token = holding->token;
	queue_event(client, owned);
}

static void carry_over(antiphon *client, const char *cause)
{
	struct back *back = client->back;
	for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
		for (struct holding **at = &back->holdings; *at;) {
			struct holding *holding = *at;
			if (holding->op != fates[i].op) {
				at = &holding->next;
				continue;
			}
			if (fates[i].told)
				tell_fate(client, holding, holding->ends ? ANTIPHON_LEFT : fates[i].told, cause);
			if (client->over)
				return;
			bool stays = fates[i].is_kept && !holding->ends;
			if (stays)
				ask_again(client, holding);
			if (client->over)
				return;
			if (stays)
				at = &holding->next;
			else
				take_out(back, at);
		}
	}
}

/* It is a new client. */
static void begin_anew(antiphon *client)
{
	struct back *back = client->back;
	char cause[CAUSE_BYTES];
	snprintf(cause, sizeof cause, "%.150s, and it came back as a new client", back->cause);
	/* Who is leaving a group does not come into it again. */
	for (size_t i = 0; i < client->pending_count; i++) {
		const struct pending *one = &client->pending[i];
		struct holding **at = one->op == ANTIPHON_LEAVE ? find(back, ANTIPHON_JOIN, one->name, 0) : NULL;
		if (at)
			(*at)->ends = true;
	}
	fail_pending(client, cause);
	if (client->over)
		return;
	/* The hello and its reply are the first lines. */
	text_free(&back->kept);
	back->kept_begin = 0;
	back->sent = back->taken = back->lines = 1;
	back->told_lines = back->told_bytes = 0;
	client->gone_requests = client->last_request;
	client->is_down = false;
	carry_over(client, cause);
	if (!client->over)
		link_flush(&client->link);
}

static bool is(const antiphon *client, const struct json *welcome, const char *key, const char *word)
{
	const char *said = json_string(json_member(&client->document, welcome, key));
	return said && !strcmp(said, word);
}

/* The agent's first line. */
static void take_welcome(antiphon *client, char *line, size_t length)
{
	struct json_document *document = &client->document;
	if (json_parse(document, line, length))
		return try_failed(client, "what answers there is no agent");
	const struct json *root = document->nodes, *welcome = json_member(document, root, "welcome");
	const struct json *error = json_member(document, root, "error");
	const char *reason = json_string(json_member(document, error ? error : root, "reason"));
	if (!welcome) {
		/* The client that it is now is not to be waited for. */
		text_add_string(&client->link.out, "{\"leave\":{}}\n");
		link_flush(&client->link);
		return try_failed(client, reason ? reason : "the agent gave no welcome");
	}
	uint64_t lines;
	bool is_same = json_u64(json_member(document, welcome, "resumed"), &lines);
	if (!is(client, welcome, "node", client->node) || !is(client, welcome, "cluster", client->cluster))
		return lose(client, "the connection broke, and at its address is the agent of another node now");
	const char *name = json_string(json_member(document, welcome, "client"));
	if (name && !take_name(client, name))
		return lose(client, "no memory for a name");
	back_keyed(client, json_string(json_member(document, welcome, "resume")));
	client->back->greets = false;
	*client->back->reason = 0;
	*client->last_words = 0;
	set_timer(client->back, 0);
	if (is_same)
		go_on(client, lines);
	else
		begin_anew(client);
}

static void hear(antiphon *client)
{
	size_t length;
	/* After a failed write what the agent said before is there to read. */
	int error = link_flush(&client->link) ? 0 : errno;
	bool is_over = link_fill(&client->link) < 0;
	error = error ? error : errno;
	char *line = link_line(&client->link, &length);
	if (line)
		take_welcome(client, line, length);
	else if (is_over)
		try_failed(client, error ? strerror(error) : "the agent closed the connection");
}

static void give_up(antiphon *client)
{
	const struct back *back = client->back;
	char cause[CAUSE_BYTES];
	snprintf(cause, sizeof cause, "%.120s, and it could not come back within %d ms: %.80s", back->cause,
		 back->grace_ms, *back->reason ? back->reason : "the agent does not answer");
	lose(client, cause);
}

static void go_ahead(antiphon *client)
{
	struct back *back = client->back;
	if (back->greets)
		hear(client);
	if (client->over || !client->is_down)
		return;
	if (now_ms() >= back->until_ms)
		return give_up(client);
	if (!back->greets && now_ms() >= back->next_ms)
		connect_again(client);
	bool waits = !back->greets && back->next_ms < back->until_ms;
	set_timer(back, waits ? back->next_ms : back->until_ms);
}

bool back_off(antiphon *client, const char *cause)
{
	struct back *back = client->back;
	if (!back || !back->key || client->closes)
		return false;
	back_note(client);
	client->is_down = true;
	copy_reason(back->cause, sizeof back->cause, *client->last_words ? client->last_words : cause);
	*client->last_words = 0;
	*back->reason = 0;
	close_link(client);
	int64_t now = now_ms();
	if (back->next_ms < now)
		back->next_ms = now;
	back->until_ms = now + back->grace_ms;
	go_ahead(client);
	if (client->back)
		back_watch(client);
	return true;
}

void back_move(antiphon *client, int64_t deadline_ms)
{
	struct pollfd fd = { .fd = client->back->poll_fd, .events = POLLIN };
	poll(&fd, 1, left_ms(deadline_ms));
	go_ahead(client);
	if (client->back)
		back_watch(client);
}
