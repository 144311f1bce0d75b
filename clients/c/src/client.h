/* What the parts of the library share.
 *
 *     request.c   operations: a struct becomes a line, and its reply a result
 *     client.c    the connection: what waits for what, and for how long
 *     back.c      what happens when it breaks
 *     event.c     a line of the agent becomes an event
 *     link.c      bytes and lines;  json.c  values */
#ifndef ANTIPHON_CLIENT_H
#define ANTIPHON_CLIENT_H

#include "antiphon.h"
#include "json.h"
#include "link.h"

#define OP_HELLO ((antiphon_op)100)
#define OP_ANSWER ((antiphon_op)101)
#define CAUSE_BYTES ANTIPHON_REASON_BYTES

struct owned_event {
	antiphon_event event; /* first: a pointer to it is one to this */
	struct owned_event *next;
	size_t size;
};

/* An operation that has no reply yet. */
struct pending {
	uint64_t id;
	antiphon_op op;
	bool forgotten;
	char *name; /* of a lock or a job */
	/* Of a client that comes back: */
	bool is_again;	/* the client asked for it by itself, as a new one */
	uint64_t line;	/* the number of its line */
	char *key;	/* of a verb */
	uint64_t token; /* or the id that it cancels, or the request that it answers */
	bool hands_over; /* a job, to a node */
};

/* What a client has to know to come back. */
struct back {
	int grace_ms;
	char *key; /* NULL: not yet */
	/* Lines of the agent, those of which it knows that they were taken, and bytes since. */
	uint64_t lines, told_lines;
	size_t told_bytes;
	/* Lines for the agent: all, and those that it said it took. `kept` has the others, and what was taken
	 * before `kept_begin`. While the client is down: those that the agent may have taken. */
	uint64_t sent, taken, maybe_taken;
	struct text kept;
	size_t kept_begin;
	int poll_fd, timer;
	uint32_t watched; /* events of the connection of which `poll_fd` tells */
	bool greets;	  /* down, and connected: hello is said */
	int64_t until_ms, next_ms;
	char cause[CAUSE_BYTES], reason[CAUSE_BYTES]; /* why it broke, and why it is not back */
	struct holding *holdings, **last;
};

struct antiphon {
	struct link link;
	struct json_document document;
	struct owned_event *first, **last;
	size_t queued, queued_bytes, most_bytes;
	struct bundle *bundle; /* whose parts come before the next line; or NULL */
	struct pending *pending; /* in the order of their beginning */
	size_t pending_count, pending_capacity;
	uint64_t last_id;
	bool over, closes;
	bool broke; /* the connection did not end as one that is closed in order */
	bool serves_commands; /* it asked to, so a request may be one */
	struct back *back; /* NULL: it does not */
	bool is_down;	   /* it is between two connections */
	uint64_t gone_requests, last_request; /* requests up to the first were of connections that are gone */
	char *token;
	char cause[CAUSE_BYTES], last_words[CAUSE_BYTES];
	char *asked_name; /* NULL: the agent gives it a name, and another one to a new client */
	char *name, *node, *cluster, *build, *member;
	struct former_name *former_names; /* which the program may still have */
};

struct former_name {
	struct former_name *next;
	char *name, *member;
};

/* event.c */
struct owned_event *event_new(antiphon_kind kind, size_t more);
/* The event of a line, which it changes; NULL if there is none to tell, with what is wrong if something
 * is. */
struct owned_event *event_of_line(antiphon *client, char *line, size_t length, const char **wrong);
/* The next part of the bundle; NULL: no memory. */
struct owned_event *next_of_bundle(antiphon *client);
size_t left_of_bundle(const antiphon *client);
/* An event without a line, with copies of these; NULL: no memory. */
struct owned_event *event_about(antiphon_kind kind, const char *name, const char *cause);
/* Cuts at the end of a character. */
void copy_reason(char *to, size_t size, const char *reason);

/* client.c */
int fail(antiphon_error *error, antiphon_code code, antiphon_ran ran, const char *reason);
struct pending *find_pending(antiphon *client, uint64_t id);
struct pending *oldest_pending(antiphon *client, antiphon_op op);
/* False: no memory. */
bool add_pending(antiphon *client, uint64_t id, const antiphon_request *request);
struct pending take_pending(antiphon *client, struct pending *pending);
/* Each that waits is told so. */
void fail_pending(antiphon *client, const char *cause);
/* What the agent calls this client now, which is a new one. False: no memory. */
bool take_name(antiphon *client, const char *name);
/* Behind all that was read. */
void queue_event(antiphon *client, struct owned_event *owned);
/* The connection is over for good: all that wait are told so, and then the program. */
void lose(antiphon *client, const char *cause);
/* Writes all that is to be written, and reads meanwhile: as long as there is room for events. */
void write_all(antiphon *client);
/* Writes what can be written without waiting; the descriptor of a client that comes back tells when there is room for
 * the rest. If it fails, that is found when something is read. */
void write_some(antiphon *client);
/* 0 if all before is written, so that there is at most one line that is not. */
int may_write(antiphon *client, antiphon_error *error);

/* back.c */
/* Before the hello. False: errno says why not. */
bool back_begin(antiphon *client, int grace_ms);
void back_free(antiphon *client);
/* The agent said what it is called by when it comes back, or that it does not (NULL). */
void back_keyed(antiphon *client, const char *key);
/* Has the descriptor tell when there is something to do. */
void back_watch(antiphon *client);
/* A line was put to what is to be written, from this place on. False: no memory to keep it. */
bool back_keep(antiphon *client, size_t from);
/* A line of the agent was taken that counts. */
void back_count(antiphon *client, size_t length);
/* The agent took so many lines. False: it was not told as many. */
bool back_took(antiphon *client, uint64_t lines);
/* Keeps in mind what the agent may have taken: of the connection that ends, all that was written whole. */
void back_note(antiphon *client);
/* An operation is done as its reply says. If the client asked for it by itself, there may be something to
 * tell of it. */
struct owned_event *back_done(antiphon *client, const struct pending *pending, const antiphon_event *reply);
/* What this event says is over. */
void back_told(antiphon *client, const antiphon_event *event);
/* The connection broke. False: this client does not come back. */
bool back_off(antiphon *client, const char *cause);
/* Does what there is to do between two connections, waiting for it until the deadline. */
void back_move(antiphon *client, int64_t deadline_ms);

/* request.c */
/* Puts the hello of another connection, which resumes the one before. */
void put_hello_again(antiphon *client);
/* Puts the line of an operation to what is to be written; an id of 0 is left out. */
int put_request(antiphon *client, const antiphon_request *request, uint64_t id, antiphon_error *error);
/* If this is the reply that a lock or a leadership is granted, gives it back: nobody waits for it any
 * more. It is written at once: the program may not call for long, and until then no other gets it. */
void give_back(antiphon *client, const antiphon_event *reply);
/* Tells who made this request that its answer was refused. Like `give_back`, it does not wait. */
void answer_refused(antiphon *client, uint64_t request, const char *reason);

#endif
