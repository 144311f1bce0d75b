#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cpg.h"
#include "list.h"

#define DEFAULT_ADDRESS "/run/antiphon/agent.sock"
#define MAX_HANDLES 1024
#define CONNECT_MS 5000
#define REPLY_MS 10000
#define DRAIN_MS 2000
#define NAME_TRIES 16

/* Handles are a number and a place, so that an old one is never taken for a new one. */
static struct cpg *handles[MAX_HANDLES];
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t handle_number, client_number;

const char *agent_address(void)
{
	const char *address = getenv("ANTIPHON_SOCKET");
	return address && *address ? address : DEFAULT_ADDRESS;
}

struct cpg *cpg_hold(cpg_handle_t handle)
{
	pthread_mutex_lock(&handles_lock);
	struct cpg *cpg = handles[handle % MAX_HANDLES];
	if (cpg && cpg->handle == handle)
		cpg->references++;
	else
		cpg = NULL;
	pthread_mutex_unlock(&handles_lock);
	return cpg;
}

void cpg_let_go(struct cpg *cpg)
{
	if (--cpg->references)
		return;
	free_items(cpg);
	link_close(&cpg->link);
	if (cpg->epoll >= 0)
		close(cpg->epoll);
	if (cpg->bell >= 0)
		close(cpg->bell);
	json_free(&cpg->document);
	free(cpg->aligned);
	pthread_mutex_destroy(&cpg->lock);
	pthread_mutex_destroy(&cpg->out);
	pthread_mutex_destroy(&cpg->parts);
	pthread_cond_destroy(&cpg->changed);
	pthread_cond_destroy(&cpg->work);
	free(cpg);
}

void cpg_each(void (*function)(struct cpg *cpg, void *user), void *user)
{
	pthread_mutex_lock(&handles_lock);
	for (int i = 0; i < MAX_HANDLES; i++)
		if (handles[i])
			function(handles[i], user);
	pthread_mutex_unlock(&handles_lock);
}

void cpg_lose(struct cpg *cpg, const char *cause)
{
	if (atomic_exchange(&cpg->over, true))
		return;
	if (cause)
		fprintf(stderr, "libcpg: the handle %llx is over: %s\n", (unsigned long long)cpg->handle, cause);
	/* What waits in the socket is woken; what was read before is still delivered. */
	shutdown(cpg->link.fd, SHUT_RDWR);
}

/* ---- a line, and the wait for its reply ---- */

static void begin_wait(struct cpg *cpg, struct waiter *waiter)
{
	pthread_mutex_lock(&cpg->lock);
	waiter->next = cpg->waiters;
	cpg->waiters = waiter;
	pthread_mutex_unlock(&cpg->lock);
}

/* {"WORD":{"KEY":"VALUE","id":…}}. A waiter of NULL: its reply is for nobody. */
static void say(struct cpg *cpg, const char *beginning, const char *value, struct waiter *waiter)
{
	pthread_mutex_lock(&cpg->out);
	uint64_t id = new_id(cpg, ID_WAITER);
	if (waiter) {
		*waiter = (struct waiter){ .id = id };
		pthread_mutex_unlock(&cpg->out);
		begin_wait(cpg, waiter);
		pthread_mutex_lock(&cpg->out);
	}
	put_line(cpg, beginning);
	text_add_quoted(&cpg->link.out, value, strlen(value));
	put_line(cpg, ",\"id\":");
	text_add_u64(&cpg->link.out, id);
	put_line(cpg, "}}\n");
	push(cpg, false);
	pthread_mutex_unlock(&cpg->out);
}

static cs_error_t ask(struct cpg *cpg, const char *beginning, const char *value)
{
	struct waiter waiter;
	say(cpg, beginning, value, &waiter);
	return wait_reply(cpg, &waiter, REPLY_MS);
}

/* All others know this member by its name, and its process by the name. */
static cs_error_t say_hello(struct cpg *cpg)
{
	cs_error_t result = CS_ERR_NO_RESOURCES;
	cpg->pid = getpid();
	for (int i = 0; i < NAME_TRIES && result == CS_ERR_NO_RESOURCES; i++) {
		char name[64];
		pthread_mutex_lock(&handles_lock);
		uint64_t number = client_number++;
		pthread_mutex_unlock(&handles_lock);
		snprintf(name, sizeof name, "cpg-%d-%llu", (int)cpg->pid, (unsigned long long)number);
		/* It is taken as long as the agent has not let go of an older process with this id. */
		result = ask(cpg, "{\"hello\":{\"name\":", name);
	}
	cpg->nodeid = node_id(cpg->node, strlen(cpg->node));
	return result;
}

static cs_error_t error_of_connect(int error)
{
	switch (error) {
	case EACCES:
	case EPERM:
		return CS_ERR_ACCESS;
	case ETIMEDOUT:
	case EAGAIN:
		return CS_ERR_TRY_AGAIN;
	case EMFILE:
	case ENFILE:
		return CS_ERR_NO_RESOURCES;
	case ENOMEM:
		return CS_ERR_NO_MEMORY;
	case EINVAL:
		return CS_ERR_INVALID_PARAM;
	default:
		return CS_ERR_LIBRARY;
	}
}

static bool begin(struct cpg *cpg)
{
	pthread_condattr_t clock;
	pthread_mutex_init(&cpg->lock, NULL);
	pthread_mutex_init(&cpg->out, NULL);
	pthread_mutex_init(&cpg->parts, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&cpg->changed, &clock);
	pthread_cond_init(&cpg->work, &clock);
	pthread_condattr_destroy(&clock);
	cpg->references = 1;
	cpg->last = &cpg->first;
	cpg->batch_length = 1;
	cpg->last_id = ID_LOCK_NUMBER;
	cpg->link.fd = -1;
	cpg->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cpg->epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN };
	return cpg->bell >= 0 && cpg->epoll >= 0 && !epoll_ctl(cpg->epoll, EPOLL_CTL_ADD, cpg->bell, &event);
}

static bool enter_handle(struct cpg *cpg)
{
	bool found = false;
	pthread_mutex_lock(&handles_lock);
	for (int i = 0; i < MAX_HANDLES && !found; i++) {
		uint64_t handle = ++handle_number;
		if (handles[handle % MAX_HANDLES])
			continue;
		/* 0 is no handle, and programs have it as one that they have not got yet. */
		cpg->handle = handle;
		handles[handle % MAX_HANDLES] = cpg;
		found = true;
	}
	pthread_mutex_unlock(&handles_lock);
	return found;
}

static void take_out_handle(struct cpg *cpg)
{
	pthread_mutex_lock(&handles_lock);
	if (handles[cpg->handle % MAX_HANDLES] == cpg)
		handles[cpg->handle % MAX_HANDLES] = NULL;
	pthread_mutex_unlock(&handles_lock);
}

cs_error_t cpg_model_initialize(cpg_handle_t *handle, cpg_model_t model, cpg_model_data_t *model_data, void *context)
{
	if (!handle || model != CPG_MODEL_V1)
		return CS_ERR_INVALID_PARAM;
	const cpg_model_v1_data_t *v1 = (const cpg_model_v1_data_t *)model_data;
	if (v1 && (v1->flags & ~(unsigned)CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF))
		return CS_ERR_INVALID_PARAM;
	struct cpg *cpg = calloc(1, sizeof *cpg);
	if (!cpg)
		return CS_ERR_NO_MEMORY;
	if (v1)
		cpg->model = *v1;
	cpg->context = context;
	if (!begin(cpg)) {
		cpg_let_go(cpg);
		return CS_ERR_NO_RESOURCES;
	}
	char reason[256];
	if (!link_open(&cpg->link, agent_address(), CONNECT_MS, reason, sizeof reason)) {
		cs_error_t error = error_of_connect(errno);
		cpg_let_go(cpg);
		return error;
	}
	struct epoll_event event = { .events = EPOLLIN };
	cs_error_t result = epoll_ctl(cpg->epoll, EPOLL_CTL_ADD, cpg->link.fd, &event) ? CS_ERR_NO_RESOURCES : say_hello(cpg);
	if (result == CS_OK && !enter_handle(cpg))
		result = CS_ERR_NO_RESOURCES;
	if (result != CS_OK) {
		cpg_let_go(cpg);
		return result;
	}
	*handle = cpg->handle;
	return CS_OK;
}

cs_error_t cpg_initialize(cpg_handle_t *handle, cpg_callbacks_t *callbacks)
{
	cpg_model_v1_data_t model = { .model = CPG_MODEL_V1 };
	if (callbacks) {
		model.cpg_deliver_fn = callbacks->cpg_deliver_fn;
		model.cpg_confchg_fn = callbacks->cpg_confchg_fn;
	}
	return cpg_model_initialize(handle, CPG_MODEL_V1, (cpg_model_data_t *)&model, NULL);
}

/* No message is taken from now on. False if none was before. */
static bool take_no_more(struct cpg *cpg)
{
	pthread_mutex_lock(&cpg->out);
	bool took = !atomic_exchange(&cpg->leaves, true);
	pthread_mutex_unlock(&cpg->out);
	return took;
}

cs_error_t cpg_finalize(cpg_handle_t handle)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	/* What was taken is delivered: an agent drops what it has not read of a connection that is gone. Threads
	 * that still send are told that they may not, or there would always be more. */
	take_no_more(cpg);
	if (cpg->state == JOINED || cpg->state == LEAVING)
		drain(cpg, DRAIN_MS);
	if (atomic_exchange(&cpg->finalized, true)) {
		cpg_let_go(cpg);
		return CS_ERR_BAD_HANDLE;
	}
	take_out_handle(cpg);
	stop_writer(cpg);
	cpg_lose(cpg, NULL);
	list_forget(cpg->handle);
	pthread_mutex_lock(&cpg->lock);
	pthread_cond_broadcast(&cpg->changed);
	pthread_mutex_unlock(&cpg->lock);
	cpg_let_go(cpg); /* the program's */
	cpg_let_go(cpg);
	return CS_OK;
}

static void drain_one(struct cpg *cpg, void *unused)
{
	(void)unused;
	if (cpg->state == JOINED && !cpg->over && cpg->pid == getpid())
		drain(cpg, 500);
}

/* A program that ends without cpg_finalize has sent what was taken, too. */
__attribute__((destructor)) static void drain_all(void)
{
	cpg_each(drain_one, NULL);
}

cs_error_t cpg_fd_get(cpg_handle_t handle, int *fd)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	*fd = cpg->epoll;
	cpg_let_go(cpg);
	return CS_OK;
}

cs_error_t cpg_max_atomic_msgsize_get(cpg_handle_t handle, uint32_t *size)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	*size = FRAME_BYTES - 1;
	cpg_let_go(cpg);
	return CS_OK;
}

cs_error_t cpg_context_get(cpg_handle_t handle, void **context)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	*context = cpg->context;
	cpg_let_go(cpg);
	return CS_OK;
}

cs_error_t cpg_context_set(cpg_handle_t handle, void *context)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	cpg->context = context;
	cpg_let_go(cpg);
	return CS_OK;
}

cs_error_t cpg_local_get(cpg_handle_t handle, unsigned int *local_nodeid)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	*local_nodeid = cpg->nodeid;
	cpg_let_go(cpg);
	return CS_OK;
}

/* ---- joining and leaving ---- */

struct looking {
	const struct cpg *cpg;
	const struct cpg_name *group;
	bool found;
};

static void look(struct cpg *cpg, void *user)
{
	struct looking *looking = user;
	if (cpg != looking->cpg && cpg->state != UNJOINED && !cpg->over && same_group(&cpg->group, looking->group))
		looking->found = true;
}

/* A member is its node and its process: one process is in a group once. */
static bool is_joined_elsewhere(const struct cpg *cpg, const struct cpg_name *group)
{
	struct looking looking = { .cpg = cpg, .group = group };
	cpg_each(look, &looking);
	return looking.found;
}

static cs_error_t join(struct cpg *cpg, const struct cpg_name *group)
{
	int unjoined = UNJOINED;
	if (cpg->over)
		return CS_ERR_LIBRARY;
	if (cpg->state == LEAVING)
		return CS_ERR_BUSY;
	if (cpg->state != UNJOINED || is_joined_elsewhere(cpg, group))
		return CS_ERR_EXIST;
	/* In the child of a fork it is another process. */
	if (cpg->pid != getpid() && say_hello(cpg) != CS_OK)
		return CS_ERR_LIBRARY;
	pthread_mutex_lock(&cpg->lock);
	/* The agent has said that it left, and the program was not told yet. Items do not keep the name of their group:
	 * those that wait would be told as the next group's. */
	if (has_callbacks(cpg)) {
		pthread_mutex_unlock(&cpg->lock);
		return CS_ERR_BUSY;
	}
	cpg->group = *group;
	memset(cpg->group.value + group->length, 0, CPG_MAX_NAME_LENGTH - group->length);
	group_name(group, cpg->group_name);
	cpg->suspended = false;
	bool begins = atomic_compare_exchange_strong(&cpg->state, &unjoined, JOINING);
	pthread_mutex_unlock(&cpg->lock);
	if (!begins)
		return CS_ERR_EXIST;
	/* What was taken while a join failed is not for this group. */
	pthread_mutex_lock(&cpg->out);
	cpg->batch_count = 0;
	cpg->batch_length = 1;
	cpg->leaves = false;
	pthread_mutex_unlock(&cpg->out);
	cs_error_t result = ask(cpg, "{\"join\":{\"bytes\":true,\"group\":", cpg->group_name);
	if (result != CS_OK) {
		cpg->state = UNJOINED;
		if (result == CS_ERR_TRY_AGAIN)
			say(cpg, "{\"leave\":{\"group\":", cpg->group_name, NULL);
	}
	return result;
}

cs_error_t cpg_join(cpg_handle_t handle, const struct cpg_name *group)
{
	if (!group)
		return CS_ERR_INVALID_PARAM;
	if (group->length > CPG_MAX_NAME_LENGTH)
		return CS_ERR_NAME_TOO_LONG;
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	cs_error_t result = join(cpg, group);
	cpg_let_go(cpg);
	return result;
}

static cs_error_t leave(struct cpg *cpg)
{
	int64_t deadline_ms = now_ms() + REPLY_MS;
	pthread_mutex_lock(&cpg->lock);
	while (cpg->state == JOINING && !cpg->over && left_ms(deadline_ms))
		read_some(cpg, left_ms(deadline_ms));
	ring(cpg, cpg->first != NULL);
	pthread_mutex_unlock(&cpg->lock);
	if (cpg->over)
		return CS_ERR_LIBRARY;
	if (cpg->state == JOINING)
		return CS_ERR_BUSY;
	if (cpg->state != JOINED)
		return CS_ERR_NOT_EXIST;
	/* Messages that were taken come before the leave, and those in parts whole. */
	pthread_mutex_lock(&cpg->parts);
	bool begins = take_no_more(cpg);
	pthread_mutex_unlock(&cpg->parts);
	if (!begins)
		return CS_ERR_NOT_EXIST;
	if (!drain(cpg, REPLY_MS)) {
		cpg->leaves = false;
		return cpg->over ? CS_ERR_LIBRARY : CS_ERR_TRY_AGAIN;
	}
	int joined = JOINED;
	if (!atomic_compare_exchange_strong(&cpg->state, &joined, LEAVING))
		return CS_ERR_NOT_EXIST;
	say(cpg, "{\"leave\":{\"group\":", cpg->group_name, NULL);
	pthread_mutex_lock(&cpg->lock);
	uint64_t token = cpg->lock_token;
	cpg->lock_token = 0;
	pthread_mutex_unlock(&cpg->lock);
	if (token) {
		say(cpg, "{\"remove\":{\"map\":\"cpg\",\"key\":", cpg->member, NULL);
		put_unlock(cpg, token);
	}
	return CS_OK;
}

cs_error_t cpg_leave(cpg_handle_t handle, const struct cpg_name *group)
{
	(void)group; /* a handle is in one group */
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	cs_error_t result = leave(cpg);
	cpg_let_go(cpg);
	return result;
}

cs_error_t cpg_membership_get(cpg_handle_t handle, struct cpg_name *group_name, struct cpg_address *member_list,
			      int *member_list_entries)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	cs_error_t result = CS_ERR_INVALID_PARAM;
	if (group_name && member_list_entries && group_name->length <= CPG_MAX_NAME_LENGTH) {
		pthread_mutex_lock(&cpg->lock);
		bool is_own = cpg->state == JOINED && same_group(&cpg->group, group_name);
		if (is_own) {
			*member_list_entries = (int)cpg->member_count;
			if (member_list)
				memcpy(member_list, cpg->members, cpg->member_count * sizeof *member_list);
		}
		pthread_mutex_unlock(&cpg->lock);
		result = is_own ? CS_OK : list_members(group_name, member_list, member_list_entries);
	}
	cpg_let_go(cpg);
	return result;
}
