#include "list.h"

#include <stdlib.h>
#include <string.h>

#include "antiphon.h"
#include "cpg.h"

#define MAX_ITERATIONS 256
#define MAX_ENTRIES 65536 /* of the map */
#define LIST_MS 10000

struct entries {
	struct cpg_iteration_description_t *list;
	size_t count, capacity;
	bool failed;
};

struct iteration {
	cpg_iteration_handle_t handle;
	cpg_handle_t of;
	struct entries entries;
	size_t next;
};

static struct iteration *iterations[MAX_ITERATIONS];
static pthread_mutex_t iterations_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t iteration_number;

static void add(struct entries *entries, const struct cpg_name *group, uint32_t nodeid, uint32_t pid)
{
	if (entries->count == entries->capacity) {
		size_t capacity = entries->capacity ? entries->capacity * 2 : 32;
		struct cpg_iteration_description_t *list = realloc(entries->list, capacity * sizeof *list);
		if (!list) {
			entries->failed = true;
			return;
		}
		entries->list = list;
		entries->capacity = capacity;
	}
	struct cpg_iteration_description_t *entry = &entries->list[entries->count++];
	memset(entry, 0, sizeof *entry);
	entry->group.length = group->length;
	memcpy(entry->group.value, group->value, group->length);
	entry->nodeid = nodeid;
	entry->pid = pid;
}

static bool has_group(const struct entries *entries, const struct cpg_name *group)
{
	for (size_t i = 0; i < entries->count; i++)
		if (same_group(&entries->list[i].group, group))
			return true;
	return false;
}

/* ---- what this process knows by itself ---- */

static void add_own(struct cpg *cpg, void *user)
{
	struct entries *entries = user;
	pthread_mutex_lock(&cpg->lock);
	if (cpg->state == JOINED && !cpg->over && !has_group(entries, &cpg->group))
		for (size_t i = 0; i < cpg->member_count; i++)
			add(entries, &cpg->group, cpg->members[i].nodeid, cpg->members[i].pid);
	pthread_mutex_unlock(&cpg->lock);
}

/* ---- what the cluster knows ---- */

struct asked {
	char *member;
	struct cpg_name group;
	uint64_t version, lock;
};

static size_t read_map(antiphon *client, struct asked *asked)
{
	uint64_t watch, left = 1;
	size_t count = 0;
	antiphon_event *event;
	if (antiphon_watch(client, "cpg", NULL, NULL, LIST_MS, &watch, NULL))
		return 0;
	for (bool begun = false; !begun || left;) {
		if (antiphon_next(client, LIST_MS, &event, NULL) != 1)
			break;
		if (event->kind == ANTIPHON_WATCHING) {
			begun = true;
			left = event->number;
		} else if (event->kind == ANTIPHON_CHANGED) {
			left--;
			if (event->has_value && event->data.length <= CPG_MAX_NAME_LENGTH && count < MAX_ENTRIES) {
				struct asked *one = &asked[count];
				*one = (struct asked){ .member = strdup(event->key), .version = event->version };
				one->group.length = (uint32_t)event->data.length;
				memcpy(one->group.value, event->data.bytes, event->data.length);
				count += one->member != NULL;
			}
		}
		antiphon_event_free(event);
	}
	antiphon_unwatch(client, watch, LIST_MS, NULL);
	return count;
}

/* Whether the member lives: then its lock is held. */
static bool lives(antiphon *client, const struct asked *one)
{
	antiphon_event *reply;
	if (!one->lock || antiphon_wait(client, one->lock, LIST_MS, &reply, NULL))
		return true;
	bool is_gone = reply->error.code == ANTIPHON_OK;
	if (is_gone) {
		antiphon_remove(client, "cpg", one->member, &one->version, LIST_MS, NULL, NULL);
		antiphon_unlock(client, one->member, reply->token, LIST_MS, NULL);
	}
	antiphon_event_free(reply);
	return !is_gone;
}

static cs_error_t list(struct entries *entries, const struct cpg_name *group)
{
	antiphon_error error;
	struct entries own = { 0 };
	cpg_each(add_own, &own);
	struct asked *asked = calloc(MAX_ENTRIES, sizeof *asked);
	antiphon *client = asked ? antiphon_connect(agent_address(), NULL, LIST_MS, &error) : NULL;
	size_t count = client ? read_map(client, asked) : 0;
	for (size_t i = 0; i < own.count; i++)
		if (!group || same_group(group, &own.list[i].group))
			add(entries, &own.list[i].group, own.list[i].nodeid, own.list[i].pid);
	for (size_t i = 0; i < count; i++)
		if (!has_group(&own, &asked[i].group))
			asked[i].lock = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_LOCK, .name = asked[i].member }, NULL);
	for (size_t i = 0; i < count; i++) {
		struct cpg_address address;
		size_t node_length;
		bool counts = !has_group(&own, &asked[i].group) && (!group || same_group(group, &asked[i].group));
		if (asked[i].lock && lives(client, &asked[i]) && counts && member_address(asked[i].member, &address, &node_length))
			add(entries, &asked[i].group, address.nodeid, address.pid);
		free(asked[i].member);
	}
	free(asked);
	free(own.list);
	if (!client)
		return asked ? CS_ERR_LIBRARY : CS_ERR_NO_MEMORY;
	antiphon_close(client, 1000);
	return entries->failed ? CS_ERR_NO_MEMORY : CS_OK;
}

cs_error_t list_members(const struct cpg_name *group, struct cpg_address *members, int *count)
{
	struct entries entries = { 0 };
	cs_error_t result = list(&entries, group);
	*count = 0;
	for (size_t i = 0; result == CS_OK && i < entries.count && i < CPG_MEMBERS_MAX; i++) {
		if (members)
			members[i] = (struct cpg_address){ .nodeid = entries.list[i].nodeid, .pid = entries.list[i].pid };
		++*count;
	}
	free(entries.list);
	return result;
}

/* ---- iterations ---- */

static int by_group(const void *one, const void *other)
{
	const struct cpg_iteration_description_t *a = one, *b = other;
	int order = memcmp(a->group.value, b->group.value, CPG_MAX_NAME_LENGTH);
	return order ? order : (a->group.length > b->group.length) - (a->group.length < b->group.length);
}

/* Members of one group stand together; or each group once, and no members. */
static void arrange(struct entries *entries, bool names_only)
{
	size_t kept = 0;
	if (entries->count)
		qsort(entries->list, entries->count, sizeof *entries->list, by_group);
	for (size_t i = 0; names_only && i < entries->count; i++) {
		if (kept && same_group(&entries->list[kept - 1].group, &entries->list[i].group))
			continue;
		entries->list[kept] = entries->list[i];
		entries->list[kept].nodeid = entries->list[kept].pid = 0;
		kept++;
	}
	if (names_only)
		entries->count = kept;
}

cs_error_t cpg_iteration_initialize(cpg_handle_t handle, cpg_iteration_type_t iteration_type, const struct cpg_name *group,
				    cpg_iteration_handle_t *cpg_iteration_handle)
{
	if (!cpg_iteration_handle || iteration_type < CPG_ITERATION_NAME_ONLY || iteration_type > CPG_ITERATION_ALL ||
	    (iteration_type == CPG_ITERATION_ONE_GROUP) != (group != NULL))
		return CS_ERR_INVALID_PARAM;
	if (group && group->length > CPG_MAX_NAME_LENGTH)
		return CS_ERR_NAME_TOO_LONG;
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	cpg_let_go(cpg);
	struct iteration *iteration = calloc(1, sizeof *iteration);
	cs_error_t result = iteration ? list(&iteration->entries, group) : CS_ERR_NO_MEMORY;
	if (result == CS_OK) {
		arrange(&iteration->entries, iteration_type == CPG_ITERATION_NAME_ONLY);
		iteration->of = handle;
		result = CS_ERR_NO_RESOURCES;
		pthread_mutex_lock(&iterations_lock);
		for (int i = 0; i < MAX_ITERATIONS && result != CS_OK; i++) {
			uint64_t number = ++iteration_number;
			if (iterations[number % MAX_ITERATIONS])
				continue;
			*cpg_iteration_handle = iteration->handle = number;
			iterations[number % MAX_ITERATIONS] = iteration;
			result = CS_OK;
		}
		pthread_mutex_unlock(&iterations_lock);
	}
	if (result != CS_OK && iteration) {
		free(iteration->entries.list);
		free(iteration);
	}
	return result;
}

cs_error_t cpg_iteration_next(cpg_iteration_handle_t handle, struct cpg_iteration_description_t *description)
{
	if (!description)
		return CS_ERR_INVALID_PARAM;
	cs_error_t result = CS_ERR_BAD_HANDLE;
	pthread_mutex_lock(&iterations_lock);
	struct iteration *iteration = iterations[handle % MAX_ITERATIONS];
	if (iteration && iteration->handle == handle) {
		result = CS_ERR_NO_SECTIONS;
		if (iteration->next < iteration->entries.count) {
			*description = iteration->entries.list[iteration->next++];
			result = CS_OK;
		}
	}
	pthread_mutex_unlock(&iterations_lock);
	return result;
}

static void end(struct iteration **at)
{
	free((*at)->entries.list);
	free(*at);
	*at = NULL;
}

cs_error_t cpg_iteration_finalize(cpg_iteration_handle_t handle)
{
	cs_error_t result = CS_ERR_BAD_HANDLE;
	pthread_mutex_lock(&iterations_lock);
	struct iteration **at = &iterations[handle % MAX_ITERATIONS];
	if (*at && (*at)->handle == handle) {
		end(at);
		result = CS_OK;
	}
	pthread_mutex_unlock(&iterations_lock);
	return result;
}

void list_forget(cpg_handle_t handle)
{
	pthread_mutex_lock(&iterations_lock);
	for (int i = 0; i < MAX_ITERATIONS; i++)
		if (iterations[i] && iterations[i]->of == handle)
			end(&iterations[i]);
	pthread_mutex_unlock(&iterations_lock);
}
