/* libantiphon: a client of the Antiphon agent of this host.
 *
 *     antiphon *client = antiphon_connect("127.0.0.1:7480", "ann", 5000, &error);
 *     antiphon_join(client, "chat", 5000, &error);
 *     antiphon_send(client, "chat", "hello", 5, 0, &error);
 *     antiphon_event *event;
 *     while (antiphon_next(client, -1, &event, &error) == 1) {
 *         if (event->kind == ANTIPHON_MESSAGE)
 *             printf("%s: %.*s\n", event->sender, (int)event->data.length, event->data.bytes);
 *         antiphon_event_free(event);
 *     }
 *
 * One handle is one connection, and a client of its own. All that it is told comes in one order from
 * antiphon_next. There is no global state and no thread inside. A handle is used by one thread at a
 * time, different handles by different threads.
 *
 * Each operation has two forms. Its function waits for the reply. antiphon_start begins it and gives an
 * id, and the reply comes with that id among the events, or from antiphon_wait.
 *
 * Functions give 0, or -1 and an error. `error` may be NULL. Texts are UTF-8 and ended by NUL; payloads
 * and values are any bytes. Times are milliseconds: -1 is without end, 0 is not at all. What agents
 * guarantee, their manual says: docs/agent.md, docs/node.md and docs/blocks.md. */
#ifndef ANTIPHON_H
#define ANTIPHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ANTIPHON_VERSION "0.1.0"

/* A connection. */
typedef struct antiphon antiphon;

typedef struct antiphon_bytes {
	const char *bytes;
	size_t length;
} antiphon_bytes;

typedef struct antiphon_names {
	const char *const *names;
	size_t count;
} antiphon_names;

/* ---- errors ---- */

typedef enum antiphon_code {
	ANTIPHON_OK = 0,
	/* Of the agent; docs/node.md says more. */
	ANTIPHON_CONFLICT,    /* `if_version` does not hold: `version` is what is there, if anything is */
	ANTIPHON_TIMEOUT,     /* it did not happen in its time; also if the agent gave no reply in time */
	ANTIPHON_CANCELLED,
	ANTIPHON_NOT_HELD,    /* nothing is held with this token; this client is not in that group */
	ANTIPHON_LOST,	      /* the lock or its queue was lost, or the node that was called */
	ANTIPHON_UNAVAILABLE, /* not now: try again */
	ANTIPHON_REFUSED,     /* not so: change it */
	ANTIPHON_UNKNOWN,     /* the majority was lost meanwhile: read before you write again */
	ANTIPHON_FAILED,      /* handlers that were called failed */
	/* Of this library. */
	ANTIPHON_CONNECTION, /* the connection is over, or it is a new one, and all that was held is free */
	ANTIPHON_INVALID,    /* an argument that makes no sense */
	ANTIPHON_NO_MEMORY,
	ANTIPHON_OTHER	     /* a code that this library does not know */
} antiphon_code;

/* Whether it happened all the same. */
typedef enum antiphon_ran { ANTIPHON_RAN_NO, ANTIPHON_RAN_MAYBE, ANTIPHON_RAN_YES } antiphon_ran;

#define ANTIPHON_REASON_BYTES 256

typedef struct antiphon_error {
	antiphon_code code;
	antiphon_ran ran;
	bool has_version; /* of a conflict: */
	uint64_t version; /* what the key has */
	char reason[ANTIPHON_REASON_BYTES];
} antiphon_error;

/* "conflict" and so on; "ok". */
const char *antiphon_code_name(antiphon_code code);
const char *antiphon_ran_name(antiphon_ran ran);

/* ---- a connection ---- */

/* `address`: "host:port", "unix:/path" or "/path". `name`: what this client is called in groups; NULL:
 * the agent gives it a name. NULL if it fails. */
antiphon *antiphon_connect(const char *address, const char *name, int timeout_ms, antiphon_error *error);

#define ANTIPHON_MAX_GRACE_MS 10000

/* What else a connection may be told; what is left zero is left out. */
typedef struct antiphon_options {
	size_t size;	   /* sizeof(antiphon_options), so that later versions may have more */
	const char *name;  /* as above */
	const char *token; /* what an agent with --token-file asks for */
	/* For how long the client comes back by itself when its connection breaks. Meanwhile what it begins
	 * waits, and for the others it is there.
	 *
	 * If it comes back in time, nobody sees a change. If the agent does not know it any more, it goes on
	 * as a new client of the same name: what was under way ends with ANTIPHON_CONNECTION, locks,
	 * leaderships and watches are lost, each of its groups has ANTIPHON_RESYNC and then the views of a
	 * new member, and it serves what it served. If neither is done in time, the connection is over.
	 *
	 * A connection that is cut by antiphon_drop, or with the process, counts as broken to the agent: the
	 * others see this client for so long. antiphon_close is seen at once. */
	int grace_ms;
} antiphon_options;

/* `options` may be NULL. */
antiphon *antiphon_connect_with(const char *address, const antiphon_options *options, int timeout_ms,
				antiphon_error *error);
/* Leaves groups in order, waits until the agent has let go of all, and frees the handle in any case.
 * What is unread is dropped. 0, or -1 if it was not done in time: then the connection was cut, as by
 * antiphon_drop; also if it broke before the agent read this, and so waits for the client to come back. */
int antiphon_close(antiphon *client, int timeout_ms);
/* Cuts the connection and frees the handle. For the others this client has crashed. NULL is nothing. */
void antiphon_drop(antiphon *client);

/* NODE/NAME, as in views. These stand as long as the handle. A client without a name of its own may get
 * another one when it comes back as a new client: then the first two say that, and what they said before
 * stands. */
const char *antiphon_member(const antiphon *client);
const char *antiphon_name(const antiphon *client);
const char *antiphon_node(const antiphon *client);
const char *antiphon_cluster(const antiphon *client);
const char *antiphon_build(const antiphon *client);

/* Readable when something may have come: then take all there is with antiphon_next(…, 0, …) or
 * antiphon_dispatch. Before you poll, take all that antiphon_pending counts: it has been read already.
 * It is the same until the connection is over, also for a client that comes back: that does so in these
 * functions, and its descriptor tells when. */
int antiphon_fd(const antiphon *client);
/* Events that were read while a call waited for its reply, or together with others. */
size_t antiphon_pending(const antiphon *client);
/* How many bytes of events may wait in the handle while a call waits for its reply, or to write: 64 MiB
 * unless set. Beyond that the call ends with ANTIPHON_UNAVAILABLE, and `ran` says whether it was sent:
 * take events, and go on. */
void antiphon_set_queue_bytes(antiphon *client, size_t bytes);

/* ---- events ---- */

typedef enum antiphon_kind {
	/* Of a group, `name`. */
	ANTIPHON_VIEW = 1,     /* view, members, joined, left, crashed, causes, transitional, primary */
	ANTIPHON_MESSAGE,      /* view, sender, seq, part, data, safe */
	ANTIPHON_TRANSITIONAL, /* members: what follows until the next view was completed among these */
	ANTIPHON_SUSPENDED,    /* nothing is delivered and nothing can be sent for now */
	ANTIPHON_RESYNC,       /* cause: its node or its agent was away; it comes in again as a new member */
	ANTIPHON_LEFT,	       /* after antiphon_leave: the last of the group */
	ANTIPHON_LOST_GROUP,   /* cause: it is out; the last of the group */
	/* cause, has_value, data: an antiphon_send that the group did not take, or each payload of an
	 * antiphon_send_bundle. Long ones do not come back: then there is one, without a value. */
	ANTIPHON_NOT_SENT,
	/* Of a lock or a job, `name`: over without this client's doing. */
	ANTIPHON_LOST_LOCK, /* cause, token, id */
	ANTIPHON_LOST_LEAD, /* cause, token, id */
	/* Of a watch, `id`, of the map `name`. */
	ANTIPHON_WATCHING,   /* number: so many entries follow, in place of all that was told before */
	ANTIPHON_CHANGED,    /* key, version, data; or gone ("removed", "expired") */
	ANTIPHON_LOST_WATCH, /* cause; the last of the watch */
	/* Of what this client serves: group `name`, verb `key`. Answer it with antiphon_answer. */
	ANTIPHON_REQUEST, /* id, sender: the node that asks; data, within_ms */
	/* Of what antiphon_start began. */
	ANTIPHON_REPLY, /* id, op, error, and what the operation gives */
	/* The connection is over, and with it all groups, watches and locks; the last of all. */
	ANTIPHON_CLOSED, /* cause */
	/* Of a verb of the list that this client serves, `key`: a node asks for it. Answer as a request. */
	ANTIPHON_COMMANDED /* id, sender: the node that asks; args, within_ms */
} antiphon_kind;

typedef enum antiphon_op {
	ANTIPHON_JOIN = 1, /* name: group */
	ANTIPHON_LEAVE,	   /* name: group */
	ANTIPHON_SEND,	   /* name: group; data, safe. The reply comes when it was delivered */
	ANTIPHON_LOCK,	   /* name; within_ms -> token */
	ANTIPHON_UNLOCK,   /* name; token */
	ANTIPHON_LEAD,	   /* name: job -> token */
	ANTIPHON_RESIGN,   /* name: job; token; to: node or NULL */
	ANTIPHON_GET,	   /* name: map; key; latest -> has_value, data, version */
	ANTIPHON_PUT,	   /* name: map; key, data, if_version, ttl_ms -> version */
	ANTIPHON_REMOVE,   /* name: map; key, if_version -> has_value, data, version: what it had */
	ANTIPHON_WATCH,	   /* name: map; key, or prefix, or neither: all. Its events have this id */
	ANTIPHON_ADD,	   /* name: counter; by -> value */
	ANTIPHON_TAKE_IDS, /* count -> number: the first of them */
	ANTIPHON_SERVE,	   /* name: group; key: verb */
	ANTIPHON_CALL,	   /* name: group; key: verb; to or nodes; data, within_ms -> answers */
	ANTIPHON_MEMBERS,  /* -> nodes */
	ANTIPHON_WHY,	   /* name: node -> facts */
	ANTIPHON_CANCEL,   /* of: the id of a wait or a watch, which ends */
	/* key: verb; args, to or nodes, way, within_ms, no_reply -> answers */
	ANTIPHON_COMMAND,
	ANTIPHON_SERVE_COMMAND, /* key: verb */
	ANTIPHON_COMMANDS,	/* -> data: a JSON object */
	ANTIPHON_SEND_BUNDLE	/* name: group; payloads, safe. The reply comes when they were delivered */
} antiphon_op;

typedef enum antiphon_arg_type { ANTIPHON_TEXT = 1, ANTIPHON_INTEGER, ANTIPHON_BOOLEAN } antiphon_arg_type;

/* An argument of a command. */
typedef struct antiphon_arg {
	const char *name;
	antiphon_arg_type type;
	const char *text;
	int64_t integer; /* of a boolean 0 or 1 */
} antiphon_arg;

/* What one node answered to a call or a command: `data` if error.code is ANTIPHON_OK. Of one that failed,
 * `data` is what its handler said. */
typedef struct antiphon_node_answer {
	const char *node;
	antiphon_bytes data;
	antiphon_error error;
} antiphon_node_answer;

typedef struct antiphon_node_info {
	const char *name, *incarnation, *address;
} antiphon_node_info;

/* All that it points to stands until antiphon_event_free. */
typedef struct antiphon_event {
	antiphon_kind kind;
	const char *name;
	uint64_t id;
	const char *cause;

	const char *view;
	antiphon_names members, joined, left, crashed, transitional;
	const char *const *causes; /* why each of `crashed` is gone; NULL for one of which nothing is said */
	bool primary;

	const char *sender;
	uint64_t seq;
	uint32_t part; /* of a bundle, whose messages have one `seq` */
	antiphon_bytes data;
	bool safe;

	const char *key, *gone;
	uint64_t version, token, number;
	int64_t within_ms;

	antiphon_op op;
	antiphon_error error;
	bool has_value;
	int64_t value;
	const antiphon_node_answer *answers;
	size_t answer_count;
	const antiphon_node_info *nodes;
	size_t node_count;
	antiphon_names facts;
	const antiphon_arg *args;
	size_t arg_count;
} antiphon_event;

/* The next event: 1; none within the time: 0; -1 behind ANTIPHON_CLOSED, or without memory. */
int antiphon_next(antiphon *client, int timeout_ms, antiphon_event **event, antiphon_error *error);
void antiphon_event_free(antiphon_event *event);

/* Hands all events that are there to a function, without waiting: how many, or -1 as antiphon_next. The
 * event is freed when it returns. The function may call anything but antiphon_close and antiphon_drop. */
typedef void (*antiphon_handler)(antiphon *client, const antiphon_event *event, void *user);
int antiphon_dispatch(antiphon *client, antiphon_handler handler, void *user, antiphon_error *error);

/* ---- operations that do not wait ---- */

typedef struct antiphon_request {
	antiphon_op op;
	const char *name, *key, *prefix;
	const char *to; /* of a call: "any", "all" or a node, of a command "one" as well; of resign: a node */
	const char *const *nodes;
	size_t node_count;
	antiphon_bytes data;
	bool safe, latest;
	const uint64_t *if_version; /* NULL: whatever it has; 0: only if it has no value */
	uint64_t token, of;
	/* within_ms of a lock: -1 is without end, 0 not at all; of a call 0 is 10 s, of a command what the
	 * list says */
	int64_t by, within_ms;
	uint64_t ttl_ms;       /* 0: until it is removed */
	uint32_t count;
	/* From here on of commands alone. */
	const antiphon_arg *args;
	size_t arg_count;
	const char *way; /* "http_kept" and so on; NULL: "library" */
	bool no_reply;	 /* its reply comes when it is in the queues, with the failures of nodes until then */
	/* Of a bundle alone. */
	const antiphon_bytes *payloads;
	size_t payload_count;
} antiphon_request;

/* Begins it: the id of its reply, or 0 and the error. It waits only while the agent takes nothing, since
 * a group to which this client sends is full; events are read meanwhile. After 30 s the connection is
 * over. A thread that is to read for another member of that group must not wait here for it. */
uint64_t antiphon_start(antiphon *client, const antiphon_request *request, antiphon_error *error);
/* Waits for a reply: 0 if it came, whatever it says. -1: not in time (ANTIPHON_TIMEOUT: it comes later,
 * among the events), or the connection is over. Events that come before it wait for antiphon_next. */
int antiphon_wait(antiphon *client, uint64_t id, int timeout_ms, antiphon_event **reply, antiphon_error *error);
/* Nobody waits for this reply any more: it is dropped; a wait for a lock ends, a lock that is granted
 * all the same is given back. */
void antiphon_forget(antiphon *client, uint64_t id);

/* ---- operations that wait for their reply ----
 * If it is not there in time, the error is ANTIPHON_TIMEOUT with `ran` maybe, and it is forgotten. */

int antiphon_join(antiphon *client, const char *group, int timeout_ms, antiphon_error *error);
int antiphon_leave(antiphon *client, const char *group, int timeout_ms, antiphon_error *error);

#define ANTIPHON_SAFE 1 /* deliver it only when every node of the group holds it */
/* Says it to the group, and does not wait until it is delivered. If the group does not take it,
 * ANTIPHON_NOT_SENT follows. */
int antiphon_send(antiphon *client, const char *group, const void *bytes, size_t length, int flags,
		  antiphon_error *error);
/* The same, and waits until it was delivered. */
int antiphon_send_wait(antiphon *client, const char *group, const void *bytes, size_t length, int flags,
		       int timeout_ms, antiphon_error *error);

/* Says several things in one line, for little more than one would cost. All members are told all of them, in
 * this order and with nothing in between, or none. Each is an ANTIPHON_MESSAGE, with the same `seq` and its
 * `part`. A bundle has 4096 messages and 1 MiB at most. */
int antiphon_send_bundle(antiphon *client, const char *group, const antiphon_bytes *payloads, size_t count, int flags,
			 antiphon_error *error);
int antiphon_send_bundle_wait(antiphon *client, const char *group, const antiphon_bytes *payloads, size_t count,
			      int flags, int timeout_ms, antiphon_error *error);

/* Waits for a lock: `within_ms` -1 is without end, 0 not at all. Give the token to what the lock protects. */
int antiphon_lock(antiphon *client, const char *name, int within_ms, uint64_t *token, antiphon_error *error);
int antiphon_unlock(antiphon *client, const char *name, uint64_t token, int timeout_ms, antiphon_error *error);
/* Waits until this client leads the job. */
int antiphon_lead(antiphon *client, const char *job, int timeout_ms, uint64_t *token, antiphon_error *error);
/* `to`: the node that leads next, which must wait for it; NULL: the one that has waited longest. */
int antiphon_resign(antiphon *client, const char *job, uint64_t token, const char *to, int timeout_ms,
		    antiphon_error *error);

/* A value and its version. `bytes` has one NUL more behind it; free it with antiphon_value_free. */
typedef struct antiphon_value {
	bool exists;
	char *bytes;
	size_t length;
	uint64_t version;
} antiphon_value;
void antiphon_value_free(antiphon_value *value);

/* `latest`: with all that was replied to anybody before. */
int antiphon_get(antiphon *client, const char *map, const char *key, bool latest, int timeout_ms,
		 antiphon_value *value, antiphon_error *error);
/* `if_version` and `version` may be NULL; `ttl_ms` 0 is until it is removed. */
int antiphon_put(antiphon *client, const char *map, const char *key, const void *bytes, size_t length,
		 const uint64_t *if_version, uint64_t ttl_ms, int timeout_ms, uint64_t *version,
		 antiphon_error *error);
/* `had` may be NULL. */
int antiphon_remove(antiphon *client, const char *map, const char *key, const uint64_t *if_version, int timeout_ms,
		    antiphon_value *had, antiphon_error *error);
/* What is there, and then each change: ANTIPHON_WATCHING and ANTIPHON_CHANGED with this id, until
 * antiphon_unwatch. `key` or `prefix`, or NULL for both. */
int antiphon_watch(antiphon *client, const char *map, const char *key, const char *prefix, int timeout_ms,
		   uint64_t *id, antiphon_error *error);
int antiphon_unwatch(antiphon *client, uint64_t id, int timeout_ms, antiphon_error *error);

int antiphon_add(antiphon *client, const char *counter, int64_t by, int timeout_ms, int64_t *value,
		 antiphon_error *error);
/* `first` and the count - 1 numbers behind it are given to no other caller. */
int antiphon_take_ids(antiphon *client, uint32_t count, int timeout_ms, uint64_t *first, antiphon_error *error);

int antiphon_serve(antiphon *client, const char *group, const char *verb, int timeout_ms, antiphon_error *error);
/* `request`: the id of ANTIPHON_REQUEST or ANTIPHON_COMMANDED. An answer has at most 59744 bytes, and one to
 * a command 1 MiB. What is longer is refused: answer with an error then, else who asked waits. A client that
 * serves commands is held to 1 MiB for all. If the agent refuses an answer, the library answers with an
 * error that says why. */
int antiphon_answer(antiphon *client, uint64_t request, const void *bytes, size_t length, antiphon_error *error);
int antiphon_answer_error(antiphon *client, uint64_t request, const char *reason, antiphon_error *error);
/* `to`: "any", "all", or the name of a node; several nodes are for antiphon_start. `within_ms` 0 is 10
 * s. The reply has the answers and failures of nodes, and is to be freed. It is given also if none
 * answered and this is -1; otherwise it is NULL. */
int antiphon_call(antiphon *client, const char *group, const char *verb, const char *to, const void *bytes,
			size_t length, int within_ms, antiphon_event **reply, antiphon_error *error);

/* Commands to peers, of the list that the agents have: docs/commands.md. */

/* Asks nodes for a verb, by the cluster's own links; other ways, several nodes, and no waiting for their
 * replies are for antiphon_start. `to`: "all", "one", "any", or the name of a node. `within_ms` 0 is what the
 * list says. The reply as of antiphon_call. */
int antiphon_command(antiphon *client, const char *verb, const antiphon_arg *args, size_t arg_count, const char *to,
		     int within_ms, antiphon_event **reply, antiphon_error *error);
/* From now on ANTIPHON_COMMANDED of this verb come to this client, by turns with others that serve it. */
int antiphon_serve_command(antiphon *client, const char *verb, int timeout_ms, antiphon_error *error);
/* The list's version, queues, peers and counts: a JSON object, as `data` of an event that is to be freed. */
int antiphon_commands(antiphon *client, int timeout_ms, antiphon_event **reply, antiphon_error *error);

/* The nodes of the cluster, and what is known about one, present or gone, as `nodes` and `facts` of an
 * event. */
int antiphon_members(antiphon *client, int timeout_ms, antiphon_event **reply, antiphon_error *error);
int antiphon_why(antiphon *client, const char *node, int timeout_ms, antiphon_event **reply, antiphon_error *error);

#ifdef __cplusplus
}
#endif

#endif
