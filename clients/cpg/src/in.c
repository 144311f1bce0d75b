#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cpg.h"

/* A frame stands so that the message behind its first byte is aligned: programs read structures there. */
#define FRAME_OFFSET 7

/* ---- items ---- */

struct item *new_item(enum item_kind kind, size_t addresses, size_t more)
{
	size_t size = sizeof(struct item) + addresses * sizeof(struct cpg_address) + more;
	struct item *item = malloc(size);
	if (!item)
		return NULL;
	*item = (struct item){ .kind = kind, .size = size };
	return item;
}

void enqueue(struct cpg *cpg, struct item *item)
{
	*cpg->last = item;
	cpg->last = &item->next;
	cpg->queued_bytes += item->size;
}

static struct item *dequeue(struct cpg *cpg)
{
	struct item *item = cpg->first;
	cpg->first = item->next;
	if (!cpg->first)
		cpg->last = &cpg->first;
	item->next = NULL;
	cpg->queued_bytes -= item->size;
	return item;
}

static void put_back(struct cpg *cpg, struct item *item)
{
	item->next = cpg->first;
	if (!cpg->first)
		cpg->last = &item->next;
	cpg->first = item;
	cpg->queued_bytes += item->size;
}

void free_items(struct cpg *cpg)
{
	while (cpg->first)
		free(dequeue(cpg));
	free(cpg->arriving);
	cpg->arriving = NULL;
	while (cpg->partials) {
		struct partial *next = cpg->partials->next;
		free(cpg->partials);
		cpg->partials = next;
	}
}

bool has_callbacks(const struct cpg *cpg)
{
	for (const struct item *item = cpg->first; item; item = item->next)
		if (item->kind != ITEM_TOTEM)
			return true;
	return false;
}

void ring(struct cpg *cpg, bool rings)
{
	uint64_t one = 1;
	if (cpg->rings == rings)
		return;
	cpg->rings = rings;
	ssize_t done = rings ? write(cpg->bell, &one, sizeof one) : read(cpg->bell, &one, sizeof one);
	(void)done; /* it cannot fail: the counter is 0 or 1 */
}

/* ---- from lines to items; with the lock held ---- */

static const struct json *member(struct cpg *cpg, const struct json *of, const char *key)
{
	return json_member(&cpg->document, of, key);
}

static const char *string(struct cpg *cpg, const struct json *of, const char *key)
{
	return json_string(member(cpg, of, key));
}

static void take_message(struct cpg *cpg, const struct json *root, bool is_own)
{
	const char *sender = string(cpg, root, "sender");
	struct cpg_address address;
	size_t node_length;
	uint64_t length;
	if (!json_u64(member(cpg, member(cpg, root, "payload"), "bytes"), &length) || length > LINK_MAX_LINE)
		return cpg_lose(cpg, "the agent does not tell messages as they are: is it an older one?");
	cpg->behind = (size_t)length;
	if (!is_own || cpg->state == UNJOINED || !sender || !member_address(sender, &address, &node_length))
		return;
	struct item *item = new_item(ITEM_MESSAGES, 0, cpg->behind + 32);
	if (!item)
		return cpg_lose(cpg, "no memory for a message");
	unsigned char *aligned = (unsigned char *)(((uintptr_t)(item + 1) + 15) & ~(uintptr_t)15);
	item->nodeid = address.nodeid;
	item->pid = address.pid;
	item->frame = aligned + FRAME_OFFSET;
	item->length = cpg->behind;
	cpg->arriving = item;
}

/* Takes what stands behind the last line. Whether it is all there. */
static bool take_behind(struct cpg *cpg)
{
	struct item *item = cpg->arriving;
	const char *bytes;
	size_t got = cpg->behind ? link_take(&cpg->link, &bytes, cpg->behind) : 0;
	if (item && got)
		memcpy(item->frame + item->length - cpg->behind, bytes, got);
	cpg->behind -= got;
	if (cpg->behind)
		return false;
	if (item)
		enqueue(cpg, item);
	cpg->arriving = NULL;
	return true;
}

struct named {
	const char *name;
	size_t length;
};

/* Puts members to an item, and says which node each is of. */
static size_t take_names(struct cpg *cpg, const struct json *names, struct item *item, size_t at, uint32_t reason,
			 struct named *nodes)
{
	size_t count = 0;
	if (!names || names->type != JSON_ARRAY)
		return 0;
	for (const struct json *one = json_first(&cpg->document, names); one; one = json_next(&cpg->document, names, one)) {
		struct cpg_address *address = &item->addresses[at + count];
		struct named node;
		if (!json_string(one) || !member_address(one->text, address, &node.length))
			continue;
		node.name = one->text;
		address->reason = reason;
		nodes[at + count++] = node;
	}
	return count;
}

/* Two nodes whose names have the same hash cannot be told apart by CPG. */
static bool nodes_differ(struct cpg *cpg, const struct item *item, const struct named *nodes)
{
	for (size_t i = 0; i < item->count[0]; i++) {
		for (size_t j = 0; j < i; j++) {
			bool same = nodes[i].length == nodes[j].length && !memcmp(nodes[i].name, nodes[j].name, nodes[i].length);
			if (same || item->addresses[i].nodeid != item->addresses[j].nodeid)
				continue;
			char cause[400];
			snprintf(cause, sizeof cause, "the nodes %.*s and %.*s have the same id, %u, which is a hash of their names: rename one",
				 (int)(nodes[i].length & 127), nodes[i].name, (int)(nodes[j].length & 127), nodes[j].name,
				 item->addresses[i].nodeid);
			cpg_lose(cpg, cause);
			return false;
		}
	}
	return true;
}

static bool has_node(const struct cpg *cpg, uint32_t nodeid)
{
	for (size_t i = 0; i < cpg->member_count; i++)
		if (cpg->members[i].nodeid == nodeid)
			return true;
	return false;
}

/* Says to the cluster that this member is there: a lock that is free when it is not, and then an entry
 * of a map. It waits for the lock: the unlock of its last leave may be on its way, or another process
 * that lists members may hold the lock for a moment. */
static void put_lock(struct cpg *cpg)
{
	cpg->asks_lock = true;
	pthread_mutex_lock(&cpg->out);
	put_line(cpg, "{\"lock\":{\"name\":");
	text_add_quoted(&cpg->link.out, cpg->member, strlen(cpg->member));
	put_line(cpg, ",\"id\":");
	text_add_u64(&cpg->link.out, ID_LOCK_NUMBER << 2 | ID_OTHER);
	put_line(cpg, "}}\n");
	push(cpg, false);
	pthread_mutex_unlock(&cpg->out);
}

static void put_entry(struct cpg *cpg)
{
	pthread_mutex_lock(&cpg->out);
	put_line(cpg, "{\"put\":{\"map\":\"cpg\",\"key\":");
	text_add_quoted(&cpg->link.out, cpg->member, strlen(cpg->member));
	put_line(cpg, ",\"value\":");
	text_add_payload(&cpg->link.out, cpg->group.value, cpg->group.length);
	put_line(cpg, "}}\n");
	push(cpg, false);
	pthread_mutex_unlock(&cpg->out);
}

void put_unlock(struct cpg *cpg, uint64_t token)
{
	pthread_mutex_lock(&cpg->out);
	put_line(cpg, "{\"unlock\":{\"token\":");
	text_add_u64(&cpg->link.out, token);
	put_line(cpg, ",\"name\":");
	text_add_quoted(&cpg->link.out, cpg->member, strlen(cpg->member));
	put_line(cpg, "}}\n");
	push(cpg, false);
	pthread_mutex_unlock(&cpg->out);
}

/* The reply to `put_lock`. If the member has left meanwhile, `leave` knew of no lock, so nobody else gives it back, and
 * an entry would say that the member is still there. */
static void take_lock(struct cpg *cpg, uint64_t token)
{
	if (cpg->state != JOINED)
		return put_unlock(cpg, token);
	cpg->lock_token = token;
	put_entry(cpg);
}

static void ask_totem(struct cpg *cpg)
{
	pthread_mutex_lock(&cpg->out);
	put_line(cpg, "{\"members\":{\"id\":");
	text_add_u64(&cpg->link.out, new_id(cpg, ID_TOTEM));
	put_line(cpg, "}}\n");
	push(cpg, false);
	pthread_mutex_unlock(&cpg->out);
}

static void take_view(struct cpg *cpg, const struct json *root)
{
	static const char *const lists[] = { "members", "left", "crashed", "joined" };
	const struct json *names[4], *causes = member(cpg, root, "causes");
	size_t most = 0, at = 0;
	if (cpg->state == UNJOINED)
		return;
	for (int i = 0; i < 4; i++) {
		names[i] = member(cpg, root, lists[i]);
		most += names[i] ? names[i]->count : 0;
	}
	struct item *item = new_item(ITEM_CHANGE, most, 0);
	struct named *nodes = calloc(most + 1, sizeof *nodes);
	if (!item || !nodes) {
		free(item);
		free(nodes);
		return cpg_lose(cpg, "no memory for a view");
	}
	at = item->count[0] = take_names(cpg, names[0], item, 0, CPG_REASON_UNDEFINED, nodes);
	at += take_names(cpg, names[1], item, at, CPG_REASON_LEAVE, nodes);
	size_t crashed = at;
	at += take_names(cpg, names[2], item, at, CPG_REASON_PROCDOWN, nodes);
	bool nodes_changed = false;
	for (size_t i = crashed; i < at; i++) {
		const char *cause = string(cpg, causes, nodes[i].name);
		if (cause && !strncmp(cause, "its node", strlen("its node"))) {
			item->addresses[i].reason = CPG_REASON_NODEDOWN;
			nodes_changed = true;
		}
	}
	item->count[1] = at - item->count[0];
	item->count[2] = take_names(cpg, names[3], item, at, CPG_REASON_JOIN, nodes);
	for (size_t i = at; i < at + item->count[2]; i++)
		nodes_changed |= !has_node(cpg, item->addresses[i].nodeid);
	bool fits = item->count[0] <= CPG_MEMBERS_MAX && item->count[1] <= CPG_MEMBERS_MAX && item->count[2] <= CPG_MEMBERS_MAX;
	if (!fits)
		cpg_lose(cpg, "a group of CPG has 128 members at most");
	if (!fits || !nodes_differ(cpg, item, nodes)) {
		free(item);
		free(nodes);
		return;
	}
	free(nodes);
	cpg->member_count = item->count[0];
	memcpy(cpg->members, item->addresses, item->count[0] * sizeof *cpg->members);
	bool has_changed = item->count[1] || item->count[2];
	bool is_first = cpg->state == JOINING;
	/* A view may change nothing that CPG tells: its nodes alone, or clients that are no CPG programs. */
	if (is_first || has_changed)
		enqueue(cpg, item);
	else
		free(item);
	int joining = JOINING;
	atomic_compare_exchange_strong(&cpg->state, &joining, JOINED);
	cpg->suspended = false;
	if (cpg->state == JOINED && !cpg->lock_token && !cpg->asks_lock)
		put_lock(cpg);
	bool wants_first = cpg->model.flags & CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF;
	if (cpg->model.cpg_totem_confchg_fn && (is_first ? wants_first : nodes_changed))
		ask_totem(cpg);
}

static void take_left(struct cpg *cpg)
{
	if (cpg->state != LEAVING)
		return;
	struct item *item = new_item(ITEM_CHANGE, cpg->member_count + 1, 0);
	if (!item)
		return cpg_lose(cpg, "no memory for a view");
	for (size_t i = 0; i < cpg->member_count; i++)
		if (cpg->members[i].nodeid != cpg->nodeid || cpg->members[i].pid != (uint32_t)cpg->pid)
			item->addresses[item->count[0]++] = cpg->members[i];
	item->addresses[item->count[0]] = (struct cpg_address){ cpg->nodeid, (uint32_t)cpg->pid, CPG_REASON_LEAVE };
	item->count[1] = 1;
	item->is_last = true;
	cpg->member_count = 0;
	enqueue(cpg, item);
	cpg->state = UNJOINED;
}

static void take_totem(struct cpg *cpg, const struct json *root)
{
	const struct json *view = member(cpg, root, "view"), *members = member(cpg, view, "members");
	size_t most = members && members->type == JSON_ARRAY ? members->count : 0;
	struct item *item = most ? new_item(ITEM_TOTEM, most, 0) : NULL;
	if (!item)
		return;
	json_u64(member(cpg, view, "number"), &item->number);
	for (const struct json *one = json_first(&cpg->document, members); one;
	     one = json_next(&cpg->document, members, one)) {
		const char *name = string(cpg, one, "name");
		if (name)
			item->addresses[item->count[0]++].nodeid = node_id(name, strlen(name));
	}
	enqueue(cpg, item);
}

static cs_error_t error_of(const char *code)
{
	if (!strcmp(code, "unavailable") || !strcmp(code, "timeout"))
		return CS_ERR_TRY_AGAIN;
	return !strcmp(code, "refused") ? CS_ERR_NO_RESOURCES : CS_ERR_LIBRARY;
}

/* `reason`: why it was not carried out, if the agent said so otherwise than by a reply. */
static void take_reply(struct cpg *cpg, uint64_t id, const struct json *root, const char *reason)
{
	const struct json *error = member(cpg, root, "error"), *welcome = member(cpg, root, "welcome");
	const char *code = reason ? "refused" : string(cpg, error, "code");
	uint64_t token;
	if (error && !reason)
		reason = string(cpg, error, "reason");
	if (welcome && string(cpg, welcome, "node") && string(cpg, welcome, "client")) {
		snprintf(cpg->node, sizeof cpg->node, "%s", string(cpg, welcome, "node"));
		snprintf(cpg->member, sizeof cpg->member, "%s/%s", cpg->node, string(cpg, welcome, "client"));
	}
	switch (id & 3) {
	case ID_FRAME:
		cpg->in_flight--;
		if (code) {
			char cause[400];
			snprintf(cause, sizeof cause, "a message was not delivered: %.300s", reason ? reason : code);
			cpg_lose(cpg, cause);
		}
		break;
	case ID_WAITER:
		for (struct waiter *waiter = cpg->waiters; waiter; waiter = waiter->next) {
			if (waiter->id != id)
				continue;
			waiter->error = code ? error_of(code) : CS_OK;
			waiter->done = true;
		}
		break;
	case ID_TOTEM:
		take_totem(cpg, root);
		break;
	default:
		if (id >> 2 != ID_LOCK_NUMBER)
			break;
		cpg->asks_lock = false;
		if (json_u64(member(cpg, root, "token"), &token))
			take_lock(cpg, token);
	}
}

static void take_line(struct cpg *cpg, char *line, size_t length)
{
	const char *wrong = json_parse(&cpg->document, line, length);
	if (wrong)
		return cpg_lose(cpg, "the agent sent what is no JSON: is that address an agent's?");
	const struct json *root = cpg->document.nodes;
	const char *event = string(cpg, root, "event"), *group = string(cpg, root, "group");
	bool is_own = group && !strcmp(group, cpg->group_name);
	uint64_t id;
	if (!event)
		return;
	if (!strcmp(event, "message")) {
		take_message(cpg, root, is_own);
	} else if (!strcmp(event, "reply")) {
		if (json_u64(member(cpg, root, "id"), &id))
			take_reply(cpg, id, root, NULL);
	} else if (!strcmp(event, "view")) {
		if (is_own)
			take_view(cpg, root);
	} else if (!strcmp(event, "suspended")) {
		cpg->suspended = cpg->suspended || is_own;
	} else if (!strcmp(event, "resync")) {
		if (is_own)
			cpg_lose(cpg, "the agent's node was cut off, and others went on without it");
	} else if (!strcmp(event, "group_left")) {
		if (is_own)
			take_left(cpg);
	} else if (!strcmp(event, "lost")) {
		const char *what = string(cpg, root, "what"), *cause = string(cpg, root, "cause");
		if (what && !strcmp(what, "group"))
			cpg_lose(cpg, cause ? cause : "it is out of its group");
		else if (what && !strcmp(what, "lock"))
			cpg->lock_token = 0;
	} else if (!strcmp(event, "error") || !strcmp(event, "refused")) {
		const struct json *request = member(cpg, root, "request");
		const struct json *fields = request && request->type == JSON_OBJECT ? json_first(&cpg->document, request) : NULL;
		const char *reason = string(cpg, root, "reason");
		if (!reason)
			reason = "the agent did not say why";
		if (fields && json_u64(member(cpg, fields, "id"), &id))
			take_reply(cpg, id, root, reason);
		else if (!fields)
			cpg_lose(cpg, reason);
	}
}

void read_some(struct cpg *cpg, int timeout_ms)
{
	if (cpg->over)
		return;
	if (cpg->reading) {
		struct timespec until;
		if (timeout_ms < 0) {
			pthread_cond_wait(&cpg->changed, &cpg->lock);
			return;
		}
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += timeout_ms / 1000;
		until.tv_nsec += timeout_ms % 1000 * 1000000L;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&cpg->changed, &cpg->lock, &until);
		return;
	}
	cpg->reading = true;
	pthread_mutex_unlock(&cpg->lock);
	struct pollfd fd = { .fd = cpg->link.fd, .events = POLLIN };
	/* Under load there is something already: then this is one system call. */
	ssize_t got = link_fill(&cpg->link);
	if (got == 0 && timeout_ms && poll(&fd, 1, timeout_ms) > 0)
		got = link_fill(&cpg->link);
	int error = errno;
	pthread_mutex_lock(&cpg->lock);
	int before = cpg->in_flight;
	bool was_joined = cpg->state == JOINED && !cpg->suspended;
	size_t length;
	char *line;
	while (!cpg->over && take_behind(cpg) && (line = link_line(&cpg->link, &length)))
		take_line(cpg, line, length);
	if (got < 0)
		cpg_lose(cpg, cpg->finalized ? NULL : error ? strerror(error) : "the agent closed the connection");
	bool is_joined = cpg->state == JOINED && !cpg->suspended;
	if (cpg->in_flight < before || (is_joined && !was_joined)) {
		pthread_mutex_lock(&cpg->out);
		push(cpg, false);
		pthread_mutex_unlock(&cpg->out);
	}
	cpg->reading = false;
	pthread_cond_broadcast(&cpg->changed);
}

cs_error_t wait_reply(struct cpg *cpg, struct waiter *waiter, int timeout_ms)
{
	int64_t deadline_ms = now_ms() + timeout_ms;
	pthread_mutex_lock(&cpg->lock);
	while (!waiter->done && !cpg->over && left_ms(deadline_ms) && cpg->queued_bytes < QUEUE_BYTES)
		read_some(cpg, left_ms(deadline_ms));
	for (struct waiter **at = &cpg->waiters; *at; at = &(*at)->next) {
		if (*at == waiter) {
			*at = waiter->next;
			break;
		}
	}
	ring(cpg, cpg->first != NULL);
	cs_error_t result = waiter->done ? waiter->error : cpg->over ? CS_ERR_LIBRARY : CS_ERR_TRY_AGAIN;
	pthread_mutex_unlock(&cpg->lock);
	return result;
}

/* ---- from items to callbacks; without the lock, by one thread at a time ---- */

static struct partial **find_partial(struct cpg *cpg, uint32_t nodeid, uint32_t pid)
{
	struct partial **at = &cpg->partials;
	while (*at && ((*at)->nodeid != nodeid || (*at)->pid != pid))
		at = &(*at)->next;
	return at;
}

static void drop_partial(struct partial **at)
{
	struct partial *partial = *at;
	if (partial) {
		*at = partial->next;
		free(partial);
	}
}

static bool call(struct cpg *cpg, const struct item *item, void *message, size_t length)
{
	if (!cpg->model.cpg_deliver_fn)
		return false;
	cpg->model.cpg_deliver_fn(cpg->handle, &cpg->told_group, item->nodeid, item->pid, message, length);
	return true;
}

/* A part of a message; whether it was the last. */
static bool deliver_part(struct cpg *cpg, const struct item *item)
{
	const unsigned char *bytes = item->frame + 2;
	size_t length = item->length - 2;
	struct partial **at = find_partial(cpg, item->nodeid, item->pid);
	if (item->length < 2)
		return false;
	if (item->frame[1] & PART_FIRST) {
		uint64_t total = 0;
		drop_partial(at);
		at = find_partial(cpg, item->nodeid, item->pid);
		if (length < 8)
			return false;
		for (int i = 0; i < 8; i++)
			total |= (uint64_t)bytes[i] << 8 * i;
		struct partial *partial = total <= MESSAGE_BYTES ? malloc(sizeof *partial + total) : NULL;
		if (!partial)
			return false;
		*partial = (struct partial){ .nodeid = item->nodeid, .pid = item->pid, .total = total };
		*at = partial;
		bytes += 8;
		length -= 8;
	}
	/* Without the first, which was before this member's own view. */
	struct partial *partial = *at;
	if (!partial || length > partial->total - partial->length)
		return false;
	memcpy(partial->bytes + partial->length, bytes, length);
	partial->length += length;
	if (!(item->frame[1] & PART_LAST))
		return false;
	*at = partial->next;
	bool called = partial->length == partial->total && call(cpg, item, partial->bytes, partial->total);
	free(partial);
	return called;
}

/* The next message of a frame. */
static bool deliver_next(struct cpg *cpg, struct item *item)
{
	size_t length = 0, left = item->length - item->done;
	unsigned shift = 0;
	unsigned char *at = item->frame + item->done, byte = 0x80;
	for (; left && (byte & 0x80) && shift < 35; shift += 7, left--) {
		byte = *at++;
		length |= (size_t)(byte & 0x7f) << shift;
	}
	if ((byte & 0x80) || length > left) {
		item->done = item->length; /* no frame of this library */
		return false;
	}
	item->done = (size_t)(at - item->frame) + length;
	void *message = at;
	if ((uintptr_t)at % 8) {
		if (!cpg->aligned && !(cpg->aligned = malloc(BATCH_BYTES)))
			return false;
		if (length <= BATCH_BYTES)
			message = memcpy(cpg->aligned, at, length);
	}
	return call(cpg, item, message, length);
}

static void deliver_change(struct cpg *cpg, struct item *item)
{
	struct cpg_address *left = item->addresses + item->count[0], *joined = left + item->count[1];
	for (size_t i = 0; i < item->count[1]; i++)
		drop_partial(find_partial(cpg, left[i].nodeid, left[i].pid));
	/* The rest of these messages does not come any more. A part that the same sender says in the next group would be
	 * put behind them. */
	while (item->is_last && cpg->partials)
		drop_partial(&cpg->partials);
	if (cpg->model.cpg_confchg_fn)
		cpg->model.cpg_confchg_fn(cpg->handle, &cpg->told_group, item->addresses, item->count[0], left,
					  item->count[1], joined, item->count[2]);
}

static void deliver_totem(struct cpg *cpg, const struct item *item)
{
	uint32_t nodes[CPG_MEMBERS_MAX];
	uint32_t count = item->count[0] < CPG_MEMBERS_MAX ? (uint32_t)item->count[0] : CPG_MEMBERS_MAX;
	for (uint32_t i = 0; i < count; i++)
		nodes[i] = item->addresses[i].nodeid;
	struct cpg_ring_id ring_id = { .nodeid = nodes[0], .seq = item->number };
	cpg->model.cpg_totem_confchg_fn(cpg->handle, ring_id, count, nodes);
}

/* Makes the next callback of an item. Whether there was one; `over`: nothing more is in it. */
static bool deliver(struct cpg *cpg, struct item *item, bool *over)
{
	bool called = true;
	*over = true;
	if (item->kind == ITEM_CHANGE) {
		deliver_change(cpg, item);
		return cpg->model.cpg_confchg_fn != NULL;
	}
	if (item->kind == ITEM_TOTEM) {
		deliver_totem(cpg, item);
		return true;
	}
	if (!item->length)
		return false;
	switch (item->frame[0]) {
	case FRAME_TEXT:
	case FRAME_ONE:
		return call(cpg, item, item->frame + 1, item->length - 1);
	case FRAME_PART:
		return deliver_part(cpg, item);
	case FRAME_MANY:
		item->done = item->done ? item->done : 1;
		if (item->done < item->length)
			called = deliver_next(cpg, item);
		*over = item->done >= item->length;
		return called;
	default:
		return false; /* not of this library */
	}
}

/* What a dispatch says that waits for nothing. */
static cs_error_t nothing(cs_dispatch_flags_t types)
{
	return types == CS_DISPATCH_ONE_NONBLOCKING ? CS_ERR_TRY_AGAIN : CS_OK;
}

static cs_error_t dispatch(struct cpg *cpg, cs_dispatch_flags_t types)
{
	bool one = types == CS_DISPATCH_ONE || types == CS_DISPATCH_ONE_NONBLOCKING;
	bool waits = types == CS_DISPATCH_ONE || types == CS_DISPATCH_BLOCKING;
	cs_error_t result = CS_OK;
	bool is_over = false, has_read = false;
	while (!is_over && !cpg->finalized) {
		if (!cpg->first) {
			if (cpg->over) {
				result = CS_ERR_LIBRARY;
				break;
			}
			if (!waits && has_read) {
				result = nothing(types);
				break;
			}
			read_some(cpg, waits ? -1 : 0);
			has_read = !waits && !cpg->first;
			continue;
		}
		struct item *item = dequeue(cpg);
		cpg->told_group = cpg->group;
		bool item_over = false, called = false;
		pthread_mutex_unlock(&cpg->lock);
		while (!item_over && !cpg->finalized) {
			called = deliver(cpg, item, &item_over);
			if (called && one)
				break;
		}
		pthread_mutex_lock(&cpg->lock);
		if (item_over)
			free(item);
		else
			put_back(cpg, item);
		has_read = false;
		is_over = called && one;
	}
	return result;
}

cs_error_t cpg_dispatch(cpg_handle_t handle, cs_dispatch_flags_t dispatch_types)
{
	if (dispatch_types < CS_DISPATCH_ONE || dispatch_types > CS_DISPATCH_ONE_NONBLOCKING)
		return CS_ERR_INVALID_PARAM;
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	bool waits = dispatch_types == CS_DISPATCH_ONE || dispatch_types == CS_DISPATCH_BLOCKING;
	cs_error_t result = CS_OK;
	pthread_mutex_lock(&cpg->lock);
	/* Callbacks come in one order, so from one thread at a time; also not from within one. */
	if (cpg->dispatching && pthread_equal(cpg->dispatcher, pthread_self()))
		result = CS_ERR_BUSY;
	while (result == CS_OK && waits && cpg->dispatching && !cpg->finalized && !cpg->over)
		pthread_cond_wait(&cpg->changed, &cpg->lock);
	if (result == CS_OK && cpg->dispatching)
		result = cpg->finalized ? CS_OK : cpg->over ? CS_ERR_LIBRARY : nothing(dispatch_types);
	else if (result == CS_OK) {
		cpg->dispatching = true;
		cpg->dispatcher = pthread_self();
		result = dispatch(cpg, dispatch_types);
		cpg->dispatching = false;
		pthread_cond_broadcast(&cpg->changed);
		ring(cpg, cpg->first != NULL);
	}
	pthread_mutex_unlock(&cpg->lock);
	cpg_let_go(cpg);
	return result;
}
